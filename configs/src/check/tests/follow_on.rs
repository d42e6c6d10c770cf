//! One mistake has one problem, and its message lists every choice.

use super::expect;

#[test]
fn value_that_was_removed_has_no_second_problem() {
    expect(
        &[
            (
                "roles = { speaker = \"a\", listener = \"b\" }",
                "roles = { listener = \"B 2\" }",
            ),
            (
                "reward = { speaker = { success = 1.0 }, listener = { success = 1.0 } }",
                "",
            ),
            ("lead = \"a\"", ""),
            ("[agents.a]\n[agents.b]", "[agents.\"B 2\"]"),
        ],
        &[
            ("agents.B 2", "is not a name"),
            ("workflow.roles.listener", "is not a name"),
        ],
    );
    expect(
        &[("[agents.a]", "[agents.a]\nlora.targets = [\"nix\"]")],
        &[("agents.a.lora.targets.0", "\"nix\" is not known")],
    );
    expect(
        &[("lr = 3e-4", "lr = -1.0")],
        &[("defaults.agent.train.optimizer.lr", "write a number above 0")],
    );
}

#[test]
fn unknown_grader_is_answered_with_every_kind() {
    expect(
        &[("kind = \"exact\"", "kind = \"nix\"")],
        &[(
            "graders.answer.kind",
            "\"format\", \"judge\", \"process:FILE\" or \"remote:NAME\"",
        )],
    );
}

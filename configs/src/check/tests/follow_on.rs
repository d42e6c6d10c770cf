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

#[test]
fn sizes_that_no_model_has_are_refused() {
    for (from, to, path, says) in [
        (
            "layers = 2",
            "layers = 100000",
            "layers",
            "is 100000: write 4096 or less",
        ),
        ("hidden = 64", "hidden = 6400000", "hidden", "more than any model has"),
        (
            "heads = 4,",
            "heads = 4, max_context = 3000000000,",
            "max_context",
            "write 2147483648 or less",
        ),
    ] {
        expect(&[(from, to)], &[(&format!("defaults.agent.model.random.{path}"), says)]);
    }
    expect(
        &[("[agents.a]", "[agents.a]\nlora.rank = 100000")],
        &[("agents.a.lora.rank", "is 100000: write 8192 or less")],
    );
}

#[test]
fn own_program_without_its_prefix_is_recognised() {
    for (kind, meant) in [
        ("my/flow.py", "process:my/flow.py"),
        ("proces:x.py", "process:x.py"),
        ("sgnal", "signal"),
    ] {
        expect(
            &[("kind = \"signal\"", &format!("kind = {kind:?}"))],
            &[("workflow.kind", &format!("\"remote:NAME\" (did you mean {meant:?}?)"))],
        );
    }
}

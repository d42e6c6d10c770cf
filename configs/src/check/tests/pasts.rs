//! Tests of agents that play with earlier weights of another agent.

use super::expect;

/// Expects these problems for the good file with agent b frozen and this `past`.
fn with(past: &str, more: &str, expected: &[(&str, &str)]) {
    let of_b = format!("[agents.b]\npast = {past}\n{more}train.enabled = false");
    let changes = [
        ("[agents.b]\ntrain.batch_groups = 32", of_b.as_str()),
        ("[agents.a]", "[agents.a]\ntrain.checkpoint_every = 5"),
    ];
    expect(&changes, expected);
}

#[test]
fn a_past_is_of_another_agent_that_trains_and_saves() {
    with("{ of = \"a\", every = 10 }", "", &[]);
    with("{ of = \"a\", every = 10, keep = 1 }", "", &[]);
    with("{ of = \"b\", every = 10 }", "", &[("agents.b.past.of", "write \"a\"")]);
    with(
        "{ of = \"c\", every = 10 }",
        "",
        &[("agents.b.past.of", "not another agent")],
    );
    with(
        "{ of = \"a\", every = 7 }",
        "",
        &[("agents.b.past.every", "agents.a.train.checkpoint_every = 7")],
    );
    with(
        "{ of = \"a\", every = 0, keep = 0 }",
        "",
        &[
            ("agents.b.past.every", "1 or more"),
            ("agents.b.past.keep", "1 or more"),
        ],
    );
}

#[test]
fn agent_with_a_past_must_be_frozen_and_have_the_same_model() {
    let trains = "[agents.b]\npast = { of = \"a\", every = 5 }\ntrain.batch_groups = 32";
    let changes = [
        ("[agents.b]\ntrain.batch_groups = 32", trains),
        ("[agents.a]", "[agents.a]\ntrain.checkpoint_every = 5"),
    ];
    expect(&changes, &[("agents.b.train.enabled", "must be false")]);
    let past = "{ of = \"a\", every = 5 }";
    with(
        past,
        "model.random.layers = 3\n",
        &[("agents.b.model", "give both the same")],
    );
    with(past, "lora = {}\n", &[("agents.b.lora", "give both the same")]);
    with(
        past,
        "engine = { kind = \"dyad\", urls = [\"http://127.0.0.1:8101\"] }\n",
        &[("agents.b.engine.kind", "must be \"embedded\"")],
    );
}

#[test]
fn renewals_follow_from_the_other_agents_steps() {
    let past = crate::PastConfig {
        of: crate::AgentName::new("a").unwrap(),
        every: 10,
        keep: 3,
    };
    assert_eq!([0, 9, 10, 29, 30].map(|step| past.renewal(step)), [0, 0, 1, 2, 3]);
    assert_eq!(past.step(3), 30);
    // With keep = 3 the initial policy is not drawn at renewal 3 or later.
    assert_eq!([0, 1, 2, 3, 4].map(|renewal| past.earliest(renewal)), [0, 0, 0, 1, 2]);
}

/// Without the check, `win_fixed` would count an opponent that changes.
#[test]
fn opponent_with_a_past_must_be_listed_as_renewing() {
    let game = |renewing: &str, past: &str, expected: &[(&str, &str)]| {
        let kind = format!(
            "kind = \"adversarial\"\nparams = {{ opponents = {{ listener = [\"speaker\"] }}, renewing = {renewing} }}"
        );
        let b = format!("[agents.b]\n{past}train.enabled = false");
        let changes = [
            ("kind = \"signal\"", kind.as_str()),
            ("speaker = \"a\", listener = \"b\"", "listener = \"a\", speaker = \"b\""),
            ("[agents.b]\ntrain.batch_groups = 32", b.as_str()),
            ("[agents.a]", "[agents.a]\ntrain.checkpoint_every = 5"),
        ];
        expect(&changes, expected);
    };
    let past = "past = { of = \"a\", every = 5 }\n";
    game("[\"speaker\"]", past, &[]);
    game("[]", "", &[]);
    game(
        "[]",
        past,
        &[("workflow.params.renewing", "write renewing = [\"speaker\"]")],
    );
    game("[\"speaker\"]", "", &[("workflow.params.renewing", "never changes")]);
}

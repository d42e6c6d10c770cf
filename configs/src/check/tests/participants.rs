//! Tests of remote participants, judges and the sampling of roles.

use super::{expect, problems};

#[test]
fn wrong_participants_judges_and_role_sampling_are_rejected() {
    let good = r#"
[graders.remote]
kind = "remote:judge-1"
[graders.model]
kind = "judge"
timeout = "60s"
missing = "drop"
judge = { url = "https://host/v1", model = "m", scale = [0, 10] }
[workflow.sampling.speaker]
temperature = 0.7
max_new_tokens = 8
max_context = 9
[defaults.agent]
"#;
    let with = |from: &str, to: &str| {
        let good = good.replacen(from, to, 1);
        problems(&[("[defaults.agent]", &good)])
    };
    assert_eq!(with("", ""), Vec::<String>::new());
    assert_eq!(
        with("timeout = \"60s\"", ""),
        Vec::<String>::new(),
        "a judge has time by default"
    );
    for (from, to, begins, says) in [
        ("remote:judge-1", "remote:", "graders.remote.kind", "is not a name"),
        ("remote:judge-1", "remote:a.b", "graders.remote.kind", "is not a name"),
        (
            "timeout = \"60s\"",
            "timeout = \"2s\"",
            "graders.model.timeout",
            "needs time",
        ),
        ("judge = {", "# judge = {", "graders.model.judge", "is missing"),
        ("https://host", "ftp://host", "graders.model.judge.url", "up to /v1"),
        (
            "https://host",
            "https://key@host",
            "graders.model.judge.url",
            "a key goes into DYAD_JUDGE_KEY",
        ),
        ("[0, 10]", "[10, 0]", "graders.model.judge.scale", "[0, 10]"),
        (
            "model = \"m\"",
            "model = \"m\", key = \"HOME\"",
            "graders.model.judge.key",
            "DYAD_JUDGE_KEY",
        ),
        (
            "model = \"m\"",
            "model = \"m\", tries = 0",
            "graders.model.judge.tries",
            "1 or more",
        ),
        ("kind = \"judge\"", "kind = \"exact\"", "graders.model", "remove it"),
        (
            "temperature = 0.7",
            "temperature = 0.0",
            "workflow.sampling.speaker.temperature",
            "above 0",
        ),
        (
            "temperature = 0.7",
            "temperature = 0.009",
            "workflow.sampling.speaker.temperature",
            "is 0.009: logits are divided by it, and below 0.01 they overflow; write 0.01 or more",
        ),
        (
            "model = \"m\"",
            "model = \"m\", temperature = 1e-38",
            "graders.model.judge.temperature",
            "is 1e-38: logits are divided by it",
        ),
        (
            "max_new_tokens = 8",
            "max_new_tokens = 9999",
            "workflow.sampling.speaker.max_new_tokens",
            "from 1 to",
        ),
        (
            "max_context = 9",
            "max_context = 8",
            "workflow.sampling.speaker.max_context",
            "no room for a prompt",
        ),
        (
            "max_context = 9",
            "max_context = 513",
            "workflow.sampling.speaker.max_context",
            "more than the 512",
        ),
        (
            "sampling.speaker",
            "sampling.unknown",
            "workflow.sampling.unknown",
            "not a role",
        ),
    ] {
        let found = with(from, to);
        assert!(
            found
                .iter()
                .any(|problem| problem.starts_with(begins) && problem.contains(says)),
            "{to}: {found:?}"
        );
    }
}

#[test]
fn take_needs_the_integer_grader() {
    let grader = "[graders.answer]\nkind = \"exact\"";
    let of = |kind: &str, take: &str| format!("[graders.answer]\nkind = \"{kind}\"\ntake = \"{take}\"");
    for (kind, take) in [("integer", "first"), ("integer", "last"), ("math", "last")] {
        expect(&[(grader, &of(kind, take))], &[]);
    }
    for kind in ["exact", "gsm8k", "math", "f1", "process:mine.py", "remote:judge-1"] {
        expect(
            &[(grader, &of(kind, "first"))],
            &[("graders.answer.take", "kind = \"integer\"")],
        );
    }
    let unknown = problems(&[(grader, &of("integer", "middle"))]);
    assert!(
        unknown.len() == 1 && unknown[0].starts_with("graders.answer.take"),
        "{unknown:?}"
    );
}

#[test]
fn judge_agent_must_exist_and_be_frozen_if_it_only_judges() {
    let with = |judge: &str, agent: &str| {
        let text = format!(
            "[graders.model]\nkind = \"judge\"\njudge = {{ {judge} }}\n[agents.c]\n{agent}\n[defaults.agent]\n"
        );
        problems(&[("[defaults.agent]", &text)])
    };
    assert_eq!(with("agent = \"c\"", "train.enabled = false"), [""; 0]);
    for (judge, agent, begins, says) in [
        (
            "agent = \"d\"",
            "train.enabled = false",
            "graders.model.judge.agent",
            "no [agents.d]",
        ),
        ("agent = \"c\"", "", "agents.c.train.enabled", "only judges"),
        (
            "agent = \"c\", url = \"http://127.0.0.1/v1\"",
            "train.enabled = false",
            "graders.model.judge.url",
            "remove it",
        ),
        (
            "agent = \"c\", model = \"m\"",
            "train.enabled = false",
            "graders.model.judge.model",
            "remove it",
        ),
        (
            "max_tokens = 5",
            "train.enabled = false",
            "graders.model.judge.url",
            "agent = \"NAME\"",
        ),
    ] {
        let found = with(judge, agent);
        assert!(
            found
                .iter()
                .any(|problem| problem.starts_with(begins) && problem.contains(says)),
            "{judge}: {found:?}"
        );
    }
}

//! Rules for graders that are models.

use std::time::Duration;

use super::report::Report;
use super::sampling_rules::{OR_GREEDY, is_too_cold, too_cold};
use crate::{AgentName, GraderConfig, JUDGE, JUDGE_KEY, JudgeConfig, Missing, PROCESS, REMOTE, RunConfig};

/// Least time in which a model can answer.
const LEAST_TIME: Duration = Duration::from_secs(5);

/// Checks `missing` and the judge of a grader.
pub(super) fn judge(config: &RunConfig, name: &str, grader: &GraderConfig, report: &mut Report) {
    let path = |key: &str| format!("graders.{name}.{key}");
    let asked = grader.kind == JUDGE || grader.kind.starts_with(PROCESS) || grader.kind.starts_with(REMOTE);
    report.when(
        grader.missing != Missing::Retry && !asked,
        path("missing"),
        &[&path("kind")],
        "is for graders that may fail to answer (judge, process:FILE, remote:NAME): remove it",
    );
    let Some(judge) = &grader.judge else {
        report.when(
            grader.kind == JUDGE,
            path("judge"),
            &[],
            "is missing: write judge = { url = \"http://127.0.0.1:8001/v1\", model = \"NAME\" }",
        );
        return;
    };
    report.when(
        grader.kind != JUDGE,
        path("judge"),
        &[&path("kind")],
        format!("is for kind = {JUDGE:?}: remove it, or write that kind"),
    );
    match &judge.agent {
        Some(agent) => of_agent(config, agent, judge, (&path, &mut *report)),
        None => of_server(grader, judge, (&path, &mut *report)),
    }
    report.when(
        judge.parts.is_empty()
            || judge
                .parts
                .iter()
                .any(|(part, weight)| part.is_empty() || !weight.is_finite()),
        path("judge.parts"),
        &[],
        "has an empty name or a weight that is not finite: write for example { score = 1.0 }",
    );
    let [low, high] = judge.scale;
    report.when(
        !(low.is_finite() && high.is_finite() && low < high),
        path("judge.scale"),
        &[],
        "is not a range: write the least and the greatest value, for example [0, 10]",
    );
    report.when(
        judge.max_tokens == 0 || judge.tries == 0,
        path(if judge.tries == 0 {
            "judge.tries"
        } else {
            "judge.max_tokens"
        }),
        &[],
        "is 0: write 1 or more",
    );
    report.when(
        !(judge.temperature.is_finite() && judge.temperature >= 0.0),
        path("judge.temperature"),
        &[],
        "is not a temperature: write 0.0 or more",
    );
    report.when(
        is_too_cold(judge.temperature),
        path("judge.temperature"),
        &[],
        too_cold(judge.temperature, OR_GREEDY),
    );
}

/// Checks a judge behind a server.
fn of_server(grader: &GraderConfig, judge: &JudgeConfig, (path, report): (&dyn Fn(&str) -> String, &mut Report)) {
    report.when(
        grader.timeout.0 < LEAST_TIME,
        path("timeout"),
        &[],
        format!(
            "is {}: a model needs time; write \"5s\" or more, for example \"60s\"",
            grader.timeout
        ),
    );
    let url = &judge.url;
    report.when(
        !(url.starts_with("http://") || url.starts_with("https://")) || url.contains('@'),
        path("judge.url"),
        &[],
        format!(
            "is not a URL of a server: write it up to /v1, for example \"https://host/v1\" (a \
             key goes into {JUDGE_KEY}), or agent = \"NAME\" for an agent of the run"
        ),
    );
    report.when(
        judge.model.is_empty(),
        path("judge.model"),
        &[],
        "is empty: write the model's name on the server",
    );
    report.when(
        !judge.key.starts_with(JUDGE_KEY),
        path("judge.key"),
        &[],
        format!(
            "is {:?}: the variable's name must begin with {JUDGE_KEY}, so that programs cannot read it",
            judge.key
        ),
    );
}

/// Checks a judge that is an agent of the run.
fn of_agent(
    config: &RunConfig,
    agent: &AgentName,
    judge: &JudgeConfig,
    (path, report): (&dyn Fn(&str) -> String, &mut Report),
) {
    report.when(
        !config.agents.contains_key(agent),
        path("judge.agent"),
        &["agents"],
        format!("there is no [agents.{agent}]"),
    );
    for (key, given) in [
        ("url", !judge.url.is_empty()),
        ("model", !judge.model.is_empty()),
        ("key", judge.key != JUDGE_KEY),
    ] {
        let key = format!("judge.{key}");
        report.when(
            given,
            path(&key),
            &[&path("judge.agent")],
            "is for a server: remove it, or remove agent",
        );
    }
}

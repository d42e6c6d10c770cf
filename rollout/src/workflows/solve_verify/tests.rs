//! Every branch of `solve-verify`, in both profiles.

use super::*;
use crate::workflow::testing::{any_events, check_total, config, event, graders, problems, task};
use proptest::prelude::*;

fn workflow(profile: &str, params: &str) -> SolveVerify {
    let mut config = config("solve-verify", &["solver", "verifier", "retry"], params);
    config.profile = profile.into();
    SolveVerify::new(&config, &graders("integer")).unwrap()
}

type Parts = Vec<(String, Vec<(&'static str, f32)>)>;

fn parts(outcome: &Outcome) -> Parts {
    let parts = |r: &SeatReward| r.parts.iter().map(|p| (p.name, p.value)).collect();
    outcome.rewards.iter().map(|r| (r.role.to_string(), parts(r))).collect()
}

fn done(workflow: &SolveVerify, texts: [Option<&str>; 3]) -> Outcome {
    let roles = ["solver", "verifier", "retry"];
    let events: Vec<Event> = roles
        .iter()
        .zip(texts)
        .filter_map(|(r, t)| Some(event(r, 0, t?)))
        .collect();
    match workflow.step(&task("2+3=", 5.into()), 0, &events) {
        Step::Done(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

/// (first, verdict, retry), then s1, s2, verdict right, gain.
const BRANCHES: [(&str, &str, Option<&str>, [f32; 4]); 8] = [
    ("5", "approve", None, [1.0, 0.0, 1.0, 0.0]),
    ("4", "approve", None, [0.0, 0.0, 0.0, 0.0]),
    ("4", "reject", Some("5"), [0.0, 1.0, 1.0, 1.0]),
    ("4", "reject", Some("6"), [0.0, 0.0, 1.0, 0.0]),
    ("5", "reject", Some("5"), [1.0, 1.0, 0.0, 0.0]),
    ("5", "reject", Some("4"), [1.0, 0.0, 0.0, -1.0]),
    ("5", "well", None, [1.0, 0.0, 0.0, 0.0]),
    ("4", "approve, no, reject", None, [0.0, 0.0, 0.0, 0.0]),
];

#[test]
fn every_branch_earns_what_the_table_says() {
    for (first, check, retry, [s1, s2, right, gain]) in BRANCHES {
        let texts = [Some(first), Some(check), retry];
        let solver = ("solver".to_owned(), vec![("correct", s1)]);
        let mut dyad = vec![
            solver.clone(),
            ("verifier".into(), vec![("verdict", right), ("gain", gain)]),
        ];
        let mut astraflow = vec![solver, ("verifier".into(), vec![("verdict", right)])];
        if retry.is_some() {
            dyad.push(("retry".into(), vec![("correct", s2), ("gain", gain)]));
            astraflow.push(("retry".into(), vec![("correct", s2)]));
        }
        let outcome = done(&workflow("dyad", ""), texts);
        assert_eq!(parts(&outcome), dyad, "{texts:?}");
        assert_eq!(parts(&done(&workflow("astraflow", ""), texts)), astraflow, "{texts:?}");
        let metrics: BTreeMap<_, _> = outcome.metrics.into_iter().collect();
        let last = if retry.is_some() { s2 } else { s1 };
        let expected = [
            f64::from(last),
            s1.into(),
            right.into(),
            f64::from(u8::from(retry.is_some())),
        ];
        let found = ["success", "solver_first", "verifier_right", "retry_rate"].map(|name| metrics[name]);
        assert_eq!(found, expected, "{texts:?}");
        assert_eq!(metrics["approve_rate"], 1.0 - metrics["retry_rate"]);
    }
}

#[test]
fn the_profiles_differ_in_which_tag_counts() {
    let texts = [
        Some("4"),
        Some("<verify>approve</verify> <verify>reject</verify>"),
        Some("5"),
    ];
    assert_eq!(done(&workflow("dyad", ""), texts).rewards.len(), 3);
    assert_eq!(done(&workflow("astraflow", ""), texts).rewards.len(), 2);
}

fn prompt(workflow: &SolveVerify, events: &[Event]) -> String {
    let problem = "2+3=\nPlease reason step by step, and put your final answer within \\boxed{}.";
    match workflow.step(&task(problem, 5.into()), 0, events) {
        Step::Ask(asks) => asks[0].messages.iter().map(|m| m.content.as_str()).collect(),
        _ => panic!(),
    }
}

#[test]
fn each_role_sees_what_it_may() {
    let events = [event("solver", 0, "FIRST"), event("verifier", 0, "CRITIQUE reject")];
    for (profile, first_in_retry) in [("dyad", true), ("astraflow", false)] {
        let workflow = workflow(profile, "");
        let [solver, verifier, retry] = [0, 1, 2].map(|n| prompt(&workflow, &events[..n]));
        assert!([&solver, &verifier, &retry].iter().all(|p| p.contains("2+3=")));
        assert!(verifier.contains("FIRST") && retry.contains("CRITIQUE"));
        assert_eq!(retry.contains("FIRST"), first_in_retry);
        assert_eq!(solver.contains("Please reason"), profile == "dyad", "{solver}");
    }
    let short = workflow("dyad", "prompts = \"short\"");
    assert_eq!(short.verifier_prompt(&task("2+3=", 5.into()), "6")[0].content, "2+3=6?");
}

#[test]
fn messages_before_the_problem_are_kept() {
    let mut task = task("", 5.into());
    let messages = vec![Message::system("be brief"), Message::user("2+3=")];
    task.prompt = broker::protocol::task::Prompt::Messages(messages);
    let prompt = workflow("dyad", "prompts = \"short\"").solver_prompt(&task);
    assert_eq!(prompt, [Message::system("be brief"), Message::user("2+3=")]);
    assert_eq!(workflow("astraflow", "").solver_prompt(&task).len(), 1);
}

#[test]
fn what_is_wrong_is_named() {
    let mut config = config(
        "solve-verify",
        &["solver", "verifier"],
        "prompts = \"tiny\"\ngrader = \"strict\"",
    );
    config.profile = "astra".into();
    let found = problems(SolveVerify::new(&config, &graders("integer")).map(|_| ()));
    assert_eq!(
        found,
        [
            "graders.strict",
            "workflow.params.prompts",
            "workflow.profile",
            "workflow.roles.retry"
        ]
    );
    config.params = toml::Table::new();
    let found = problems(SolveVerify::new(&config, &graders("vibes")).map(|_| ()));
    assert_eq!(
        found,
        ["graders.correct.kind", "workflow.profile", "workflow.roles.retry"]
    );
    let label = workflow("dyad", "").check_task(&task("2+3=", "five".into()));
    assert!(label.unwrap_err().contains("whole number"));
}

proptest! {
    #[test]
    fn any_list_of_events_is_answered(events in any_events(), astraflow: bool) {
        let workflow = workflow(if astraflow { "astraflow" } else { "dyad" }, "");
        check_total(&workflow, &task("2+3=", 5.into()), &events)?;
    }
}

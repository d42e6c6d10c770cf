//! Agents that judge are asked like other agents, and a missing grade is never a 0.

use broker::protocol::failure::Failure;
use std::collections::BTreeMap;

use broker::protocol::turn::{Generation, TurnOutcome, VersionSpan};
use configs::{AgentName, JudgeConfig};

use super::super::program::TOMBSTONE;
use super::super::testing::{config, event, task};
use super::super::unanswered::{said, unanswered_by};
use super::super::{Workflow, player};
use super::*;
use crate::group::{GroupRun, MemberEnd, RunSpec};
use crate::workflows::build;

/// `solo`, graded by the agent `b`.
fn judged(missing: Missing, tries: u32) -> (configs::WorkflowConfig, Arc<dyn Workflow>) {
    let judge: JudgeConfig = serde_json::from_value(serde_json::json!({
        "agent": "b", "scale": [0, 10], "tries": tries, "max_tokens": 20, "temperature": 0.5,
    }))
    .unwrap();
    let grader = GraderConfig {
        missing,
        judge: Some(judge),
        ..GraderConfig::of(JUDGE)
    };
    let config = config("solo", &["solver"], "prompts = \"short\"");
    let graders = BTreeMap::from([("correct".to_owned(), grader)]);
    let workflow = build(&config, &graders, &BTreeMap::new()).unwrap_or_else(|found| panic!("{found:?}"));
    (config, workflow)
}

fn grade(turn: u16, text: &str) -> Event {
    Event {
        turn,
        ..event("grade-solver", 0, text)
    }
}

fn step(workflow: &Arc<dyn Workflow>, grades: &[&str]) -> Step {
    let answer = event("solver", 0, "it is 5");
    let grades = grades.iter().enumerate().map(|(turn, text)| grade(turn as u16, text));
    workflow.step(
        &task("2+3=", 5.into()),
        1,
        &std::iter::once(answer).chain(grades).collect::<Vec<_>>(),
    )
}

#[test]
fn an_agent_is_asked_as_agents_are_and_its_number_is_the_reward() {
    let (config, workflow) = judged(Missing::Retry, 2);
    let Step::Ask(asks) = step(&workflow, &[]) else {
        panic!()
    };
    let [ask] = asks.as_slice() else { panic!("{asks:?}") };
    assert_eq!(
        (ask.role.as_str(), ask.turn, ask.max_new_tokens),
        ("grade-solver", 0, Some(20))
    );
    let prompt = &ask.messages[0].content;
    assert!(
        prompt.contains("it is 5") && prompt.contains("from 0.0 to 10.0"),
        "{prompt}"
    );
    let judge = player(&config, &*workflow, &ask.role).unwrap();
    assert_eq!(
        (judge.agent, judge.temperature),
        (AgentName::new("b").unwrap(), Some(0.5))
    );
    let solver = player(&config, &*workflow, &RoleName::new("solver").unwrap()).unwrap();
    assert_eq!((solver.agent.as_str(), solver.temperature), ("a", None));
    let Step::Done(outcome) = step(&workflow, &["I say {\"score\": 7.5}"]) else {
        panic!()
    };
    assert_eq!(outcome.rewards.len(), 1, "no agent is trained on grades");
    assert_eq!(outcome.rewards[0].parts[0].value, 0.75);
}

#[test]
fn words_without_a_number_are_retried_and_never_a_zero() {
    let (_, workflow) = judged(Missing::Retry, 2);
    let Step::Ask(asks) = step(&workflow, &["good"]) else {
        panic!()
    };
    let [ask] = asks.as_slice() else { panic!("{asks:?}") };
    assert_eq!((ask.role.as_str(), ask.turn), ("grade-solver", 1));
    assert!(ask.messages[0].content.contains("cannot be used"), "{asks:?}");
    let Step::Done(outcome) = step(&workflow, &["good", "{\"score\": 10}"]) else {
        panic!()
    };
    assert_eq!(outcome.rewards[0].parts[0].value, 1.0);
    let bad = ["good", "{\"score\": 11}"];
    for missing in [Missing::Retry, Missing::Drop] {
        let Step::Fail(reason) = step(&judged(missing, 2).1, &bad) else {
            panic!()
        };
        assert!(
            reason.contains("grade-solver") && reason.contains("after 2 tries"),
            "{reason}"
        );
    }
    let Step::Done(outcome) = step(&judged(Missing::Tombstone, 2).1, &bad) else {
        panic!()
    };
    assert!(outcome.is_ungraded());
}

fn spoken() -> Generation {
    Generation {
        prompt_ids: vec![1],
        output_ids: vec![2],
        logprobs: vec![-0.5],
        spans: vec![VersionSpan {
            version: Default::default(),
            start: 0,
            end: 1,
        }],
        ..said("it is 5".into())
    }
}

/// Plays one conversation in which the judge's turn fails `times` times, each time in a way that
/// allows a retry; it has two tries.
fn failing(missing: Missing, times: usize) -> GroupRun {
    let (config, workflow) = judged(missing, 2);
    let mut run = GroupRun::new(RunSpec {
        workflow: workflow.clone(),
        task: Arc::new(task("2+3=", 5.into())),
        task_id: "t".into(),
        run_seed: 1,
        group_size: 1,
        retries: 2,
        min_valid: 1,
    });
    let solver = run.take_wanted().remove(0).key;
    let again = unanswered_by(&config, &*workflow, &solver.role, Failure::engine("x"), true, true);
    assert!(matches!(again, TurnOutcome::Failed { retry: true, .. }), "{again:?}");
    run.on_result(solver, spoken()).unwrap();
    for _ in 0..times {
        let judge = run.take_wanted().remove(0).key;
        assert_eq!(judge.role.as_str(), "grade-solver");
        let last = run.last_try(&judge).unwrap();
        match unanswered_by(&config, &*workflow, &judge.role, Failure::engine("x"), true, last) {
            TurnOutcome::Done(made) => run.on_result(judge, made).unwrap(),
            TurnOutcome::Failed { failure, retry } => {
                run.on_failure(&judge, &failure, retry);
            }
        }
    }
    run
}

#[test]
fn a_failed_turn_of_a_judge_is_a_missing_grade_never_a_zero() {
    for missing in [Missing::Retry, Missing::Tombstone] {
        let again = failing(missing, 1).take_wanted();
        assert_eq!(again.len(), 1, "it is asked again");
    }
    let ended = |missing, times| failing(missing, times).finish().remove(0);
    assert!(matches!(ended(Missing::Drop, 1), MemberEnd::Failed { failure, .. } if failure == Failure::engine("x")));
    let MemberEnd::Ended { outcome, turns } = ended(Missing::Tombstone, 2) else {
        panic!()
    };
    assert!(outcome.is_ungraded() && turns.len() == 2, "{outcome:?}");
}

#[test]
fn what_a_judge_says_in_words_is_no_missing_grade() {
    let (_, workflow) = judged(Missing::Tombstone, 2);
    let Step::Ask(asks) = step(&workflow, &[TOMBSTONE]) else {
        panic!("it has tokens and no number, so it gets a retry")
    };
    assert_eq!(asks[0].turn, 1);
}

/// Plays a conversation of right answers, each of which a program grades with `reward`.
fn graded_by_program(kind: &str, roles: &[&str], params: &str, reward: f64) -> Outcome {
    let file = tempfile::Builder::new().suffix(".py").tempfile().unwrap();
    let mut graders = BTreeMap::new();
    let program = GraderConfig::of(&format!("process:{}", file.path().display()));
    graders.insert("correct".to_owned(), program);
    let workflow = build(&config(kind, roles, params), &graders, &BTreeMap::new()).unwrap();
    let mut events = Vec::new();
    loop {
        let asks = match workflow.step(&task("2+3=", 5.into()), 1, &events) {
            Step::Ask(asks) => asks,
            Step::Done(outcome) => return outcome,
            Step::Fail(reason) => panic!("{reason}"),
        };
        for ask in asks {
            let text = match ask.role.as_str() {
                graded if graded.starts_with(GRADE) => format!("{{\"reward\":{reward}}}"),
                "verifier" => "<verify>reject</verify>".to_owned(),
                "selector" => "Judgment: 1".to_owned(),
                _ => "\\boxed{5}".to_owned(),
            };
            events.push(event(ask.role.as_str(), ask.seat, &text));
        }
    }
}

#[test]
fn metrics_stay_shares_where_a_program_rewards_outside_0_to_1() {
    for (kind, roles, params) in [
        ("solo", &["solver"][..], ""),
        ("solve-verify", &["solver", "verifier", "retry"], ""),
        (
            "solve-rewrite-select",
            &["solver", "rewriter", "selector"],
            "num_parallel = 2",
        ),
        ("sequential", &["first", "second"], ""),
        (
            "adversarial",
            &["thinker", "adversary", "defender"],
            "game = \"attack\"",
        ),
    ] {
        for (reward, success) in [(1.7, 1.0), (-0.5, 0.0), (0.25, 0.25)] {
            let outcome = graded_by_program(kind, roles, params, reward);
            let metrics: BTreeMap<_, _> = outcome.metrics.iter().copied().collect();
            assert_eq!(metrics["success"], success, "{kind}: {metrics:?}");
            let shares = metrics.values().all(|value| (0.0..=1.0).contains(value));
            assert!(shares, "{kind}: {metrics:?}");
            let mut parts = outcome.rewards.iter().flat_map(|seat| &seat.parts);
            assert!(parts.any(|part| part.value == reward as f32), "{kind}: {outcome:?}");
        }
    }
}

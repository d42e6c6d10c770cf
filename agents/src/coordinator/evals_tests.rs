//! Majorities, floors, and a coordinator that comes after another and makes no evaluation again.

use broker::RoleName;
use broker::ids::WeightVersion;
use broker::protocol::turn::{Finish, LogProbs};
use rollout::workflow::Outcome;

use super::*;
use crate::folder::tests::config_in;

fn evaluation(step: u64, last: bool, success: f64) -> Evaluation {
    let values = BTreeMap::from([("success".to_owned(), BTreeMap::from([("t".to_owned(), success)]))]);
    Evaluation {
        step,
        last,
        values,
        ..Evaluation::default()
    }
}

fn open(folder: &RunFolder, config: &RunConfig) -> Evals {
    Evals::open(config, folder, "coordinator-new").unwrap()
}

#[test]
fn what_was_evaluated_before_a_restart_is_not_evaluated_again() {
    let base = tempfile::tempdir().unwrap();
    let mut config = config_in(base.path());
    (config.eval.every, config.eval.stop_at) = (10, Some(0.9));
    config.eval.source = Some("generator:signal".into());
    let folder = RunFolder::create(base.path(), &config, None).unwrap();
    let before = Appender::open(&folder.evals("coordinator-old")).unwrap();
    let write = |one: Evaluation| {
        before.line(serde_json::to_vec(&one).unwrap());
        before.flush();
    };
    assert!(open(&folder, &config).due(0), "nothing was evaluated");
    assert_eq!(open(&folder, &config).number(0), (0, None));
    write(evaluation(0, false, 0.1));
    write(evaluation(20, false, 0.2));
    let evals = open(&folder, &config);
    assert!(!evals.due(20) && !evals.due(29) && evals.due(30));
    assert_eq!(
        evals.number(45),
        (4, Some(2)),
        "which suites are due goes on from there"
    );
    assert!(evals.last_is_due() && !evals.reached);
    write(evaluation(30, false, 0.95));
    assert!(open(&folder, &config).reached, "the goal stays reached");
    write(evaluation(30, true, 0.95));
    assert!(!open(&folder, &config).last_is_due());
}

fn said(text: &str, success: f64) -> MemberEnd {
    let key = TurnKey {
        member: 0,
        role: RoleName::new("solver").unwrap(),
        seat: 0,
        turn: 0,
    };
    let made = Generation {
        kept: 0,
        prompt_ids: vec![1],
        output_ids: vec![2],
        logprobs: vec![0.0],
        logprobs_of: LogProbs::Sampled,
        spans: Vec::new(),
        oldest_kv: WeightVersion::default(),
        temperature: 1.0,
        finish: Finish::Stop,
        text: text.into(),
    };
    MemberEnd::Ended {
        outcome: Outcome {
            rewards: Vec::new(),
            metrics: vec![("success", success)],
        },
        turns: vec![(key, made)],
    }
}

#[test]
fn figures_below_their_floor_are_found() {
    let values = |value: f64| BTreeMap::from([("t".to_owned(), value)]);
    let found = Evaluation {
        values: BTreeMap::from([
            ("win_fixed".to_owned(), values(0.25)),
            ("success".to_owned(), values(0.5)),
        ]),
        ..Evaluation::default()
    };
    let floors = |list: &[(&str, f64)]| list.iter().map(|(name, floor)| ((*name).to_owned(), *floor)).collect();
    let wanted = floors(&[("win_fixed", 0.3), ("success", 0.5), ("absent", 1.0)]);
    assert_eq!(below_floor(&found, &wanted), [("win_fixed", 0.25, 0.3)]);
    assert_eq!(below_floor(&found, &BTreeMap::new()), []);
}

#[test]
fn the_answer_of_the_most_counts() {
    let lost = || MemberEnd::Failed {
        reason: "engine".into(),
    };
    for (votes, success) in [
        (vec![said("5", 1.0), said("6", 0.0), said(" 6", 0.0)], Some(0.0)),
        (
            vec![said("6", 0.0), said("5", 1.0), said("7", 0.0), said("5", 1.0)],
            Some(1.0),
        ),
        (vec![said("6", 0.0), said("5", 1.0)], Some(0.0)),
        (vec![lost(), said("5", 1.0)], Some(1.0)),
        (vec![lost()], None),
    ] {
        assert_eq!(majority(&votes), success);
    }
}

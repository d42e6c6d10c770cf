//! A coordinator that comes after another makes no evaluation again.

use super::*;
use crate::run_folder::tests::config_in;

fn evaluation(step: u64, last: bool, success: f64) -> Evaluation {
    let values = BTreeMap::from([("success".to_owned(), BTreeMap::from([("t".to_owned(), success)]))]);
    Evaluation {
        step,
        last,
        values,
        ..Evaluation::default()
    }
}

fn open(folder: &RunFolder, config: &RunConfig) -> Evaluations {
    Evaluations::open(config, folder, "coordinator-new").unwrap()
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
    assert!(open(&folder, &config).is_due(0), "nothing was evaluated");
    assert_eq!(open(&folder, &config).number(0), (0, None));
    write(evaluation(0, false, 0.1));
    write(evaluation(20, false, 0.2));
    let evals = open(&folder, &config);
    assert!(!evals.is_due(20) && !evals.is_due(29) && evals.is_due(30));
    assert_eq!(
        evals.number(45),
        (4, Some(2)),
        "which suites are due goes on from there"
    );
    assert!(evals.last_is_due() && evals.reached.is_none());
    write(evaluation(30, false, 0.95));
    assert!(open(&folder, &config).reached.is_some(), "the goal stays reached");
    write(evaluation(30, true, 0.95));
    assert!(open(&folder, &config).last_is_due(), "the run goes on for more steps");
    folder.set_ended("run.train_steps reached at step 30").unwrap();
    assert!(!open(&folder, &config).last_is_due());
}

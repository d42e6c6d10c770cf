//! An agent that plays with another agent's past, in a run that is killed and resumed.

use std::time::Duration;

use tests::program::Program;
use tests::small::Small;
use tests::trace::{audit, batches, final_digest};

use crate::pinned::{evaluated, evaluations};
use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);
const STEPS: u64 = 24;

/// Writes a game in which the listener is a past speaker, drawn again at every fourth step.
fn written(program: &Program, config: Small) -> String {
    config
        .set("run.train_steps", STEPS as i64)
        .set("agents.b.train.enabled", false)
        .set("agents.b.past.of", "a")
        .set("agents.b.past.every", 4)
        .set("agents.b.past.keep", 3)
        .save(program)
}

#[test]
fn a_killed_run_meets_the_same_past_and_has_the_same_weights() {
    let (clean, killed) = (program(), program());
    let clean_run = clean.play("run", &written(&clean, Small::new()), &[]);
    let mut running = killed.launch("run", &written(&killed, Small::new()), &[]);
    let run = killed.run_folder();
    let folder = run.to_str().unwrap().to_owned();
    for kill_after in [5, 9, 14] {
        running.kill_when("some batches", PATIENCE, || batches(&run, "a") >= kill_after);
        running = killed.start(&["run", "--resume", &folder]);
    }
    running.finish(PATIENCE);
    assert_eq!(final_digest(&run, "a"), final_digest(&clean_run, "a"));
    let audit = audit(&run, "a");
    assert_eq!((audit.counts.trained, audit.twice), (STEPS * 2 * 128, 0), "{audit:?}");
    // The newest three. The last step's folder may be missing, because it races with the end of the
    // run.
    let kept = |step: u64| run.join(format!("past/b/step-{step}")).is_dir();
    assert!(kept(16) && kept(20) && !kept(8) && !kept(0));
}

/// Renewals and evaluations fall on the same steps, and evaluations take longer than a few steps of
/// training would.
#[test]
fn an_asynchronous_evaluation_has_one_version_of_a_past_player() {
    let program = program();
    let evaluated = evaluated(Small::new().set("run.mode", "async"));
    let lines = evaluations(&program.play("run", &written(&program, evaluated), &[]));
    assert!(lines.len() >= 4, "at 0, 4, 8, .. or a little later: {}", lines.len());
    for line in lines {
        let weights = (&line["step"], &line["pinned"], &line["versions"]);
        assert_eq!(line["pinned"], true, "{weights:?}");
        let of_b = line["versions"]["b"].as_array().unwrap();
        assert_eq!(of_b.len(), 1, "{weights:?}");
        let renewal = line["step"].as_u64().unwrap() / 4;
        assert_eq!(
            of_b[0]["lineage"],
            renewal + 1,
            "the due renewal is served: {weights:?}"
        );
    }
}

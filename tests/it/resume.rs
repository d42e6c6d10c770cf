//! A run that is killed and resumed ends with the weights of an undisturbed run.

use std::time::Duration;

use tests::small::Small;
use tests::trace::{audit, batches, final_digest};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);
const STEPS: u64 = 24;

/// A round is the turns of two conversations; the kill may hit any point of it.
#[test]
fn a_run_killed_in_mid_round_ends_with_the_same_weights() {
    let config = Small::new().set("run.train_steps", STEPS as i64);
    let (clean, killed) = (program(), program());
    let clean_run = clean.play("run", &config.save(&clean), &[]);
    let mut running = killed.launch("run", &config.save(&killed), &[]);
    let run = killed.run_folder();
    let folder = run.to_str().unwrap().to_owned();
    for kill_after in [5, 9, 14] {
        // Metrics are written late: the run is further than they show.
        running.kill_when("some batches", PATIENCE, || batches(&run, "a") >= kill_after);
        running = killed.start(&["run", "--resume", &folder]);
    }
    running.finish(PATIENCE);
    for agent in ["a", "b"] {
        assert_eq!(
            final_digest(&run, agent),
            final_digest(&clean_run, agent),
            "agent {agent}"
        );
        let audit = audit(&run, agent);
        let counts = (
            audit.counts.trained,
            audit.counts.reserved,
            audit.counts.ready,
            audit.twice,
        );
        assert_eq!(counts, (STEPS * 2 * 128, 0, 0, 0), "agent {agent}: {audit:?}");
    }
}

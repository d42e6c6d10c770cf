//! A run that is killed and resumed ends with the weights of an undisturbed run.

use std::path::Path;
use std::time::Duration;

use tests::program::{Program, json_lines};
use tests::small::Small;
use tests::trace::{audit, final_digest};

const PATIENCE: Duration = Duration::from_secs(120);
const STEPS: u64 = 24;

fn steps(run: &Path) -> usize {
    let trained = json_lines(&run.join("metrics/a.jsonl"));
    trained.iter().filter(|line| line["kind"] == "train").count()
}

/// A round is the turns of two conversations; the kill may hit any point of it.
#[test]
fn a_run_in_one_process_killed_in_mid_round_ends_with_the_same_weights() {
    let program = |name: &str| {
        let program = Program::new(env!("CARGO_BIN_EXE_dyad-under-test"));
        let home = program.runs().parent().unwrap().to_owned();
        let config = Small::new()
            .set("run.train_steps", STEPS as i64)
            .set("run.folder", program.runs().to_str().unwrap())
            .write(&home.join(format!("{name}.toml")));
        (program, config.to_str().unwrap().to_owned())
    };
    let (clean, config) = program("clean");
    clean.succeed(&["run", &config]);
    let (killed, config) = program("killed");
    let mut running = killed.start(&["run", &config]);
    let run = killed.run_folder();
    let folder = run.to_str().unwrap().to_owned();
    for kill_after in [5, 9, 14] {
        // Metrics are written late: the run is further than they show.
        running.kill_when("some batches", PATIENCE, || steps(&run) >= kill_after);
        running = killed.start(&["run", "--resume", &folder]);
    }
    running.finish(PATIENCE);
    for agent in ["a", "b"] {
        assert_eq!(
            final_digest(&run, agent),
            final_digest(&clean.run_folder(), agent),
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

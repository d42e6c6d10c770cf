//! An agent that plays with another agent's past, in a run that is killed and resumed.

use std::path::Path;
use std::time::Duration;

use tests::program::{Program, json_lines};
use tests::small::Small;
use tests::trace::{audit, final_digest};

use crate::pinned::{evaluated, evaluations};

const PATIENCE: Duration = Duration::from_secs(120);
const STEPS: u64 = 24;

/// Writes the signal game in which the listener is a past speaker, drawn again at every fourth
/// step.
fn config(program: &Program) -> String {
    written(program, Small::new())
}

fn written(program: &Program, config: Small) -> String {
    let home = program.runs().parent().unwrap().to_owned();
    let config = config
        .set("run.train_steps", STEPS as i64)
        .set("run.folder", program.runs().to_str().unwrap())
        .set("agents.b.train.enabled", false)
        .set("agents.b.past.of", "a")
        .set("agents.b.past.every", 4)
        .set("agents.b.past.keep", 3)
        .write(&home.join("past.toml"));
    config.to_str().unwrap().to_owned()
}

fn steps(run: &Path) -> usize {
    let trained = json_lines(&run.join("metrics/a.jsonl"));
    trained.iter().filter(|line| line["kind"] == "train").count()
}

#[test]
fn a_killed_run_meets_the_same_past_and_ends_with_the_same_weights() {
    let program = || Program::new(env!("CARGO_BIN_EXE_dyad-under-test"));
    let (clean, killed) = (program(), program());
    clean.succeed(&["run", &config(&clean)]);
    let mut running = killed.start(&["run", &config(&killed)]);
    let run = killed.run_folder();
    let folder = run.to_str().unwrap().to_owned();
    for kill_after in [5, 9, 14] {
        running.kill_when("some batches", PATIENCE, || steps(&run) >= kill_after);
        running = killed.start(&["run", "--resume", &folder]);
    }
    running.finish(PATIENCE);
    assert_eq!(final_digest(&run, "a"), final_digest(&clean.run_folder(), "a"));
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
fn without_rounds_an_evaluation_is_of_one_version_of_who_plays_with_the_past() {
    let program = Program::new(env!("CARGO_BIN_EXE_dyad-under-test"));
    let evaluated = evaluated(Small::new().set("run.mode", "async"));
    program.succeed(&["run", &written(&program, evaluated)]);
    let lines = evaluations(&program.run_folder());
    assert!(lines.len() >= 4, "at 0, 4, 8, .. or a little later: {}", lines.len());
    for line in lines {
        let told = (&line["step"], &line["pinned"], &line["versions"]);
        assert_eq!(line["pinned"], true, "{told:?}");
        let of_b = line["versions"]["b"].as_array().unwrap();
        assert_eq!(of_b.len(), 1, "{told:?}");
        let renewal = line["step"].as_u64().unwrap() / 4;
        assert_eq!(of_b[0]["lineage"], renewal + 1, "what is due is served: {told:?}");
    }
}

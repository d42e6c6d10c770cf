//! Orders to a live run, and the joint snapshot.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tests::program::{wait_for, wait_until};
use tests::small::Small;
use tests::trace::{audit, batches};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(180);

fn more_steps(run: &Path) {
    let before = batches(run, "a");
    wait_until("more batches", PATIENCE, || batches(run, "a") > before + 2);
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.unwrap().success());
}

#[test]
fn a_run_is_paused_snapshot_gone_on_with_and_drained() {
    let program = program();
    let config = Small::scripted()
        .set("run.train_steps", 1_000_000)
        .set("run.last_batch", "train")
        .set("defaults.agent.train.batch_groups", 3)
        .save(&program);
    let mut running = program.launch("up", &config, &[]);
    let run = program.run_folder();
    let folder = run.to_str().unwrap().to_owned();
    let order = |args: &[&str]| {
        let runs = ["--runs", program.runs().to_str().unwrap()].map(str::to_owned);
        let all: Vec<&str> = args.iter().copied().chain(runs.iter().map(String::as_str)).collect();
        program.succeed(&all)
    };
    more_steps(&run);

    let said = order(&["checkpoint", &folder, "--within", "30s"]);
    let manifest = run.join("snapshots/snapshot-1.json");
    assert!(said.contains("snapshot-1.json"), "{said}");
    let read: Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    for agent in ["a", "b"] {
        let step = read["agents"][agent]["step"].as_u64().unwrap();
        assert!(step > 0 && read["agents"][agent]["sequence"] == step, "{read}");
    }
    more_steps(&run);
    order(&["checkpoint", &folder, "--within", "0s"]);
    assert!(run.join("snapshots/snapshot-2.json").is_file());
    more_steps(&run);
    assert!(order(&["pause", &folder]).contains("paused"));
    let old = program.home().join("old.sqlite");
    let quiet = |steps: usize| {
        std::thread::sleep(Duration::from_millis(500));
        steps
    };
    let held = wait_for("nothing to move", PATIENCE, || {
        let before = quiet(batches(&run, "a"));
        (before == batches(&run, "a")).then_some(before)
    });
    assert_eq!(quiet(held), batches(&run, "a"), "a paused run begins nothing");
    copy(&run.join("buffer/b.sqlite"), &old);
    assert!(order(&["resume", &folder]).contains("resumed"));
    more_steps(&run);

    order(&["drain", &folder, "--wait"]);
    running.finish(PATIENCE);
    for agent in ["a", "b"] {
        let audit = audit(&run, agent);
        let left = (audit.counts.reserved, audit.counts.ready, audit.twice);
        assert_eq!(left, (0, 0, 0), "agent {agent}: {audit:?}");
        assert!(
            audit.counts.discarded.is_empty(),
            "the last batch is trained, short as it is: {audit:?}"
        );
    }
    let too_late = program.output(&["pause", &folder]);
    assert!(!too_late.status.success(), "the run has ended");

    // It resumes where it ended, which ends it at once. A ledger of an earlier time is refused.
    program.succeed(&["up", "--resume", &folder]);
    for file in ["b.sqlite-wal", "b.sqlite-shm"] {
        let _ = std::fs::remove_file(run.join("buffer").join(file));
    }
    std::fs::remove_file(run.join("buffer/b.sqlite")).unwrap();
    let refused = program.output(&["up", "--resume", &folder]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("agent b: its ledger is missing") && said.contains("--repair b"),
        "{said}"
    );
    copy(&old, &run.join("buffer/b.sqlite"));
    let refused = program.output(&["up", "--resume", &folder]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("agent b") && said.contains("one copy"),
        "{said}"
    );
}

/// Two coordinators of a synchronous run would each count their own rounds.
#[test]
fn a_second_coordinator_of_a_synchronous_run_is_refused() {
    let program = program();
    let config = Small::new().set("run.train_steps", 100_000).save(&program);
    let mut running = program.launch("up", &config, &[]);
    let run = program.run_folder();
    more_steps(&run);
    let said = program.fail(2, &["coordinator", "--run", run.to_str().unwrap()]);
    assert!(
        said.contains("coordinates this run already") && said.contains("async"),
        "{said}"
    );
    more_steps(&run);
    assert!(running.running());
}

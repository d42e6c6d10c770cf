//! Faults of a machine: wrong clocks, full disks and damaged files.

use std::process::Command;

use tests::chaos::{GROUP, Shape};
use tests::program::{json_lines, wait_until};
use tests::trace::audit;

use super::*;

/// Each process has another time, and all clocks are stepped twice by two hours.
#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn clocks_that_are_wrong_and_stepped_by_hours_change_nothing() {
    let clocks = tempfile::tempdir().unwrap();
    let library = faketime();
    let path = |label: &str| clocks.path().join(label).to_str().unwrap().to_owned();
    let paths = ["a", "b", "c1", "c2"].map(|label| (label, path(label)));
    let step = |hours: [i64; 4]| {
        for ((_, path), hours) in paths.iter().zip(hours) {
            std::fs::write(path, format!("{:+}\n", hours * 3600)).unwrap();
        }
    };
    step([1, -1, 0, 2]);
    let environment: Vec<(&str, &str, &str)> = paths
        .iter()
        .flat_map(|(label, path)| {
            [
                (*label, "LD_PRELOAD", library.as_str()),
                (*label, "FAKETIME_TIMESTAMP_FILE", path.as_str()),
                (*label, "FAKETIME_NO_CACHE", "1"),
                (*label, "FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ]
        })
        .collect();
    let mut world = World::shaped(
        crate::DYAD,
        Shape {
            environment: &environment,
            ..Shape::default()
        },
    );
    for hours in [[-1, 1, 2, 0], [1, -1, 0, 2]] {
        world.publish(10);
        world.wait_closed(world.published() - 5);
        step(hours);
        world.publish(5);
        world.wait_closed(world.published());
    }
    let hours = ["a", "b"].map(|agent| logged_hours(&world, agent));
    assert!(
        hours.iter().all(|hours| *hours >= 2),
        "the clocks were stepped: {hours:?}"
    );
    world.end_well();
}

/// Returns the library that fakes the time, from Debian's package faketime.
fn faketime() -> String {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let found = libraries.into_iter().find(|library| library.exists());
    let found = found.expect("libfaketime is not installed: tests/setup/machine.sh clients brings it");
    found.to_str().unwrap().to_owned()
}

/// Returns the hours between the earliest and the latest line in a process's log.
fn logged_hours(world: &World, label: &str) -> i64 {
    let lines = json_lines(&world.fleet.run().join(format!("logs/{label}.jsonl")));
    let hour = |line: &serde_json::Value| {
        let time = line["time"].as_str().unwrap();
        let number = |range: std::ops::Range<usize>| time[range].parse::<i64>().unwrap();
        number(8..10) * 24 + number(11..13)
    };
    let hours: Vec<i64> = lines.iter().map(hour).collect();
    // The last day of a month is followed by a first.
    (hours.iter().max().unwrap() - hours.iter().min().unwrap()).min(23)
}

/// No file of agent a may grow beyond its ledger's log. The agent logs that, takes nothing, and
/// continues when there is space.
#[test]
fn a_full_disk_pauses_an_agent() {
    fn limit(pid: u32, size: &str) {
        let sizes = format!("--fsize={size}:unlimited");
        let status = Command::new("prlimit")
            .args(["--pid", &pid.to_string(), &sizes])
            .status();
        assert!(status.unwrap().success());
    }
    let mut world = world(2);
    world.publish(5);
    wait_until("agent a to train its samples", PATIENCE, || {
        audit(world.fleet.run(), "a").counts.trained == 5 * GROUP
    });
    let log = world.fleet.run().join("buffer/a.sqlite-wal");
    let pid = world.fleet.pid("a").unwrap();
    limit(pid, &std::fs::metadata(&log).unwrap().len().to_string());
    let publisher = world.publish_in_background(10);
    wait_until("agent a to report it", PATIENCE, || {
        let log = world.fleet.log("a");
        log.contains("the ledger cannot store") || log.contains("the ledger could not be")
    });
    publisher.join().unwrap();
    assert_eq!(world.closed(), 5, "nothing is taken without a disk");
    limit(pid, "unlimited");
    world.wait_closed(15);
    world.end_well();
}

/// An overwritten ledger is refused with a reason. Rebuilt from the other agent's ledger, the run
/// continues and its audit passes.
#[test]
fn a_damaged_ledger_is_refused_and_rebuilt() {
    let mut world = world(1);
    world.publish(10);
    world.wait_closed(10);
    world.fleet.hold("b");
    let ledger = world.fleet.run().join("buffer/b.sqlite");
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(world.fleet.run().join(format!("buffer/b.sqlite{end}")));
    }
    std::fs::write(
        &ledger,
        "not a database, but long enough to be taken for one at first sight",
    )
    .unwrap();
    world.fleet.release("b");
    world
        .fleet
        .wait_for_log("b", "restore it from a copy, or start a new run", PATIENCE);
    world.fleet.hold("b");
    std::fs::remove_file(&ledger).unwrap();
    let run = world.fleet.run().to_str().unwrap().to_owned();
    let damaged = world.program.output(&["audit", "--run", &run]);
    assert!(!damaged.status.success());
    let text = String::from_utf8_lossy(&damaged.stdout).into_owned();
    assert!(text.contains("dyad audit --repair b"), "{text}");
    let repaired = world.program.succeed(&["audit", "--repair", "b", "--run", &run]);
    assert!(repaired.contains("made the ledger of b"), "{repaired}");
    world.fleet.release("b");
    world.publish(5);
    world.wait_closed(15);
    world.end_well();
}

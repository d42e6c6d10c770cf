//! Named faults, each injected into a run of separate processes over a real RabbitMQ and Redis.
//! Nothing is lost, nothing is counted twice, and the run continues on its own after the fault.

use std::process::Command;
use std::time::Duration;

use tests::chaos::{GROUP, Shape, World, impatient};
use tests::program::{json_lines, wait_for, wait_until};
use tests::proxy::Mode;
use tests::trace::audit;

const PATIENCE: Duration = Duration::from_secs(120);

fn world(coordinators: usize) -> World {
    World::with(crate::DYAD, coordinators, &[])
}

/// A new version is rolled out: every process is stopped and started again in turn, then each
/// server restarts.
#[test]
fn every_service_restarted_in_turn_costs_nothing() {
    let mut world = world(2);
    let mut publisher = world.publish_in_background(60);
    for label in ["a", "c1", "b", "c2"] {
        world.fleet.restart(label, PATIENCE);
        // On a fast machine all is done by now.
        world.wait_closed((world.closed() + 2).min(world.published()));
    }
    publisher.join().unwrap();
    for (label, what) in [("b", "agent is serving"), ("c2", "coordinator is running")] {
        wait_until(&format!("{label} to be there again"), PATIENCE, || {
            world.fleet.log(label).matches(what).count() == 2
        });
    }
    // RabbitMQ 3.10 loses the leader of a quorum queue that was declared in the second before the
    // kill. It recovers after 15 seconds, and another test covers that.
    std::thread::sleep(Duration::from_secs(2));
    publisher = world.publish_in_background(20);
    world.servers.crash_rabbit();
    world.wait_closed((world.closed() + 2).min(world.published()));
    publisher.join().unwrap();
    publisher = world.publish_in_background(20);
    world.servers.crash_redis(true);
    publisher.join().unwrap();
    world.fleet.all_started(2);
    world.end_well();
}

/// Longer than leases, heartbeats and the waits between connection attempts.
/// `DYAD_GONE_SECONDS=300` makes it longer. Waiting processes continue on their own.
#[test]
fn servers_that_are_gone_for_a_while_cost_only_the_while() {
    let mut world = world(2);
    world.publish(40);
    world.wait_closed(4);
    let seconds = std::env::var("DYAD_GONE_SECONDS").map_or(20, |text| text.parse().unwrap());
    world.servers.both_gone_for(Duration::from_secs(seconds));
    let waited = world.wait_closed(40);
    println!(
        "all was done {:.1} s after {seconds} s without servers",
        waited.as_secs_f64()
    );
    world.fleet.all_started(1);
    world.end_well();
}

/// The first signal's release hangs because the store does; the second signal does not wait for it.
#[test]
fn a_second_signal_ends_a_process_at_once() {
    let mut world = world(1);
    let publisher = world.publish_in_background(20);
    world.wait_closed(1);
    world.store.set(Mode::Stall);
    world.fleet.signal("c1", "TERM");
    world
        .fleet
        .wait_for_log("c1", "received a stop signal; releasing open groups", PATIENCE);
    world.fleet.signal("c1", "TERM");
    // An orderly end would be a good one, and no process would be started again.
    wait_until("the coordinator to be started again", PATIENCE, || {
        world.fleet.starts("c1") == 2
    });
    world.store.set(Mode::Pass);
    publisher.join().unwrap();
    world.end_well();
}

/// Each process has another time, and all clocks are stepped twice by two hours.
#[test]
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

/// The broker closes the channel of a consumer that keeps a message for long. The next receiver
/// handles the message.
#[test]
fn a_delivery_held_for_too_long_is_taken_away_and_done_once() {
    let mut world = World::shaped(
        crate::DYAD,
        Shape {
            rabbit: || impatient(3000),
            failpoints: &[("b", "turn.generated=3*off->1*sleep(12000)->off")],
            ..Shape::default()
        },
    );
    world.publish(10);
    world.wait_closed(10);
    let log = std::fs::read_to_string(world.servers.rabbit.log_path()).unwrap();
    assert!(
        log.contains("timed out waiting for delivery acknowledgement"),
        "the broker never lost its patience:\n{log}"
    );
    world.end_well();
}

/// The coordinator dies while it takes several tasks: those already taken are in no ledger yet.
#[test]
fn a_task_outlives_the_coordinator_that_took_it() {
    let points = "task.taken=1*sleep(1000)->kill";
    let mut world = World::with(crate::DYAD, 1, &[("c1", points)]);
    world.publish(5);
    world.wait_closed(5);
    assert_eq!(
        world.fleet.starts("c1"),
        2,
        "it was killed once:\n{}",
        world.fleet.logs()
    );
    world.end_well();
}

/// A call on the generating thread never returns. Heartbeats continue, so no other process would
/// notice.
#[test]
fn an_agent_with_a_hanging_engine_ends_and_restarts() {
    let shape = Shape {
        coordinators: 1,
        failpoints: &[("a", "engine.step=5*off->hang")],
        change: |small| {
            small
                .set("defaults.agent.engine.kind", "embedded")
                .set("defaults.agent.engine.stuck_after", "5s")
        },
        ..Shape::default()
    };
    let mut world = World::shaped(crate::DYAD, shape);
    world.publish(10);
    world.fleet.wait_for_log("a", "failpoint engine.step: Hang", PATIENCE);
    world.wait_closed(10);
    assert_eq!(world.fleet.codes("a"), [Some(70)], "{}", world.fleet.logs());
    assert!(
        world.fleet.log("a").contains("agent a: engine 0 made no step"),
        "{}",
        world.fleet.logs()
    );
    world.end_well();
}

/// A coordinator halted between its decision and its bundles is replaced. Its late bundles count
/// once.
#[test]
fn late_bundles_of_a_replaced_zombie_coordinator_count_once() {
    let points = "group.decided=1*off->stop";
    let mut world = World::with(crate::DYAD, 2, &[("c1", points)]);
    world.publish(20);
    world
        .fleet
        .wait_for_log("c1", "failpoint group.decided: Stop", PATIENCE);
    world.wait_closed(20);
    world.fleet.signal("c1", "CONT");
    let late = wait_for("late bundles to be counted", PATIENCE, || {
        let late: u64 = ["a", "b"]
            .iter()
            .map(|agent| {
                let counts = audit(world.fleet.run(), agent).counts;
                counts.duplicates + counts.other_attempt
            })
            .sum();
        (late > 0).then_some(late)
    });
    println!("{late} late bundles");
    world.end_well();
}

/// An agent cut off for several leases; then its connections work again or are cut.
#[test]
fn an_agent_cut_off_for_longer_than_its_leases_loses_nothing() {
    let mut world = world(2);
    for mode in [Mode::Stall, Mode::HalfOpen, Mode::Refuse] {
        world.publish(5);
        world.link.set(mode);
        if mode == Mode::Refuse {
            world.link.cut();
        }
        world.publish(5);
        std::thread::sleep(Duration::from_secs(7));
        world.link.set(Mode::Pass);
    }
    world.wait_closed(30);
    world.end_well();
}

#[test]
fn streams_that_break_inside_a_frame_are_only_reconnected() {
    let mut world = world(2);
    for after in [1, 300, 5_000] {
        let publisher = world.publish_in_background(5);
        for proxy in [&world.broker, &world.link, &world.store] {
            proxy.set(Mode::Truncate(after));
        }
        std::thread::sleep(Duration::from_secs(2));
        for proxy in [&world.broker, &world.link, &world.store] {
            proxy.set(Mode::Pass);
        }
        publisher.join().unwrap();
    }
    world.wait_closed(15);
    world.end_well();
}

#[test]
fn redis_flushed_in_mid_run_costs_work_and_nothing_else() {
    let mut world = world(2);
    for _ in 0..4 {
        let publisher = world.publish_in_background(5);
        std::thread::sleep(Duration::from_millis(700));
        world.servers.redis_cli(&["FLUSHALL"]);
        world.servers.redis_cli(&["SCRIPT", "FLUSH"]);
        publisher.join().unwrap();
    }
    world.wait_closed(20);
    world.end_well();
}

#[test]
fn a_full_redis_pauses_the_run_and_logs_the_fix() {
    let mut world = world(2);
    world.servers.redis_cli(&["CONFIG", "SET", "maxmemory", "1"]);
    world.publish(5);
    wait_until("a coordinator to complain", PATIENCE, || {
        let logs = [world.fleet.log("c1"), world.fleet.log("c2")].concat();
        logs.contains("raise its maxmemory")
    });
    assert_eq!(world.closed(), 0, "nothing is played without a store");
    world.servers.redis_cli(&["CONFIG", "SET", "maxmemory", "0"]);
    world.wait_closed(5);
    world.end_well();
}

#[test]
fn a_broker_in_memory_alarm_pauses_the_run() {
    let mut world = world(2);
    world.publish(5);
    world.rabbitmqctl(&["set_vm_memory_high_watermark", "absolute", "1"]);
    let publisher = world.publish_in_background(5);
    world
        .fleet
        .wait_for_log("c1", "RabbitMQ accepts no publishes", PATIENCE);
    // Longer than a healthy broker may be silent.
    std::thread::sleep(Duration::from_secs(20));
    world.rabbitmqctl(&["set_vm_memory_high_watermark", "0.6"]);
    publisher.join().unwrap();
    world.wait_closed(10);
    world.fleet.all_started(1);
    world.end_well();
}

/// The messages in the queues are lost. The ledgers have custody of every group and report it to
/// the next coordinator.
#[test]
fn queues_deleted_under_load_are_made_again() {
    let mut world = world(2);
    let publisher = world.publish_in_background(20);
    for queue in ["a.turns", "b.samples", "a.samples", "b.reserve"] {
        std::thread::sleep(Duration::from_millis(400));
        world.rabbitmqctl(&["delete_queue", &format!("dyad.fleet.{queue}.v1")]);
    }
    publisher.join().unwrap();
    world.fleet.signal("c1", "KILL");
    world.wait_closed(20);
    world.end_well();
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

#[test]
fn an_agent_started_twice_is_refused() {
    let world = world(1);
    let config = world.program.home().join("run.toml");
    let config = ["--config", config.to_str().unwrap()];
    let output = world
        .program
        .output(&[&["agent", "--name", "a", "--run", "fleet"][..], &config].concat());
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("is in use by process"), "{text}");
    world.end_well();
}

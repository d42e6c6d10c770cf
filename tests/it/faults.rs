//! Faults by name, each injected into a run of separate processes over a real RabbitMQ and Redis: nothing is lost, nothing is
//! counted twice, and the run goes on by itself once the fault is over.

use std::process::Command;
use std::time::Duration;

use tests::chaos::{GROUP, Shape, World, impatient};
use tests::program::{json_lines, wait_for};
use tests::proxy::Mode;

const PATIENCE: Duration = Duration::from_secs(120);

fn world(coordinators: usize) -> World {
    World::with(env!("CARGO_BIN_EXE_dyad-under-test"), coordinators, &[])
}

/// Waits until a process has said something.
fn said(world: &World, label: &str, what: &str) {
    wait_for(&format!("{label} to say {what:?}"), PATIENCE, || {
        world.fleet.log(label).contains(what).then_some(())
    });
}

/// A new version is rolled out: every process is told to stop and started again, and both servers restart, one after the other.
#[test]
fn every_service_restarted_in_turn_costs_nothing() {
    let mut world = world(2);
    let mut publisher = world.publish_beside(60);
    for label in ["a", "c1", "b", "c2"] {
        world.fleet.restart(label, PATIENCE);
        // On a fast machine all is done by now.
        world.wait_closed((world.closed() + 2).min(world.published()));
    }
    publisher.join().unwrap();
    for (label, what) in [("b", "agent is serving"), ("c2", "coordinator is running")] {
        wait_for(&format!("{label} to be there again"), PATIENCE, || {
            (world.fleet.log(label).matches(what).count() == 2).then_some(())
        });
    }
    // RabbitMQ 3.10 loses the leader of a quorum queue that was declared in the second before it was killed; that is found out
    // after 15 seconds, and is another test's.
    std::thread::sleep(Duration::from_secs(2));
    publisher = world.publish_beside(20);
    world.servers.crash_rabbit();
    world.wait_closed((world.closed() + 2).min(world.published()));
    publisher.join().unwrap();
    publisher = world.publish_beside(20);
    world.servers.crash_redis(true);
    publisher.join().unwrap();
    for label in ["a", "b", "c1", "c2"] {
        assert_eq!(world.fleet.starts(label), 2, "{label}:\n{}", world.fleet.log(label));
    }
    world.end_well();
}

/// Longer than leases, heartbeats and the waits between attempts to connect; `DYAD_GONE_SECONDS=300` for longer yet. Whoever was
/// waiting goes on by itself.
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
    for label in ["a", "b", "c1", "c2"] {
        assert_eq!(world.fleet.starts(label), 1, "{label}:\n{}", world.fleet.log(label));
    }
    world.end_well();
}

/// Its release hangs, because the store does: who insists does not wait for it.
#[test]
fn a_second_signal_ends_a_process_at_once() {
    let mut world = world(1);
    let publisher = world.publish_beside(20);
    world.wait_closed(1);
    world.store.set(Mode::Stall);
    world.fleet.signal("c1", "TERM");
    said(&world, "c1", "received a stop signal; releasing open groups");
    world.fleet.signal("c1", "TERM");
    // An end in order would be a good one, and nothing would be started again.
    wait_for("the coordinator to be started again", PATIENCE, || {
        (world.fleet.starts("c1") == 2).then_some(())
    });
    world.store.set(Mode::Pass);
    publisher.join().unwrap();
    world.end_well();
}

/// Each process has another idea of what time it is, and all of them change it twice by two hours.
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
        env!("CARGO_BIN_EXE_dyad-under-test"),
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
    let hours = ["a", "b"].map(|agent| hours_told(&world, agent));
    assert!(
        hours.iter().all(|hours| *hours >= 2),
        "the clocks were stepped: {hours:?}"
    );
    world.end_well();
}

/// The library that lies about the time, of Debian's package of that name.
fn faketime() -> String {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let found = libraries.into_iter().find(|library| library.exists());
    let found = found.expect("libfaketime is not installed: tests/setup/machine.sh clients brings it");
    found.to_str().unwrap().to_owned()
}

/// How many hours lie between the earliest and the latest line that a process has logged.
fn hours_told(world: &World, label: &str) -> i64 {
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

/// A broker that closes the channel of a consumer that keeps a message for long: what it held is done by whoever gets it next.
#[test]
fn a_delivery_held_for_too_long_is_taken_away_and_done_once() {
    let mut world = World::shaped(
        env!("CARGO_BIN_EXE_dyad-under-test"),
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

/// The coordinator dies in the middle of taking several tasks: those it has taken are in no ledger yet.
#[test]
fn a_task_outlives_the_coordinator_that_took_it() {
    let points = "task.taken=1*sleep(1000)->kill";
    let mut world = World::with(env!("CARGO_BIN_EXE_dyad-under-test"), 1, &[("c1", points)]);
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

/// A call that never returns, on the thread that generates: the heart beats on, so nobody else would ever notice.
#[test]
fn an_agent_whose_engine_hangs_ends_and_is_started_again() {
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
    let mut world = World::shaped(env!("CARGO_BIN_EXE_dyad-under-test"), shape);
    world.publish(10);
    said(&world, "a", "failpoint engine.step: Hang");
    world.wait_closed(10);
    assert_eq!(world.fleet.codes("a"), [Some(70)], "{}", world.fleet.logs());
    assert!(
        world.fleet.log("a").contains("agent a: engine 0 made no step"),
        "{}",
        world.fleet.logs()
    );
    world.end_well();
}

/// Halted between its decision and its bundles, a coordinator is replaced; what it then sends late counts once.
#[test]
fn a_zombie_coordinator_is_replaced_and_its_late_bundles_count_once() {
    let points = "group.decided=1*off->stop";
    let mut world = World::with(env!("CARGO_BIN_EXE_dyad-under-test"), 2, &[("c1", points)]);
    world.publish(20);
    said(&world, "c1", "failpoint group.decided: Stop");
    world.wait_closed(20);
    world.fleet.signal("c1", "CONT");
    let late = wait_for("late bundles to be counted", PATIENCE, || {
        let late: u64 = ["a", "b"]
            .iter()
            .map(|agent| {
                let counts = tests::trace::audit(world.fleet.run(), agent).counts;
                counts.duplicates + counts.other_attempt
            })
            .sum();
        (late > 0).then_some(late)
    });
    println!("{late} late bundles");
    world.end_well();
}

/// An agent that hears and says nothing for several leases; then its connections are what they were, or are cut.
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
fn streams_that_break_in_the_middle_of_a_frame_are_only_reconnected() {
    let mut world = world(2);
    for after in [1, 300, 5_000] {
        let publisher = world.publish_beside(5);
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
        let publisher = world.publish_beside(5);
        std::thread::sleep(Duration::from_millis(700));
        world.servers.redis_cli(&["FLUSHALL"]);
        world.servers.redis_cli(&["SCRIPT", "FLUSH"]);
        publisher.join().unwrap();
    }
    world.wait_closed(20);
    world.end_well();
}

#[test]
fn a_full_redis_pauses_the_run_and_names_what_to_do() {
    let mut world = world(2);
    world.servers.redis_cli(&["CONFIG", "SET", "maxmemory", "1"]);
    world.publish(5);
    wait_for("a coordinator to complain", PATIENCE, || {
        let logs = [world.fleet.log("c1"), world.fleet.log("c2")].concat();
        logs.contains("raise its maxmemory").then_some(())
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
    let publisher = world.publish_beside(5);
    said(&world, "c1", "RabbitMQ accepts no publishes");
    // Longer than the broker may keep silent when it is well.
    std::thread::sleep(Duration::from_secs(20));
    world.rabbitmqctl(&["set_vm_memory_high_watermark", "0.6"]);
    publisher.join().unwrap();
    world.wait_closed(10);
    for label in ["a", "b", "c1", "c2"] {
        assert_eq!(
            world.fleet.starts(label),
            1,
            "{label} sat it out:\n{}",
            world.fleet.log(label)
        );
    }
    world.end_well();
}

/// What was in them is lost; the ledgers have custody of every group, and tell it to the next coordinator.
#[test]
fn queues_deleted_under_load_are_made_again() {
    let mut world = world(2);
    let publisher = world.publish_beside(20);
    for queue in ["a.turns", "b.samples", "a.samples", "b.reserve"] {
        std::thread::sleep(Duration::from_millis(400));
        world.rabbitmqctl(&["delete_queue", &format!("dyad.fleet.{queue}.v1")]);
    }
    publisher.join().unwrap();
    world.fleet.signal("c1", "KILL");
    world.wait_closed(20);
    world.end_well();
}

/// No file of agent a may grow beyond what its ledger's log has: it says so, takes nothing, and goes on when there is room.
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
    wait_for("agent a to train what it has", PATIENCE, || {
        (tests::trace::audit(world.fleet.run(), "a").counts.trained == 5 * GROUP).then_some(())
    });
    let log = world.fleet.run().join("buffer/a.sqlite-wal");
    let pid = world.fleet.pid("a").unwrap();
    limit(pid, &std::fs::metadata(&log).unwrap().len().to_string());
    let publisher = world.publish_beside(10);
    wait_for("agent a to say so", PATIENCE, || {
        let log = world.fleet.log("a");
        (log.contains("the ledger takes no") || log.contains("the ledger could not be")).then_some(())
    });
    publisher.join().unwrap();
    assert_eq!(world.closed(), 5, "nothing is taken without a disk");
    limit(pid, "unlimited");
    world.wait_closed(15);
    world.end_well();
}

/// A ledger that was overwritten is refused in words; made anew from the other's, the run goes on and adds up.
#[test]
fn a_damaged_ledger_is_refused_and_made_anew() {
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
    said(&world, "b", "restore it from a copy, or start a new run");
    world.fleet.hold("b");
    std::fs::remove_file(&ledger).unwrap();
    let run = world.fleet.run().to_str().unwrap().to_owned();
    let told = world.program.output(&["audit", "--run", &run]);
    assert!(!told.status.success());
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
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
    let config = world.program.runs().parent().unwrap().join("run.toml");
    let second = [
        "agent",
        "--name",
        "a",
        "--config",
        config.to_str().unwrap(),
        "--run",
        "fleet",
    ];
    let output = world.program.output(&second);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("is in use by process"), "{text}");
    world.end_well();
}

//! Coordinators and agents that hang, end, are replaced or are cut off.

use tests::chaos::{Shape, impatient};
use tests::program::{wait_for, wait_until};
use tests::proxy::Mode;
use tests::trace::audit;

use super::*;

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

/// The broker closes the channel of a consumer that keeps a message for long. The next receiver
/// handles the message.
#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn a_delivery_held_for_too_long_is_taken_away_and_done_once() {
    let mut world = World::shaped(
        crate::DYAD,
        Shape {
            rabbit: Some(|| impatient(3000)),
            failpoints: &[("b", "turn.generated=3*off->1*sleep(12000)->off")],
            ..Shape::default()
        },
    );
    world.publish(10);
    world.wait_closed(10);
    let log = std::fs::read_to_string(world.servers.rabbit.own().log_path()).unwrap();
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
    assert_eq!(world.fleet.starts("c1"), 2, "it was killed once:\n{}", world.logs());
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
    assert_eq!(world.fleet.codes("a"), [Some(70)], "{}", world.logs());
    assert!(
        world.fleet.log("a").contains("agent a: engine 0 made no step"),
        "{}",
        world.logs()
    );
    world.end_well();
}

/// Publishes 20 tasks to a run of which coordinator c1 halts between a decision and its bundles.
fn world_with_a_halted_coordinator() -> World {
    let points = "group.decided=1*off->stop";
    let mut world = World::with(crate::DYAD, 2, &[("c1", points)]);
    world.publish(20);
    world
        .fleet
        .wait_for_log("c1", "failpoint group.decided: Stop", PATIENCE);
    world
}

/// A coordinator halted between its decision and its bundles is replaced. Its late bundles count
/// once.
#[test]
fn late_bundles_of_a_replaced_zombie_coordinator_count_once() {
    let world = world_with_a_halted_coordinator();
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

/// A coordinator is halted and loses its connection; the run ends without it. Its last heartbeats
/// say that groups are reserved, and no other heartbeat will come.
#[test]
fn a_coordinator_halted_until_the_run_is_over_ends_too() {
    let world = world_with_a_halted_coordinator();
    world.broker.cut();
    let fleet = &world.fleet;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("the other processes to end", PATIENCE, || {
                ["a", "b", "c2"].iter().all(|label| fleet.codes(label) == [Some(0)])
            });
            fleet.signal("c1", "CONT");
        });
        world.end_well();
    });
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

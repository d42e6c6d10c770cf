//! Faults of RabbitMQ and Redis, and of the ways to them.

use tests::program::wait_until;
use tests::proxy::Mode;

use super::*;

/// A new version is rolled out: every process is stopped and started again in turn, then each
/// server restarts.
#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn every_service_restarted_in_turn_costs_nothing() {
    let mut world = world_with_own_rabbit();
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
    let mut world = world_with_own_rabbit();
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

#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
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
    let mut world = world_with_own_rabbit();
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
    let mut world = world_with_own_rabbit();
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

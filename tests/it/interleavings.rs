//! Named interleavings that depend on the behaviour of a real server.

use std::time::Duration;

use broker::bus::{Bus, PublishError};
use broker::protocol::Kind;
use tests::chaos::World;
use tests::fleet::RUN;
use tests::letters::{connect, message, topology};
use tests::program::{metrics, wait_until};
use tests::small::Small;
use tests::trace::audit;

use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the number of messages in a queue of the run.
fn depth(world: &World, queue: &str) -> u64 {
    let listed = world.rabbitmqctl(&["list_queues", "-q", "name", "messages"]);
    let name = format!("dyad.{RUN}.{queue}.v1");
    let line = listed
        .lines()
        .find_map(|line| line.strip_prefix(&name))
        .unwrap_or_default();
    line.trim().parse().unwrap_or(0)
}

/// Redis returns with the data of two seconds ago. It has lost every claim, commit and decision
/// since.
#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn redis_set_back_by_two_seconds_costs_work_and_nothing_else() {
    let mut world = World::with(crate::DYAD, 2, &[]);
    for _ in 0..3 {
        let publisher = world.publish_in_background(10);
        std::thread::sleep(Duration::from_millis(700));
        let old = world.servers.copy_redis();
        std::thread::sleep(Duration::from_secs(2));
        let more = world.publish_in_background(5);
        world.servers.restore_redis(old.path());
        publisher.join().unwrap();
        more.join().unwrap();
    }
    world.wait_closed(45);
    world.end_well();
}

/// The messages in the queue of an agent's samples are lost after their confirm; then the queue
/// itself is deleted.
#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn samples_of_a_purged_and_deleted_queue_are_sent_again() {
    // The coordinator halts after its first part to agent a, so that b is away before it receives
    // any.
    let points = "bundle.part-sent=stop";
    let mut world = World::alone(crate::DYAD, 1, &[("c1", points)]);
    let publisher = world.publish_in_background(20);
    world
        .fleet
        .wait_for_log("c1", "failpoint bundle.part-sent: Stop", PATIENCE);
    world.fleet.hold("b");
    world.fleet.signal("c1", "CONT");
    wait_until("samples for b", PATIENCE, || depth(&world, "b.samples") > 0);
    let queue = format!("dyad.{RUN}.b.samples.v1");
    world.rabbitmqctl(&["purge_queue", &queue]);
    world.fleet.release("b");
    std::thread::sleep(Duration::from_millis(500));
    world.rabbitmqctl(&["delete_queue", &queue]);
    publisher.join().unwrap();
    // A new coordinator receives every waiting row. The same coordinator would receive them after
    // five minutes.
    world.fleet.signal("c1", "KILL");
    world.wait_closed(20);
    world.end_well();
}

/// Each queue refuses while it holds one message: senders wait for receivers, and no process waits
/// for itself.
#[test]
fn a_run_with_every_queue_full_continues() {
    let mut world = World::alone(crate::DYAD, 2, &[]);
    world.rabbitmqctl(&[
        "set_policy",
        "full",
        &format!(r"^dyad\.{RUN}\.(?!dead)"),
        r#"{"max-length-bytes": 1}"#,
        "--apply-to",
        "queues",
    ]);
    for agent in ["a", "b", "c1", "c2"] {
        world.fleet.signal(agent, "STOP");
    }
    let limited = world.rabbitmqctl(&["list_queues", "-q", "name", "policy"]);
    for queue in [
        "tasks",
        "reclaim",
        "a.reserve",
        "b.reserve",
        "a.turns",
        "b.turns",
        "a.samples",
        "b.samples",
    ] {
        let name = format!("dyad.{RUN}.{queue}.v1");
        let line = limited.lines().find(|line| line.starts_with(&name)).unwrap_or_default();
        assert!(line.ends_with("full"), "{queue}: {limited}");
    }
    let publisher = world.publish_in_background(20);
    world.servers.block_on(fill(&world.servers.rabbit.url()));
    for agent in ["a", "b", "c1", "c2"] {
        world.fleet.signal(agent, "CONT");
    }
    publisher.join().unwrap();
    world.wait_closed(20);
    world.end_well();
}

/// Publishes the same task, which is played once, until its queue refuses it.
async fn fill(url: &str) {
    let topology = topology(RUN);
    let bus = connect(url).await;
    for _ in 0..1000 {
        let body = br#"{"id": "task-0", "prompt": "o0", "label": "o0"}"#;
        let message = message(topology.to(&topology.tasks()), Kind::Task, "task-0", *body);
        if let Err(PublishError::Full(_)) = bus.publish(message).await {
            return bus.close().await;
        }
    }
    panic!("the queue of tasks never refused a message");
}

/// Every reward is the same, so every advantage is zero and refilling never finds a better group.
/// At staleness 0 the agents must not wait for each other for ever.
#[test]
fn a_run_without_any_advantage_ends() {
    let program = program();
    let config = Small::scripted()
        .set("run.train_steps", 3)
        .set("defaults.agent.train.max_staleness", 0)
        .set("defaults.agent.train.zero_advantage", "refill")
        .set("workflow.group_size", 4)
        .set("workflow.reward.speaker.success", 0.0)
        .set("workflow.reward.listener.success", 0.0)
        .save(&program);
    program.launch("run", &config, &[]).finish(PATIENCE);
    let lines = metrics(&program.run_folder(), "train");
    let steps = lines.iter().filter(|line| line["agent"] == "a").count();
    assert!(steps >= 3, "{lines:?}");
    for line in &lines {
        assert_eq!(line["advantage/zero_share"], 1.0, "{line}");
    }
    let status = program.succeed(&["status", "--run", program.run_folder().to_str().unwrap()]);
    assert!(
        status.contains("agent a learns nothing: in its last 3 batches"),
        "{status}"
    );
}

/// A name is for people; an id adds eight random characters.
#[test]
fn a_name_begun_twice_is_two_runs() {
    let program = program();
    let config = Small::new().set("run.train_steps", 2).save(&program);
    let runs = program.runs();
    let args = ["run", &config, "--folder", runs.to_str().unwrap()];
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| program.succeed(&args));
        }
    });
    let folders: Vec<_> = std::fs::read_dir(&runs)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let begun: Vec<_> = folders.iter().filter(|path| path.join("run.json").is_file()).collect();
    assert_eq!(begun.len(), 2, "{folders:?}");
    for run in begun {
        for agent in ["a", "b"] {
            assert_eq!(audit(run, agent).counts.batches, 2, "{}", run.display());
        }
    }
}

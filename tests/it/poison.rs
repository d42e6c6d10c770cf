//! Work that kills its process, among good work: it ends in the dead letters, alone, and the run
//! continues.

use broker::bus::Bus;
use broker::ids::{Digest, GroupId, RunId};
use tests::chaos::{GROUP, Shape, World, task_line};
use tests::fleet::RUN;
use tests::letters::{connect, dead_letters, topology};
use tests::trace::audit;

/// The poisoned task and 63 good ones.
const TASKS: u64 = 64;
const POISON: u64 = 17;
/// Nine batches of good groups.
const BATCH: u64 = 7;

/// Publishes all at once; work on one of the groups kills the process `label` at `point` every
/// time.
fn poisoned(label: &str, point: &str, says: &str) {
    let group = GroupId::new(&RunId::new(RUN).unwrap(), &format!("task-{POISON}"));
    kills(label, &format!("{point}/{group}"), says, "play", 1);
}

/// Does the same as [`poisoned`] at any point; a ledger has `rows` rows of the dead task.
fn kills(label: &str, point: &str, says: &str, stage: &str, rows: u64) {
    let task = format!("task-{POISON}");
    let points = format!("{point}=kill");
    let shape = Shape {
        coordinators: 1,
        batch: BATCH,
        // Groups that wait while a process dies repeatedly are trained in spite of their age.
        staleness: 100,
        failpoints: &[(label, &points)],
        always: true,
        ..Shape::default()
    };
    let mut world = World::shaped(crate::DYAD, shape);
    world.publish(TASKS);
    let (books, passed) = world.end_after(TASKS - 1 + rows);
    assert!(passed, "{books:#}\n{}", world.logs());
    let books = &books["books"];
    let figure = |name: &str| books[name].as_u64().unwrap();
    assert_eq!(
        [figure("published"), figure("finished"), figure("dead")],
        [TASKS, TASKS - 1, 1],
        "{books:#}"
    );
    for agent in ["a", "b"] {
        let counts = audit(world.fleet.run(), agent).counts;
        assert_eq!((counts.trained, counts.dead), ((TASKS - 1) * GROUP, rows), "{agent}");
    }
    for other in ["a", "b", "c1"].iter().filter(|other| **other != label) {
        assert_eq!(world.fleet.starts(other), 1, "{other} was never touched");
    }
    println!("{label} was started {} times", world.fleet.starts(label));
    let letters = world.servers.block_on(async {
        let bus = connect(&world.servers.rabbit.url()).await;
        let letters = dead_letters(&bus, &topology(RUN), 1).await;
        bus.close().await;
        letters
    });
    let letter = &letters[0];
    assert_eq!(letter.id, task);
    assert!(letter.reason.contains(says), "{}", letter.reason);
    assert_eq!((letter.stage.as_str(), letter.class.as_str()), (stage, "crashed"));
    let body = String::from_utf8(letter.body.clone()).unwrap();
    assert!(body.contains(&format!("\"{task}\"")), "{body}");
}

#[test]
fn a_task_that_kills_its_coordinator_dies_alone() {
    poisoned("c1", "group.opened", "the coordinator died 3 times");
}

#[test]
fn a_task_that_kills_an_agent_dies_alone() {
    poisoned("a", "job.begun", "agent a died 3 times");
}

/// The second speaker dies, in a group that is half played.
#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn a_task_that_kills_the_agent_that_answers_dies_alone() {
    poisoned("b", "job.begun", "agent b died 3 times");
}

/// The task is in no custody yet: only its bytes are known.
#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn a_task_that_kills_its_reader_dies_alone() {
    let mark = Digest::of(task_line(POISON, "").as_bytes());
    kills(
        "c1",
        &format!("task.read/{mark}"),
        "the coordinator died 3 times while it read",
        "intake",
        0,
    );
}

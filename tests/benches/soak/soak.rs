//! A long run under random kills: compares memory at its end with memory after a tenth of it.
//!
//! Agent b and coordinator c2 are killed repeatedly. Agent a and coordinator c1 live through, which
//! shows their growth.

use std::time::{Duration, Instant};

use tests::chaos::{Dice, GROUP, Shape, World};

use crate::look::{self, Memory, Queues};

const KILL_EVERY: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The points at which memory is measured, in percent of all conversations.
const SHARES: [u64; 3] = [10, 50, 100];
/// Below this number of waiting tasks more are published.
const WAITING: u64 = 4000;

pub(crate) fn run(conversations: u64) {
    let shape = Shape {
        batch: 50,
        failpoints: &look::PROCESSES.map(|label| (label, "")),
        change: |small| small.set("defaults.agent.engine.replicas", 3),
        ..Shape::default()
    };
    let mut world = World::shaped(crate::BINARY, shape);
    let queues = Queues::of(&world);
    let groups = conversations / GROUP;
    let (mut dice, began) = (Dice(1), Instant::now());
    let (mut killed, mut looks, mut most) = (0, Vec::new(), (0, 0, 0.0_f64));
    loop {
        let closed = world.closed();
        if SHARES
            .get(looks.len())
            .is_some_and(|share| closed * 100 >= groups * share)
        {
            looks.push(look::memory(&world));
        }
        if closed >= groups {
            break;
        }
        let waiting = world.published() - closed;
        if waiting < WAITING && world.published() < groups {
            world.publish(WAITING.min(groups - world.published()));
        }
        if began.elapsed() > KILL_EVERY * (killed + 1) {
            world.kill(["b", "c2"][dice.below(2) as usize]);
            killed += 1;
        }
        let (tasks, others) = queues.depths(&world);
        let (bytes, _) = look::redis(&world);
        most = (most.0.max(tasks), most.1.max(others), most.2.max(bytes));
        std::thread::sleep(LOOK_EVERY);
    }
    let seconds = began.elapsed().as_secs_f64();
    let (bytes, keys) = look::redis(&world);
    println!("\n## Soak\n");
    println!(
        "{conversations} conversations, {killed} kills, {seconds:.0} s, {:.0} conversations/s",
        conversations as f64 / seconds
    );
    table(&looks);
    println!(
        "\nmost messages ready: {} in the queue of tasks, {} in all others; Redis' data {:.1} MiB at most, {:.1} MiB in the \
         end for {keys} groups, which it keeps for ten minutes",
        most.0,
        most.1,
        most.2 / 1048576.0,
        bytes / 1048576.0
    );
    let books = &world.end_well()["books"];
    println!(
        "{} tasks published, {} finished, none lost",
        books["published"], books["finished"]
    );
}

fn table(looks: &[Memory]) {
    println!(
        "\n| resident, MiB, after |{}",
        SHARES.map(|share| format!(" {share}% |")).concat()
    );
    println!("|---|{}", SHARES.map(|_| "---|").concat());
    for (who, _) in looks.first().into_iter().flatten() {
        let mib: String = looks
            .iter()
            .map(|memory| format!(" {:.0} |", look::of(memory, who)))
            .collect();
        println!("| {who} |{mib}");
    }
}

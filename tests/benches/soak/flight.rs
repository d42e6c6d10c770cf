//! Ten thousand conversations in flight at once, and the cost of one of them.

use std::time::{Duration, Instant};

use tests::chaos::{GROUP, Shape, World};

use crate::look;

/// Groups in a batch; `BATCHES` is the number of batches in a window.
const BATCH: u64 = 250;
const BATCHES: u64 = 10;
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn run() {
    let shape = Shape {
        batch: BATCH,
        staleness: BATCHES - 1,
        // Both agents answer late, so that all conversations begin before the first ends.
        failpoints: &[
            ("a", "turn.generated=sleep(300)"),
            ("b", "turn.generated=sleep(300)"),
            ("c1", ""),
            ("c2", ""),
        ],
        always: true,
        ..Shape::default()
    };
    let mut world = World::shaped(crate::BINARY, shape);
    let (empty, keys_before) = look::redis(&world);
    let before = look::memory(&world);
    let groups = BATCH * BATCHES;
    let publisher = world.publish_in_background(groups);
    let (began, mut most) = (Instant::now(), None::<(u64, f64, look::Memory)>);
    let mut all_committed = 0.0_f64;
    while world.closed() < groups && began.elapsed() < PATIENCE {
        let (bytes, keys) = look::redis(&world);
        all_committed = all_committed.max(bytes);
        let open = (keys - keys_before.min(keys)).saturating_sub(world.closed());
        if most.as_ref().is_none_or(|(peak, ..)| open > *peak) {
            most = Some((open, bytes, look::memory(&world)));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    publisher.join().unwrap();
    let (open, bytes, at) = most.unwrap();
    let conversations = (open * GROUP) as f64;
    println!("\n## In flight\n\n{conversations} conversations at once");
    println!("\n| | before, MiB | then, MiB | KiB a conversation |\n|---|---|---|---|");
    let row = |who: &str, before: f64, then: f64| {
        println!(
            "| {who} | {before:.1} | {then:.1} | {:.2} |",
            (then - before) * 1024.0 / conversations
        );
    };
    row("Redis, its data", empty / 1048576.0, bytes / 1048576.0);
    row("the same at its most", empty / 1048576.0, all_committed / 1048576.0);
    for (who, mib) in &at {
        row(who, look::of(&before, who), *mib);
    }
    let books = &world.end_well()["books"];
    println!(
        "\n{} tasks published, {} finished, none lost",
        books["published"], books["finished"]
    );
}

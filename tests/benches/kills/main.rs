//! Conversations per second while a process is killed every ten seconds, next to the same run left
//! alone. Windows alternate in one run over real servers.
//!
//! `make bench BENCH=kills ARGS='ROUNDS SECONDS'`. The only assertion is that nothing is lost.

use std::time::{Duration, Instant};

use tests::chaos::{Dice, GROUP, Shape, World};

/// The time between two kills.
const EVERY: Duration = Duration::from_secs(10);
/// Below this number of waiting tasks more are published.
const WAITING: u64 = 4000;
const PROCESSES: [&str; 4] = ["a", "b", "c1", "c2"];

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let rounds = numbers.first().copied().unwrap_or(3);
    let window = Duration::from_secs(numbers.get(1).copied().unwrap_or(60));
    // No pauses: the data plane runs at full speed.
    let shape = Shape {
        batch: 50,
        failpoints: &PROCESSES.map(|label| (label, "")),
        ..Shape::default()
    };
    let mut world = World::shaped(env!("CARGO_BIN_EXE_dyad-under-test"), shape);
    let mut dice = Dice(1);
    let _ = measure(&mut world, window / 4, None);
    println!("| round | alone, conversations/s | a kill every {EVERY:?} | ratio | kills |\n|---|---|---|---|---|");
    let mut ratios = Vec::new();
    for round in 1..=rounds {
        let (alone, _) = measure(&mut world, window, None);
        let (killed, kills) = measure(&mut world, window, Some(&mut dice));
        ratios.push(killed / alone);
        println!(
            "| {round} | {alone:.0} | {killed:.0} | {:.2} | {kills} |",
            killed / alone
        );
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    println!("mean ratio {mean:.2}");
    let books = &world.end_well()["books"];
    println!(
        "{} tasks published, {} finished, none lost",
        books["published"], books["finished"]
    );
}

/// Returns the conversations per second that both agents closed in the window, and the number of
/// kills in it.
fn measure(world: &mut World, window: Duration, mut kills: Option<&mut Dice>) -> (f64, u64) {
    world.publish(WAITING);
    let (began, before) = (Instant::now(), world.closed());
    let (mut killed, mut closed) = (0, before);
    while began.elapsed() < window {
        std::thread::sleep(Duration::from_millis(500));
        closed = world.closed();
        if world.published() - closed < WAITING {
            world.publish(WAITING);
        }
        // The first kill comes in the middle of the first interval, so that its cost is within the
        // window.
        let due = (began.elapsed() + EVERY / 2).as_secs() / EVERY.as_secs();
        if let Some(dice) = kills.as_deref_mut()
            && killed < due
        {
            let label = PROCESSES[dice.below(PROCESSES.len() as u64) as usize];
            world.kill(label);
            killed += 1;
        }
    }
    closed = world.closed().max(closed);
    let rate = (closed - before) as f64 * GROUP as f64 / began.elapsed().as_secs_f64();
    (rate, killed)
}

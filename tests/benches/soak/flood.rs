//! Producers much faster than the run: the load of the queue, its refusals, and the time until it
//! is empty.

use std::time::{Duration, Instant};

use tests::chaos::{Shape, World};

use crate::look::{self, Queues};

/// The approximate size of a task on the wire.
const BYTES: usize = 64 << 10;
/// Tasks of one `dyad publish`; two run at once.
const BURST: u64 = 2000;
const PRODUCERS: usize = 2;

pub(crate) fn run(seconds: u64) {
    let fields = format!(", \"metadata\": {{\"pad\": \"{}\"}}", "x".repeat(BYTES));
    // The run takes about 30 tasks a second, so producers are ten times as fast. In the end it runs
    // at full speed.
    let slow = format!("task.taken={}*sleep(30)->off", seconds * 33);
    let shape = Shape {
        batch: 50,
        coordinators: 1,
        fields: &fields,
        failpoints: &[("a", ""), ("b", ""), ("c1", &slow)],
        change: |small| small.set("run.message_cap", "128 KiB"),
        ..Shape::default()
    };
    let mut world = World::shaped(crate::BINARY, shape);
    let queues = Queues::of(&world);
    let (began, mut most) = (Instant::now(), (0, 0.0_f64));
    let mut rows = Vec::new();
    let mut producers = Vec::new();
    while began.elapsed().as_secs() < seconds {
        producers.retain(|producer: &std::thread::JoinHandle<()>| !producer.is_finished());
        while producers.len() < PRODUCERS {
            producers.push(world.publish_in_background(BURST));
        }
        let (tasks, memory) = (queues.depths(&world).0, look::memory(&world));
        most = (most.0.max(tasks), most.1.max(look::of(&memory, "RabbitMQ")));
        rows.push((began.elapsed().as_secs(), tasks, world.closed(), memory));
        std::thread::sleep(Duration::from_secs(1));
    }
    println!(
        "\n## Flood\n\n| s | tasks waiting | groups closed | RabbitMQ, MiB | c1 | a | b |\n|---|---|---|---|---|---|---|"
    );
    for (at, tasks, closed, memory) in rows.iter().step_by((rows.len() / 10).max(1)) {
        let mib = ["RabbitMQ", "c1", "a", "b"].map(|who| format!("{:.0}", look::of(memory, who)));
        println!("| {at} | {tasks} | {closed} | {} |", mib.join(" | "));
    }
    let ended = Instant::now();
    for producer in producers {
        producer.join().unwrap();
    }
    let confirmed = ended.elapsed().as_secs_f64();
    world.wait_closed(world.published());
    println!(
        "\n{} tasks of {} KiB; most waiting {}, most memory of RabbitMQ {:.0} MiB; the last burst confirmed {confirmed:.0} s \
         after the flood, all done {:.0} s after it",
        world.published(),
        BYTES >> 10,
        most.0,
        most.1,
        ended.elapsed().as_secs_f64()
    );
    let books = &world.end_well()["books"];
    println!(
        "{} tasks published, {} finished, none lost",
        books["published"], books["finished"]
    );
}

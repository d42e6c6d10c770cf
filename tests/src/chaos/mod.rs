//! Chaos: tasks are published while processes and servers are killed, halted, cut off and set back.
//! At the end everything is counted.

mod fault;
mod report;
mod world;

use std::time::{Duration, Instant};

pub use fault::{Dice, Fault};
pub use report::Report;
pub use world::{BATCH, GROUP, Shape, World, closed_groups, impatient, task_line};

/// The size of a chaos run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub conversations: u64,
    pub faults: u64,
    pub seed: u64,
    /// The least time between two faults.
    pub pause: Duration,
}

/// Runs the plan to its end.
#[must_use]
pub fn run(binary: &str, plan: Plan) -> Report {
    // The broker takes back messages that are held for long, so that every fault meets that too.
    let mut world = World::shaped(
        binary,
        Shape {
            rabbit: Some(|| impatient(20_000)),
            ..Shape::default()
        },
    );
    let mut dice = Dice(plan.seed);
    let mut report = Report {
        tasks: (plan.conversations / GROUP).next_multiple_of(BATCH),
        ..Report::default()
    };
    let began = Instant::now();
    let mut old = world.servers.copy_redis();
    for n in 0..plan.faults {
        let due = report.tasks * (n + 1) / plan.faults;
        let tasks = due - world.published;
        let newer = world.servers.copy_redis();
        let before = world.closed();
        let publisher = world.publish_in_background(tasks);
        std::thread::sleep(Duration::from_millis(dice.below(1500)));
        let fault = Fault::draw(&mut dice);
        println!(
            "{:>6.1} s  fault {n}: {fault:?}, {before} of {due} groups closed",
            began.elapsed().as_secs_f64()
        );
        world.strike(fault, &mut dice, old.path());
        *report.faults.entry(fault).or_default() += 1;
        let (healing, healed) = (Instant::now(), world.closed());
        publisher.join().unwrap();
        world.wait_closed((healed + 1).min(due));
        let waited = healing.elapsed();
        report.worst_silence = report.worst_silence.max(waited);
        if fault.of_a_server() {
            report.worst_recovery = report.worst_recovery.max(waited);
        }
        old = newer;
        std::thread::sleep(plan.pause.saturating_sub(waited));
    }
    world.publish(report.tasks - world.published);
    world.wait_closed(report.tasks);
    report.seconds = began.elapsed().as_secs_f64();
    (report.audit, report.audit_passed) = world.end();
    report.starts = world
        .fleet
        .labels()
        .into_iter()
        .map(|label| (label.clone(), world.fleet.starts(&label)))
        .collect();
    if !report.audit_passed || report.lost() + report.double() > 0 {
        println!("{}", world.logs());
    }
    report
}

//! Whole runs under a seeded scheduler, without a server and without a thread. They use the
//! product's coordinators, routers, inboxes, ledgers and bus in memory. Messages are lost before
//! their confirm, repeated, late and out of order. The store does not answer, or forgets. Processes
//! die at any point at which they wait.
//!
//! The seed determines everything. `DYAD_SIM_SEED=7 DYAD_SIM_SCHEDULES=1 DYAD_SIM_LOG=1` replays
//! one schedule and prints its events.

mod bus;
mod chance;
mod model;
mod named;
mod process;
mod run;
mod schedule;
mod store;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use run::Base;
use schedule::{Outcome, play};

/// The number of schedules that every change must pass.
const SCHEDULES: u64 = 400;
const THREADS: usize = 2;

thread_local! {
    /// A runtime swallows the panic of a task; a real process would have ended.
    static PANICKED: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        _ => default,
    }
}

/// A folder in memory if possible: these tests do not survive a power cut.
fn home() -> tempfile::TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    memory.unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Ends a schedule in which a process has panicked.
fn check_panics() {
    assert!(PANICKED.with_borrow(Option::is_none), "a process has panicked");
}

fn note_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICKED.with_borrow_mut(|panicked| {
            panicked.get_or_insert_with(|| info.to_string());
        });
        default(info);
    }));
}

/// The outcome of the schedule, or the promise that it broke.
fn outcome(base: &Base, seed: u64) -> Result<Outcome, String> {
    let played = catch_unwind(AssertUnwindSafe(|| play(base, seed)));
    match (PANICKED.take(), played) {
        (None, Ok(outcome)) => Ok(outcome),
        (panicked, _) => Err(panicked.unwrap_or_default()),
    }
}

#[test]
fn no_schedule_loses_a_task_or_counts_one_twice() {
    note_panics();
    if std::env::var_os("DYAD_SIM_LOG").is_some() {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .without_time()
            .init();
    }
    let (first, count) = (number("DYAD_SIM_SEED", 0), number("DYAD_SIM_SCHEDULES", SCHEDULES));
    let next = AtomicU64::new(first);
    let (sum, broken) = (Mutex::new(Outcome::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let home = home();
                let base = Base::new(home.path());
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || broken.lock().unwrap().len() > 9 {
                        return;
                    }
                    match outcome(&base, seed) {
                        Ok(outcome) => add(&mut sum.lock().unwrap(), &outcome),
                        Err(problem) => {
                            println!("seed {seed} broke a promise");
                            broken.lock().unwrap().push(format!("seed {seed}: {problem}"));
                        }
                    }
                }
            });
        }
    });
    println!("{count} schedules: {:?}", sum.into_inner().unwrap());
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}

fn add(sum: &mut Outcome, one: &Outcome) {
    sum.tasks += one.tasks;
    sum.deaths += one.deaths;
    sum.faults += one.faults;
    sum.losses += one.losses;
    sum.split += one.split;
    sum.trace ^= one.trace;
}

#[test]
fn a_seed_replays_the_same_schedule() {
    let (here, there) = (home(), home());
    let (here, there) = (Base::new(here.path()), Base::new(there.path()));
    for seed in 0..5 {
        let first = outcome(&here, seed).unwrap();
        assert!(first.faults > 0, "{first:?}");
        assert_eq!(first, outcome(&there, seed).unwrap(), "seed {seed}");
    }
    assert_ne!(outcome(&here, 1).unwrap().trace, outcome(&here, 2).unwrap().trace);
}

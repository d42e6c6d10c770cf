//! Checks every order of events of one group in a small system. It has one task (published once or
//! twice), two agents, and two coordinators that restart when they die. Messages arrive in any
//! order, and a few faults happen at any instant.
//!
//! The pure parts are the product's own: the store ([`broker::store::groups::Groups`]), the group
//! and its outcome ([`rollout::group::GroupRun`], `coordinator::outcome`). The ledger is the model
//! that random histories compare with SQLite (`ledger/tests/custody.rs`). The coordinators' and
//! agents' steps are written again ([`coordinator`], [`step`]). The schedules of [`super`] show
//! that the actors take the same steps.
//!
//! [`promises`] holds these promises for every state:
//!
//! - An agent closes a group at most once, whole.
//! - Both agents close it by the same attempt and outcome, unless the store has lost data.
//! - A published task is in a queue, in an unacked delivery, or in a ledger.
//! - The turns that a coordinator treats as committed are in the store.
//! - A write under an old lease is rejected.
//!
//! From every state, without another fault, both agents can still close the group: no state is
//! stuck.
//!
//! `DYAD_MODEL_FAULTS=2` explores more than every change must pass.

mod action;
mod checker;
mod coordinator;
mod faults;
mod play;
mod promises;
mod state;
mod step;

use std::time::Instant;

use checker::{Walk, walk};
use play::Play;

/// The guards. Without any one of them the walk must find the problem that it prevents.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// A task's delivery is acked after the first ledger has its row.
    custody: bool,
    /// A closed group stays closed.
    dedupe: bool,
    /// A bundle closes only when all its parts have arrived.
    whole: bool,
    /// The store rejects writes under any lease but the newest.
    fence: bool,
    /// The first answer to a turn stands.
    set_once: bool,
    /// The first outcome stands.
    decide_once: bool,
    /// A coordinator that claims a decided group adopts the decided failures.
    adopts: bool,
    /// Agents report reserved groups when a coordinator appears or falls silent.
    tells: bool,
    /// Agents report reserved groups again after a long wait.
    overdue: bool,
}

/// The size of the system.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// The number of messages of the task.
    messages: u8,
    /// The number of parts of a bundle with samples.
    parts: u16,
    faults: u8,
}

struct GroupModel {
    size: Size,
    rules: Rules,
    play: Play,
}

impl GroupModel {
    fn new(size: Size, rules: Rules) -> Self {
        Self {
            size,
            rules,
            play: Play::new(),
        }
    }
}

fn measured(size: Size, rules: Rules) -> Walk {
    let begun = Instant::now();
    let walk = walk(&GroupModel::new(size, rules));
    let seconds = begun.elapsed().as_secs_f64();
    let Walk {
        states, steps, depth, ..
    } = &walk;
    println!("{size:?}: {states} states, {steps} steps, {depth} deep, {seconds:.1} s");
    if let Some(problem) = &walk.problem {
        println!(
            "{} after {} steps:\n  {}",
            problem.what,
            problem.way.len(),
            problem.way.join("\n  ")
        );
    }
    walk
}

fn size(messages: u8, parts: u16, faults: u8) -> Size {
    Size {
        messages,
        parts,
        faults,
    }
}

#[test]
fn no_order_of_events_breaks_a_promise() {
    let faults = super::number("DYAD_MODEL_FAULTS", 1) as u8;
    for one in [size(1, 1, faults.max(2)), size(1, 2, faults), size(2, 1, faults)] {
        let walk = measured(one, Rules::ALL);
        assert!(walk.problem.is_none(), "{one:?}");
    }
}

/// A guard, the rules without it, the size of the system, a part of the problem's text, and the
/// least number of steps to it.
type Missing = (&'static str, Rules, Size, &'static str, usize);

#[rustfmt::skip]
fn missing_guards() -> [Missing; 8] {
    let all = Rules::ALL;
    [
        ("custody", Rules { custody: false, ..all }, size(1, 1, 1), "in no queue", 1),
        ("dedupe", Rules { dedupe: false, ..all }, size(1, 1, 1), "twice", 16),
        ("whole", Rules { whole: false, ..all }, size(1, 2, 0), "before all parts", 15),
        ("fence", Rules { fence: false, ..all }, size(1, 1, 1), "not the newest", 18),
        ("set once", Rules { set_once: false, ..all }, size(1, 1, 2), "changed within", 14),
        ("decide once", Rules { decide_once: false, adopts: false, ..all }, size(1, 1, 2), "differently", 29),
        ("adopts", Rules { adopts: false, ..all }, size(1, 1, 2), "differently", 38),
        ("tells", Rules { tells: false, overdue: false, ..all }, size(1, 1, 1), "stuck", 4),
    ]
}

#[test]
fn a_walk_without_any_one_guard_finds_a_problem() {
    let mut unlike = Vec::new();
    for (guard, rules, size, what, steps) in missing_guards() {
        println!("without {guard}:");
        let found = measured(size, rules)
            .problem
            .map(|problem| (problem.what, problem.way.len()));
        if !found
            .as_ref()
            .is_some_and(|found| found.0.contains(what) && found.1 == steps)
        {
            unlike.push((guard, found));
        }
    }
    assert!(unlike.is_empty(), "a guard can go unnoticed: {unlike:#?}");
}

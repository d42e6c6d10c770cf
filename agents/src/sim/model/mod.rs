//! Every order in which one group can go, for a small system: one task (published once or twice), two agents, two coordinators that
//! are started again when they die, messages that arrive in any order, and a few faults at any instant.
//!
//! What is pure is the product's own: the store ([`broker::store::groups::Groups`]), the group and its outcome
//! ([`rollout::group::GroupRun`], `coordinator::closing::outcome`). The ledger is the mirror that random histories tie to SQLite
//! (`ledger/tests/custody.rs`). The coordinators' and agents' steps around them are written again ([`coordinator`], [`step`]); that the actors take the
//! same ones is what the schedules of [`super`] show.
//!
//! Held in every state ([`promises`]): an agent closes a group at most once, whole; both by the same attempt and outcome, unless the
//! store has lost something; a published task is in a queue, in a delivery that is not acked, or in a ledger; what a coordinator takes for
//! committed is what the store has; a write under an old lease is refused. And from every state, without another fault, both
//! agents can still close the group: nothing is stuck.
//!
//! `DYAD_MODEL_FAULTS=2` walks farther than every change must.

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

/// The guards; without one of them the walk must find what it is for.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// A task's delivery is acked after the first ledger has its row.
    custody: bool,
    /// What is closed is closed.
    dedupe: bool,
    /// A bundle closes when all its parts are there.
    whole: bool,
    /// The store refuses writes under another lease than the newest.
    fence: bool,
    /// The first answer to a turn stands.
    set_once: bool,
    /// The first outcome stands.
    decide_once: bool,
    /// Who claims a decided group takes over what its failures were decided to be.
    adopts: bool,
    /// Agents tell what is reserved when a coordinator comes or falls silent.
    tells: bool,
    /// They tell it again when it has waited for long.
    overdue: bool,
}

/// How large the system is.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Messages of the task.
    messages: u8,
    /// Parts of a bundle with samples.
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

/// A guard, the rules without it, where it is missed, what is said then, and after how many steps at the least.
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
fn each_guard_that_is_taken_away_is_missed() {
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

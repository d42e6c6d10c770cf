//! Named interleavings, forced step by step: each test decides which process runs and how long. No
//! other fault happens.

use std::time::Duration;

use broker::AgentName;
use broker::codec;
use broker::protocol::bundle::Bundle;
use broker::protocol::turn::TurnFrame;

use super::home;
use super::process::{Process, ProcessId, open};
use super::run::{Base, Run};
use crate::ledger::{Inspector, RowState};

const A: ProcessId = ProcessId::Agent("a");
const B: ProcessId = ProcessId::Agent("b");
const C: ProcessId = ProcessId::Coordinator(1);
const D: ProcessId = ProcessId::Coordinator(2);
const STEP: Duration = Duration::from_millis(1);
/// An hour of steps: a condition that is still false will never hold.
const STEPS: u32 = 3_600_000;

struct Stage {
    run: Run,
    live: Vec<(ProcessId, Process)>,
    starts: usize,
}

fn name(agent: &str) -> AgentName {
    AgentName::new(agent).unwrap()
}

impl Stage {
    fn new(base: &Base, who: &[ProcessId]) -> Self {
        let run = base.run(0);
        run.chance.rest();
        let mut stage = Self {
            run,
            live: Vec::new(),
            starts: 0,
        };
        who.iter().for_each(|who| stage.start(*who));
        stage
    }

    fn start(&mut self, who: ProcessId) {
        self.starts += 1;
        let process = Process::start(who, &self.run, self.starts);
        self.live.push((who, process));
    }

    fn kill(&mut self, who: ProcessId) {
        self.live.retain(|(one, _)| *one != who);
    }

    /// Runs these processes concurrently; all others stand still.
    fn go_on(&self, who: &[ProcessId], time: Duration) {
        let listed = |one: &ProcessId| who.contains(one);
        for (_, process) in self.live.iter().filter(|(one, _)| listed(one)) {
            process.go_on(2, time);
        }
    }

    /// Runs these processes until the condition holds.
    fn until(&self, who: &[ProcessId], what: &str, so: impl Fn(&Self) -> bool) {
        for _ in 0..STEPS {
            if so(self) {
                return;
            }
            self.go_on(who, STEP);
        }
        panic!("waited for {what}");
    }

    /// The number of rows of an agent's ledger in this state.
    fn rows(&self, agent: &str, state: RowState) -> usize {
        let rows = Inspector::open(&self.run.folder.ledger(&name(agent))).and_then(|ledger| ledger.groups());
        rows.map_or(0, |rows| rows.iter().filter(|row| row.state == state).count())
    }

    fn closed(&self, count: usize) -> bool {
        ["a", "b"]
            .iter()
            .all(|agent| self.rows(agent, RowState::Closed) == count)
    }

    /// Bundles that wait for an agent that does not run.
    fn parts(&self, agent: &str) -> Vec<Bundle> {
        let bodies = self.run.bodies(&self.run.topology.samples(&name(agent)));
        bodies.iter().map(|body| codec::decode(body).unwrap()).collect()
    }

    /// The number of requests that wait for an agent that does not run.
    fn requests(&self, agent: &str) -> usize {
        let bodies = self.run.bodies(&self.run.topology.turns(&name(agent)));
        let frames = bodies.iter().map(|body| codec::decode::<TurnFrame>(body).unwrap());
        frames.map(|frame| frame.requests.len()).sum()
    }
}

#[test]
fn a_task_repeated_while_it_is_played_is_played_once() {
    let home = home();
    let mut stage = Stage::new(&Base::new(home.path()), &[A, B, C]);
    stage.run.publish(0);
    stage.until(&[A, B, C], "a row at both", |stage| {
        ["a", "b"]
            .iter()
            .all(|agent| stage.rows(agent, RowState::Reserved) == 1)
    });
    // The group is live: agent b, which is asked next, stands still.
    stage.run.publish(0);
    stage.go_on(&[A, C], Duration::from_secs(1));
    for _ in 0..100 {
        stage.go_on(&[A, C], STEP);
    }
    stage.kill(C);
    let tasks = stage.run.topology.tasks();
    assert_eq!(stage.run.bodies(&tasks).len(), 0, "both messages were acked");
    stage.start(D);
    stage.until(&[A, B, D], "its end", |stage| stage.closed(1));
    for _ in 0..5000 {
        stage.go_on(&[A, B, D], STEP);
    }
    for agent in ["a", "b"] {
        assert_eq!(stage.rows(agent, RowState::Reserved), 0, "{agent}");
    }
    stage.live.clear();
    for agent in ["a", "b"] {
        let counts = open(&stage.run, &name(agent)).counts();
        assert_eq!((counts.closed, counts.other_attempt), (1, 0), "{agent}");
    }
}

/// A coordinator is halted after it has sent three parts of a bundle. Redis loses everything, and
/// another coordinator plays the group again and sends all of it. Then the first one resumes and
/// sends its remaining parts.
#[test]
fn a_half_sent_bundle_sent_again_by_another_counts_once() {
    let home = home();
    let mut stage = Stage::new(&Base::with_group(home.path(), 8), &[A, B, C]);
    // Each part takes a millisecond.
    stage.run.chance.slow();
    stage.run.publish(0);
    let samples = stage.run.topology.samples(&name("a"));
    stage.until(&[A, B, C], "a row at both", |stage| {
        ["a", "b"]
            .iter()
            .all(|agent| stage.rows(agent, RowState::Reserved) == 1)
    });
    stage.until(&[A, B, C], "the first part", |stage| stage.run.sent(&samples) > 0);
    stage.kill(A);
    stage.until(&[C], "the third part", |stage| stage.run.sent(&samples) >= 3);
    let sent = stage.parts("a");
    assert!(
        sent.len() >= 2 && sent.len() < usize::from(sent[0].parts),
        "{} of {}",
        sent.len(),
        sent[0].parts
    );
    let first = sent[0].attempt;

    stage.run.store.go_back_to(0);
    stage.start(A);
    stage.start(D);
    stage.until(&[A, B, D], "the group to be closed by another", |stage| stage.closed(1));
    for _ in 0..200 {
        stage.go_on(&[A, B, C, D], STEP);
    }
    stage.live.clear();
    let winners = ["a", "b"].map(|agent| {
        let ledger = open(&stage.run, &name(agent));
        let audit = ledger.audit().unwrap();
        assert_eq!(audit.violations(), Vec::<String>::new());
        assert_eq!(
            (audit.counts.closed, audit.samples, audit.staged_parts),
            (1, 8, 0),
            "{agent}"
        );
        ledger.ready(9).unwrap()[0].attempt
    });
    assert_eq!(winners[0], winners[1], "both took the same attempt");
    assert_ne!(winners[0], first, "Redis had forgotten the first");
    let late = open(&stage.run, &name("a")).counts().other_attempt;
    assert!(late > 0, "the zombie's parts came late, and were counted");
}

/// Requests are repeated only to live agents: in the queue of an absent agent they would pile up.
#[test]
fn requests_do_not_pile_up_for_an_absent_agent() {
    const TASKS: u64 = 5;
    let home = home();
    let mut stage = Stage::new(&Base::new(home.path()), &[A, B, C]);
    (0..TASKS).for_each(|n| stage.run.publish(n));
    stage.until(&[A, B, C], "rows at b", |stage| {
        stage.rows("b", RowState::Reserved) == TASKS as usize
    });
    stage.kill(B);
    for _ in 0..12_000 {
        stage.go_on(&[A, C], Duration::from_millis(50));
    }
    let waiting = stage.requests("b");
    // Each of three conversations has one listener.
    let in_flight = TASKS as usize * 3;
    assert!(waiting > 0 && waiting <= 2 * in_flight, "{waiting} for {in_flight}");
    stage.start(B);
    stage.until(&[A, B, C], "its return", |stage| stage.closed(TASKS as usize));
}

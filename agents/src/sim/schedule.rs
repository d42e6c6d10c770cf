//! One schedule: random processes run and die, and the store loses data. Then all faults stop, and
//! every promise is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use broker::AgentName;
use broker::ids::{Attempt, Digest, GroupId};

use super::process::{self, Process, ProcessId};
use super::run::{Base, GROUP, Run, task};
use crate::ledger::{GroupRow, Inspector, RowState, SampleVerdict, TrainingVerdict};
use broker::protocol::bundle::{Bundle, BundleContent};

/// The most deaths of one process: three deaths alone would put out an innocent task
/// (`crash_marks.rs`).
const DEATHS: u32 = 2;
/// Rounds without faults in which everything must finish: 25 minutes of every process's own time.
const ROUNDS: usize = 30_000;
const ROUND: Duration = Duration::from_millis(50);

/// The outcome of a schedule.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    pub tasks: u64,
    pub deaths: u64,
    pub faults: u64,
    /// The number of times that the store went back.
    pub losses: u64,
    /// Groups that the agents closed from different attempts: only possible if the store has lost
    /// data.
    pub split: u64,
    /// A digest of the events.
    pub trace: u64,
}

struct Member {
    who: ProcessId,
    process: Option<Process>,
    deaths: u32,
}

struct Schedule {
    run: Run,
    members: Vec<Member>,
    starts: usize,
    published: u64,
    /// The winner that closed each group at each agent, as of the last look.
    winners: BTreeMap<(AgentName, GroupId), (Attempt, Digest)>,
    outcome: Outcome,
}

/// Plays the schedule of a seed; panics if a promise is broken.
pub(super) fn play(base: &Base, seed: u64) -> Outcome {
    let mut schedule = Schedule::new(base.run(seed));
    schedule.trouble();
    schedule.run.chance.rest();
    if schedule.run.chance.below(2) == 0 {
        schedule.kill_all();
        schedule.check_custody();
    }
    schedule.quiet();
    schedule.check()
}

impl Schedule {
    fn new(run: Run) -> Self {
        let mut who = vec![ProcessId::Agent("a"), ProcessId::Agent("b"), ProcessId::Coordinator(1)];
        if run.chance.below(2) == 0 {
            who.push(ProcessId::Coordinator(2));
        }
        let member = |who| Member {
            who,
            process: None,
            deaths: 0,
        };
        let outcome = Outcome {
            tasks: 2 + run.chance.below(6) as u64,
            ..Outcome::default()
        };
        Self {
            members: who.into_iter().map(member).collect(),
            run,
            starts: 0,
            published: 0,
            winners: BTreeMap::new(),
            outcome,
        }
    }

    fn trouble(&mut self) {
        let chance = self.run.chance.clone();
        let forgetful = chance.below(4) == 0;
        for _ in 0..200 + chance.below(400) {
            match chance.below(100) {
                0..4 => self.publish(),
                4 => self.kill(chance.below(self.members.len())),
                5 if forgetful => self.forget(),
                _ => self.go_on(),
            }
        }
        while self.published < self.outcome.tasks {
            self.publish();
        }
    }

    /// Publishes the next task, or repeats one.
    fn publish(&mut self) {
        let again = self.published > 0 && self.run.chance.below(4) == 0;
        if again {
            self.run.publish(self.run.chance.below(self.published as usize) as u64);
        } else if self.published < self.outcome.tasks {
            self.run.publish(self.published);
            self.published += 1;
        }
    }

    fn forget(&mut self) {
        self.outcome.losses += 1;
        tracing::trace!("the store goes back");
        let share = if self.run.chance.below(3) == 0 {
            0
        } else {
            self.run.chance.below(101)
        };
        self.run.store.go_back_to(share);
    }

    fn kill(&mut self, at: usize) {
        let member = &mut self.members[at];
        if member.deaths < DEATHS && member.process.take().is_some() {
            member.deaths += 1;
            self.outcome.deaths += 1;
            tracing::trace!(who = ?self.members[at].who, "dies");
            self.look();
        }
    }

    fn kill_all(&mut self) {
        self.members.iter_mut().for_each(|member| member.process = None);
        self.look();
    }

    fn start(&mut self, at: usize) {
        self.starts += 1;
        let process = Process::start(self.members[at].who, &self.run, self.starts);
        self.members[at].process = Some(process);
    }

    /// Runs one process for a moment; a dead process restarts after a while.
    fn go_on(&mut self) {
        let chance = self.run.chance.clone();
        let at = chance.below(self.members.len());
        if self.members[at].process.is_none() {
            if self.starts < self.members.len() || chance.below(8) == 0 {
                self.start(at);
            }
            return;
        }
        // Sometimes much time passes for a process that hardly runs, as if it had been halted.
        let most = if chance.below(25) == 0 { 3000 } else { 60 };
        let time = Duration::from_millis(chance.below(most) as u64);
        let turns = 1 + chance.below(6);
        if let Some(process) = &self.members[at].process {
            process.go_on(turns, time);
        }
    }

    /// Runs without faults until every task is done.
    fn quiet(&mut self) {
        for at in 0..self.members.len() {
            if self.members[at].process.is_none() {
                self.start(at);
            }
        }
        let mut left = 0;
        for round in 0..ROUNDS {
            for process in self.members.iter().filter_map(|member| member.process.as_ref()) {
                process.go_on(4, ROUND);
            }
            // Messages that are in transit when the last group closes arrive too.
            if left > 100 {
                return self.kill_all();
            }
            if left > 0 || (round % 10 == 0 && self.all_closed()) {
                left += 1;
            }
        }
        let rows: Vec<_> = ["a", "b"].iter().map(|name| self.rows(name)).collect();
        panic!("not done after {:?}: {rows:#?}", ROUND * ROUNDS as u32);
    }

    fn rows(&self, name: &str) -> Vec<GroupRow> {
        let path = self.run.folder.ledger(&AgentName::new(name).unwrap());
        if !path.is_file() {
            return Vec::new();
        }
        Inspector::open(&path).unwrap().groups().unwrap()
    }

    fn all_closed(&self) -> bool {
        let closed = |name| {
            let rows = self.rows(name);
            rows.len() as u64 == self.outcome.tasks && rows.iter().all(|row| row.state != RowState::Reserved)
        };
        closed("a") && closed("b")
    }

    /// Checks that a closed group keeps its winner.
    fn look(&mut self) {
        for name in ["a", "b"] {
            for row in self.rows(name) {
                let Some(winner) = row.winner else { continue };
                let key = (AgentName::new(name).unwrap(), row.group);
                let first = *self.winners.entry(key).or_insert(winner);
                assert_eq!(first, winner, "{} was closed twice at {name}", row.task);
            }
        }
    }

    /// Checks that every published task is in a queue or in a ledger; no process runs now.
    fn check_custody(&self) {
        let mut found: BTreeSet<String> = BTreeSet::new();
        for queue in [self.run.topology.tasks(), self.run.topology.reclaim()] {
            found.extend(self.run.look_into(&queue).into_iter().map(|(id, _)| id));
        }
        for name in ["a", "b"] {
            found.extend(self.rows(name).into_iter().map(|row| row.task));
        }
        let dead = self.run.look_into(&self.run.topology.dead());
        assert_eq!(dead, [], "healthy messages were rejected");
        for n in 0..self.published {
            assert!(found.contains(&task(n)), "{} is in no queue and no ledger", task(n));
        }
    }

    /// Checks that every group closed once at each agent, whole, from one attempt, and that each
    /// sample takes effect once.
    fn check(mut self) -> Outcome {
        let dead = self.run.look_into(&self.run.topology.dead());
        assert_eq!(dead, [], "healthy messages were rejected");
        let tasks = self.outcome.tasks;
        for name in ["a", "b"] {
            let rows = self.rows(name);
            assert_eq!(rows.len() as u64, tasks, "{name}: {rows:#?}");
            for row in &rows {
                assert_eq!((row.state, row.samples), (RowState::Closed, GROUP), "{name}: {row:#?}");
            }
            self.train(name);
        }
        let winner = |name: &str, group| self.winners[&(AgentName::new(name).unwrap(), group)].0;
        let groups = self.rows("a").into_iter().map(|row| row.group);
        let split: Vec<GroupId> = groups
            .filter(|group| winner("a", *group) != winner("b", *group))
            .collect();
        assert!(
            split.is_empty() || self.outcome.losses > 0,
            "the agents took different attempts of {split:?}"
        );
        self.outcome.split = split.len() as u64;
        self.outcome.faults = self.run.chance.faults();
        self.outcome.trace = self.run.chance.trace();
        self.outcome
    }

    fn train(&self, name: &str) {
        let mut ledger = process::open(&self.run, &AgentName::new(name).unwrap());
        let bundles = ledger.ready(usize::MAX).unwrap();
        let lineage = ledger.begin_lineage(None).unwrap();
        let verdicts: Vec<SampleVerdict> = bundles.iter().flat_map(verdicts).collect();
        ledger.record_batch(lineage, 1, &verdicts).unwrap();
        let audit = ledger.audit().unwrap();
        assert!(audit.violations().is_empty(), "{name}: {:?}", audit.violations());
        let effect = (audit.counts.trained, audit.twice, audit.missing);
        assert_eq!(effect, (self.outcome.tasks * GROUP, 0, 0), "{name}");
    }
}

fn verdicts(bundle: &Bundle) -> Vec<SampleVerdict> {
    let BundleContent::Samples(samples) = &bundle.content else {
        return Vec::new();
    };
    let verdict = |sample: &broker::protocol::bundle::Sample| SampleVerdict {
        group: bundle.group,
        member: sample.member,
        role: sample.role.clone(),
        seat: sample.seat,
        verdict: TrainingVerdict::Trained,
    };
    samples.iter().map(verdict).collect()
}

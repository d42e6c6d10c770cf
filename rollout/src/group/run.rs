//! One group's conversations while they run: a pure fold of committed turns, from which outstanding requests are derived.
//!
//! The coordinator commits a turn, then tells [`GroupRun::on_result`]; it asks [`GroupRun::take_wanted`] what to request next
//! and, when [`GroupRun::is_done`], hands [`GroupRun::finish`] to [`super::assemble`]. A new owner tells the committed turns
//! to [`GroupRun::restore`] in the order of their commit and goes on: what is outstanding then is what was.
//!
//! A failure of the machinery is never an answer: the turn is asked for again, and when its tries are spent its
//! conversation alone is given up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use broker::RoleName;
use broker::ids::{TurnKey, conversation_seed, seed};
use broker::protocol::failure::{Failure, FailureCode};
use broker::protocol::task::Task;
use broker::protocol::turn::Generation;

use super::assemble::MemberEnd;
use crate::sample::{self, Malformed};
use crate::workflow::program::Program;
use crate::workflow::unanswered::{is_silent, is_tombstone};
use crate::workflow::{Ask, Event, Outcome, Step, Workflow};

/// The failure of a conversation whose group could no longer train.
#[must_use]
pub fn abandoned() -> Failure {
    Failure::new(
        FailureCode::Abandoned,
        "too many other conversations of its group failed",
    )
}

/// What a group is run by.
#[derive(Clone)]
pub struct RunSpec {
    pub workflow: Arc<dyn Workflow>,
    pub task: Arc<Task>,
    /// The task's resolved id: seeds follow from it.
    pub task_id: String,
    pub run_seed: u64,
    pub group_size: u16,
    /// Tries for one generation before its conversation counts as failed; at least 1.
    pub retries: u32,
    /// Conversations that must be valid for the group to train: when no longer reachable, the rest is abandoned.
    pub min_valid: usize,
}

/// A generation to ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub key: TurnKey,
    pub ask: Ask,
    /// Prompt and output ids of this seat's turn before; empty at its first turn.
    pub held: Vec<u32>,
    /// How many of them, at their end, are that turn's output.
    pub sampled: u32,
    /// Seed of this generation's random numbers.
    pub seed: u64,
}

/// Why a result changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("turn {0:?} is not wanted now: it is taken, its conversation has ended, or it was never asked for")]
    Unwanted(TurnKey),
    #[error("the generation is broken: {0}")]
    Malformed(#[from] Malformed),
}

/// A group of conversations under way.
pub struct GroupRun {
    spec: RunSpec,
    members: Vec<Member>,
    /// Requested, and neither answered nor failed since.
    in_flight: BTreeSet<TurnKey>,
    failures: BTreeMap<TurnKey, u32>,
    /// Roles that programs play: they say texts without tokens.
    programs: BTreeSet<RoleName>,
    /// Roles of agents that judge: they say tokens, or nothing where a grade stays missing.
    judges: BTreeSet<RoleName>,
}

struct Member {
    seed: u64,
    events: Vec<Event>,
    turns: Vec<(TurnKey, Generation)>,
    state: State,
}

enum State {
    /// What it waits for, by key.
    Open(BTreeMap<TurnKey, Ask>),
    Ended(Outcome),
    Failed(Failure),
}

impl GroupRun {
    #[must_use]
    pub fn new(spec: RunSpec) -> Self {
        let member = |member| Member::new(&spec, member);
        let members = (0..spec.group_size).map(member).collect();
        let programs = spec.workflow.programs().into_iter();
        let (judges, programs): (Vec<_>, Vec<_>) = programs.partition(|program| program.place.is_agent());
        let roles = |programs: Vec<Program>| programs.into_iter().flat_map(|program| program.roles);
        let tools = spec.workflow.tools().into_iter().flat_map(|tool| tool.roles);
        let mut run = Self {
            programs: roles(programs).chain(tools).collect(),
            judges: roles(judges).collect(),
            spec,
            members,
            in_flight: BTreeSet::new(),
            failures: BTreeMap::new(),
        };
        run.abandon_if_hopeless();
        run
    }

    /// As [`GroupRun::new`], with the turns that were committed before, in the order of their commit. An error means that
    /// they are not turns of this group by these rules: void it.
    pub fn restore(spec: RunSpec, committed: impl IntoIterator<Item = (TurnKey, Generation)>) -> Result<Self, Refusal> {
        let mut run = Self::new(spec);
        for (key, generation) in committed {
            run.on_result(key, generation)?;
        }
        Ok(run)
    }

    /// Every generation that is outstanding, by (member, role, seat, turn): in flight or not.
    #[must_use]
    pub fn wanted(&self) -> Vec<Wanted> {
        self.open_asks().map(|(key, ask)| self.want(key, ask)).collect()
    }

    /// What is outstanding and not in flight, in the same order; it counts as in flight from now on.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        let taken: Vec<Wanted> = self
            .open_asks()
            .filter(|(key, _)| !self.in_flight.contains(*key))
            .map(|(key, ask)| self.want(key, ask))
            .collect();
        self.in_flight.extend(taken.iter().map(|wanted| wanted.key.clone()));
        taken
    }

    /// A request got lost (its agent restarted, its message was returned): it is no longer in flight, without a strike.
    pub fn requeue(&mut self, key: &TurnKey) {
        self.in_flight.remove(key);
    }

    /// Everything in flight of these roles is lost: their agent lost its memory. Answers how much that is.
    pub fn requeue_roles(&mut self, lost: impl Fn(&RoleName) -> bool) -> usize {
        let before = self.in_flight.len();
        self.in_flight.retain(|key| !lost(&key.role));
        before - self.in_flight.len()
    }

    /// Turns that are in flight and still wanted.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.in_flight.iter().filter(|key| self.is_wanted(key)).count()
    }

    /// Whether this result may be committed: ask before the commit.
    pub fn admits(&self, key: &TurnKey, generation: &Generation) -> Result<(), Refusal> {
        if !self.is_wanted(key) {
            return Err(Refusal::Unwanted(key.clone()));
        }
        let missing = self.judges.contains(&key.role) && is_tombstone(generation);
        let left_out = is_silent(generation) && self.spec.workflow.goes_on_without(&key.role);
        if missing || left_out || self.programs.contains(&key.role) {
            return Ok(());
        }
        let held = self.member(key.member).map_or(0, |m| m.held_len(key));
        sample::check(generation, held).map_err(Refusal::Malformed)
    }

    /// A turn is committed. A refusal changes nothing.
    pub fn on_result(&mut self, key: TurnKey, mut generation: Generation) -> Result<(), Refusal> {
        self.admits(&key, &generation)?;
        if generation.kept > 0 {
            let held = self.member(key.member).map_or_else(Vec::new, |m| m.held(&key));
            // It is as long as was just checked.
            let _ = generation.complete(&held);
        }
        self.in_flight.remove(&key);
        self.failures.remove(&key);
        let member = key.member;
        if let Some(state) = self.members.get_mut(usize::from(member)) {
            state.take(&self.spec, key, generation);
        }
        self.settle(member);
        Ok(())
    }

    /// A turn failed. It is wanted again, unless `retry` is false or its tries are spent: then its conversation has
    /// failed. Answers whether it failed; `None` if the turn was not wanted any more, and nothing has changed.
    pub fn on_failure(&mut self, key: &TurnKey, failure: &Failure, retry: bool) -> Option<bool> {
        if !self.is_wanted(key) {
            return None;
        }
        self.in_flight.remove(key);
        let strikes = self.failures.entry(key.clone()).or_default();
        *strikes += 1;
        let tries = self.spec.retries.max(1);
        if retry && *strikes < tries {
            return Some(false);
        }
        let last = if retry {
            failure
                .clone()
                .followed_by(format_args!(" (the last of {tries} tries)"))
        } else {
            failure.clone()
        };
        self.give_up(key.member, last);
        Some(true)
    }

    /// Whether a failure of this turn would be the last of its tries; `None` if nobody wants the turn.
    #[must_use]
    pub fn last_try(&self, key: &TurnKey) -> Option<bool> {
        let strikes = self.failures.get(key).copied().unwrap_or(0);
        self.is_wanted(key)
            .then(|| strikes.saturating_add(1) >= self.spec.retries.max(1))
    }

    /// Gives one conversation up.
    pub fn give_up(&mut self, member: u16, failure: Failure) {
        if let Some(state) = self.members.get_mut(usize::from(member))
            && matches!(state.state, State::Open(_))
        {
            state.state = State::Failed(failure);
        }
        self.settle(member);
    }

    /// Gives conversations up that an earlier owner has decided to be so, each for its reason, whatever they came to here.
    pub fn give_up_all(&mut self, failed: impl IntoIterator<Item = (u16, Failure)>) {
        for (member, failure) in failed {
            if let Some(state) = self.members.get_mut(usize::from(member)) {
                state.state = State::Failed(failure);
                self.in_flight.retain(|key| key.member != member);
            }
        }
        self.abandon_if_hopeless();
    }

    /// Whether any turn was taken or any conversation given up.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        let untouched = |member: &Member| member.turns.is_empty() && matches!(member.state, State::Open(_));
        !self.members.iter().all(untouched)
    }

    /// Whether every conversation has ended or failed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.members.iter().all(|m| !matches!(m.state, State::Open(_)))
    }

    /// What one conversation came to so far: its events in the order of their commit.
    #[must_use]
    pub fn events(&self, member: u16) -> &[Event] {
        self.members.get(usize::from(member)).map_or(&[], |m| &m.events)
    }

    /// What one conversation ended with, if it ended.
    #[must_use]
    pub fn outcome(&self, member: u16) -> Option<&Outcome> {
        match self.members.get(usize::from(member)).map(|m| &m.state) {
            Some(State::Ended(outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// What every conversation came to, in the order of members. One that is still open counts as failed.
    #[must_use]
    pub fn finish(self) -> Vec<MemberEnd> {
        let end = |member: Member| match member.state {
            State::Ended(outcome) => MemberEnd::Ended {
                outcome,
                turns: member.turns,
            },
            State::Failed(failure) => MemberEnd::Failed {
                failure,
                turns: member.turns,
            },
            State::Open(_) => MemberEnd::Failed {
                failure: Failure::other("it was stopped before its end"),
                turns: member.turns,
            },
        };
        self.members.into_iter().map(end).collect()
    }

    fn open_asks(&self) -> impl Iterator<Item = (&TurnKey, &Ask)> {
        self.members
            .iter()
            .filter_map(|m| match &m.state {
                State::Open(asks) => Some(asks),
                _ => None,
            })
            .flatten()
    }

    fn is_wanted(&self, key: &TurnKey) -> bool {
        match self.members.get(usize::from(key.member)).map(|m| &m.state) {
            Some(State::Open(asks)) => asks.contains_key(key),
            _ => false,
        }
    }

    fn member(&self, member: u16) -> Option<&Member> {
        self.members.get(usize::from(member))
    }

    fn want(&self, key: &TurnKey, ask: &Ask) -> Wanted {
        let member = self.member(key.member);
        Wanted {
            key: key.clone(),
            ask: ask.clone(),
            held: member.map_or_else(Vec::new, |m| m.held(key)),
            sampled: member.map_or(0, |m| m.sampled(key)),
            seed: seed(self.spec.run_seed, &self.spec.task_id, key),
        }
    }

    /// Forgets what a conversation no longer waits for, and the rest of a group that can no longer train.
    fn settle(&mut self, member: u16) {
        if let Some(Member {
            state: State::Ended(_) | State::Failed(_),
            ..
        }) = self.members.get(usize::from(member))
        {
            self.in_flight.retain(|key| key.member != member);
        }
        self.abandon_if_hopeless();
    }

    fn abandon_if_hopeless(&mut self) {
        let failed = self
            .members
            .iter()
            .filter(|m| matches!(m.state, State::Failed(_)))
            .count();
        if failed == 0 || self.members.len() - failed >= self.spec.min_valid {
            return;
        }
        for member in self.members.iter_mut().filter(|m| matches!(m.state, State::Open(_))) {
            member.state = State::Failed(abandoned());
        }
        self.in_flight.clear();
    }
}

impl Member {
    fn new(spec: &RunSpec, member: u16) -> Self {
        let seed = conversation_seed(spec.run_seed, &spec.task_id, member);
        let mut new = Self {
            seed,
            events: Vec::new(),
            turns: Vec::new(),
            state: State::Open(BTreeMap::new()),
        };
        new.step(spec, member);
        new
    }

    fn take(&mut self, spec: &RunSpec, key: TurnKey, generation: Generation) {
        self.events.push(Event::of(&key, &generation));
        let member = key.member;
        self.turns.push((key, generation));
        self.step(spec, member);
    }

    fn step(&mut self, spec: &RunSpec, member: u16) {
        self.state = match spec.workflow.step(&spec.task, self.seed, &self.events) {
            Step::Done(outcome) => State::Ended(outcome),
            Step::Ask(asks) => self.open(asks, member),
            Step::Fail(reason) => State::Failed(Failure::other(reason)),
        };
    }

    /// The asks that have no event yet. A workflow that asks for nothing, or out of turn, would never end.
    fn open(&self, asks: Vec<Ask>, member: u16) -> State {
        let mut open = BTreeMap::new();
        for ask in asks {
            let spoken = self.spoken(&ask.role, ask.seat);
            match usize::from(ask.turn) {
                turn if turn < spoken => {}
                turn if turn == spoken => {
                    let key = TurnKey {
                        member,
                        role: ask.role.clone(),
                        seat: ask.seat,
                        turn: ask.turn,
                    };
                    open.insert(key, ask);
                }
                turn => {
                    let (role, seat) = (&ask.role, ask.seat);
                    return State::Failed(Failure::other(format_args!(
                        "the workflow asks for turn {turn} of {role}/{seat}, which has spoken {spoken} times"
                    )));
                }
            }
        }
        if open.is_empty() {
            return State::Failed(Failure::other("the workflow asks for nothing and has not ended"));
        }
        State::Open(open)
    }

    fn spoken(&self, role: &RoleName, seat: u16) -> usize {
        self.events.iter().filter(|e| e.role == *role && e.seat == seat).count()
    }

    /// Prompt and output ids of the turn before `key` of its seat.
    fn held(&self, key: &TurnKey) -> Vec<u32> {
        self.before(key)
            .map_or_else(Vec::new, |g| [&g.prompt_ids[..], &g.output_ids[..]].concat())
    }

    /// How many ids the turn before `key` of its seat has put out.
    fn sampled(&self, key: &TurnKey) -> u32 {
        self.before(key).map_or(0, |g| g.output_ids.len() as u32)
    }

    fn held_len(&self, key: &TurnKey) -> usize {
        self.before(key).map_or(0, |g| g.prompt_ids.len() + g.output_ids.len())
    }

    /// The generation before `key` of its seat.
    fn before(&self, key: &TurnKey) -> Option<&Generation> {
        let same = |(k, _): &&(TurnKey, Generation)| k.role == key.role && k.seat == key.seat;
        self.turns.iter().rev().find(same).map(|(_, generation)| generation)
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;

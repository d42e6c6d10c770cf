//! The running conversations of one group: a pure fold of committed turns. The outstanding requests
//! follow from it.
//!
//! The coordinator commits a turn and then calls [`GroupRun::on_result`]. It calls
//! [`GroupRun::take_wanted`] for the next requests. When [`GroupRun::is_done`], it passes
//! [`GroupRun::finish`] to [`super::assemble`]. A new owner passes the committed turns to
//! [`GroupRun::restore`] in the order of their commit. After that the same requests are outstanding
//! as before.
//!
//! A failure of the machinery is never an answer. The turn is requested again; when its tries are
//! spent, only its conversation fails.

use std::collections::{BTreeMap, BTreeSet};

use broker::RoleName;
use broker::ids::{TurnKey, seed};
use broker::protocol::failure::Failure;
use broker::protocol::turn::Generation;

use super::assemble::MemberEnd;
use super::member::{Member, State};
use super::wanted::{Refusal, RunSpec, Wanted, abandoned};
use crate::sample;
use crate::workflow::program::Program;
use crate::workflow::unanswered::{is_silent, is_tombstone};
use crate::workflow::{Ask, Event, Outcome};

/// A group of conversations in progress.
pub struct GroupRun {
    spec: RunSpec,
    members: Vec<Member>,
    /// Requests that were sent and have neither an answer nor a failure since.
    in_flight: BTreeSet<TurnKey>,
    failures: BTreeMap<TurnKey, u32>,
    /// Roles that programs play; their texts have no tokens.
    programs: BTreeSet<RoleName>,
    /// Roles of agents that judge. Their turns have tokens, or none where a grade stays missing.
    judges: BTreeSet<RoleName>,
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

    /// Builds a group as [`GroupRun::new`] does and adds the turns that were committed before, in
    /// the order of their commit. An error means that they are not turns of this group by these
    /// rules, and the group must be voided.
    pub fn restore(spec: RunSpec, committed: impl IntoIterator<Item = (TurnKey, Generation)>) -> Result<Self, Refusal> {
        let mut run = Self::new(spec);
        for (key, generation) in committed {
            run.on_result(key, generation)?;
        }
        Ok(run)
    }

    /// Returns every outstanding generation, by (member, role, seat, turn), in flight or not.
    #[must_use]
    pub fn wanted(&self) -> Vec<Wanted> {
        self.open_asks().map(|(key, ask)| self.want(key, ask)).collect()
    }

    /// Returns the outstanding generations that are not in flight, in the same order. They count as
    /// in flight from now on.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        let taken: Vec<Wanted> = self
            .open_asks()
            .filter(|(key, _)| !self.in_flight.contains(*key))
            .map(|(key, ask)| self.want(key, ask))
            .collect();
        self.in_flight.extend(taken.iter().map(|wanted| wanted.key.clone()));
        taken
    }

    /// Records that a request was lost (its agent restarted, or its message was returned). It is no
    /// longer in flight, and no try is counted.
    pub fn requeue(&mut self, key: &TurnKey) {
        self.in_flight.remove(key);
    }

    /// Records that every request in flight of these roles is lost, because their agent lost its
    /// memory. Returns their number.
    pub fn requeue_roles(&mut self, lost: impl Fn(&RoleName) -> bool) -> usize {
        let before = self.in_flight.len();
        self.in_flight.retain(|key| !lost(&key.role));
        before - self.in_flight.len()
    }

    /// Returns the number of turns that are in flight and still wanted.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding_roles().count()
    }

    /// Returns the role of each turn that is in flight and still wanted.
    pub fn outstanding_roles(&self) -> impl Iterator<Item = &RoleName> {
        let wanted = self.in_flight.iter().filter(|key| self.is_wanted(key));
        wanted.map(|key| &key.role)
    }

    /// Checks whether this result may be committed. Call it before the commit.
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

    /// Records a committed turn. A refusal changes nothing.
    pub fn on_result(&mut self, key: TurnKey, mut generation: Generation) -> Result<(), Refusal> {
        self.admits(&key, &generation)?;
        if generation.kept > 0 {
            let held = self.member(key.member).map_or_else(Vec::new, |m| m.held(&key));
            // The length was checked above.
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

    /// Records a failed turn. The turn is requested again, unless `retry` is false or its tries are
    /// spent; then its conversation has failed. Returns whether the conversation failed; `None` if
    /// the turn was no longer wanted, and nothing has changed.
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

    /// Returns true if a failure of this turn would use its last try; `None` if the turn is not
    /// wanted.
    #[must_use]
    pub fn last_try(&self, key: &TurnKey) -> Option<bool> {
        let strikes = self.failures.get(key).copied().unwrap_or(0);
        self.is_wanted(key)
            .then(|| strikes.saturating_add(1) >= self.spec.retries.max(1))
    }

    /// Marks one conversation as failed.
    pub fn give_up(&mut self, member: u16, failure: Failure) {
        if let Some(state) = self.members.get_mut(usize::from(member))
            && matches!(state.state, State::Open(_))
        {
            state.state = State::Failed(failure);
        }
        self.settle(member);
    }

    /// Marks conversations as failed that an earlier owner has decided on, each with its reason,
    /// whatever their state here.
    pub fn give_up_all(&mut self, failed: impl IntoIterator<Item = (u16, Failure)>) {
        for (member, failure) in failed {
            if let Some(state) = self.members.get_mut(usize::from(member)) {
                state.state = State::Failed(failure);
                self.in_flight.retain(|key| key.member != member);
            }
        }
        self.abandon_if_hopeless();
    }

    /// Returns true if any turn was taken or any conversation was given up.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        let untouched = |member: &Member| member.turns.is_empty() && matches!(member.state, State::Open(_));
        !self.members.iter().all(untouched)
    }

    /// Returns true if every conversation has ended or failed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.members.iter().all(|m| !matches!(m.state, State::Open(_)))
    }

    /// Returns the events of one conversation so far, in the order of their commit.
    #[must_use]
    pub fn events(&self, member: u16) -> &[Event] {
        self.members.get(usize::from(member)).map_or(&[], |m| &m.events)
    }

    /// Returns the outcome of one conversation, if it ended.
    #[must_use]
    pub fn outcome(&self, member: u16) -> Option<&Outcome> {
        match self.members.get(usize::from(member)).map(|m| &m.state) {
            Some(State::Ended(outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// Returns the end of every conversation, in the order of members. An open conversation counts
    /// as failed.
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

    /// Drops the requests that a conversation no longer waits for, and the rest of a group that can
    /// no longer train.
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

#[cfg(test)]
mod tests;

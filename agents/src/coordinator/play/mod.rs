//! The groups that are being played: what each needs next follows from what has just happened to
//! it.
//!
//! Asynchronous: a turn is asked for as soon as it is wanted. Synchronous: all wanted turns are one
//! wave, and nothing is asked while anything is outstanding.

pub(crate) mod commit;
pub(crate) mod onlookers;
mod open;
mod programs;
mod results;
mod send;
mod turn_times;
mod wave;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use broker::AgentName;
use broker::RoleName;
use broker::bus::Delivery;
use broker::ids::{GroupId, RequestId};
use broker::protocol::failure::Failure;
use broker::protocol::turn::TurnResult;
use broker::store::Lease;
use rollout::group::{GroupRun, MemberEnd, RunSpec};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::programs::Asking;
use self::wave::Wave;
use super::specs::{GroupPlace, Purpose};

pub(crate) use open::Open;
pub(crate) use programs::ProgramTurn;
pub(crate) use results::{GroupResults, read_record, record};
pub(crate) use send::send_frame;
pub(crate) use turn_times::TurnTimes;
pub(crate) use wave::{AgentFrame, SILENT, WaveResults};

/// The open groups, and the wave under way.
#[derive(Default)]
pub(crate) struct Play {
    open: BTreeMap<GroupId, Open>,
    /// The next need of each group to which something has happened.
    next: BTreeMap<GroupId, Need>,
    wave: Option<Wave>,
    waves: u64,
}

/// The next need of a group, decided by what has just happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Ask,
    Close,
}

/// A step that the actor takes for a group.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// All conversations have ended and are committed.
    Close(GroupId),
    /// These turns are wanted.
    Ask(GroupPlace, Vec<rollout::group::Wanted>),
}

/// The end of a commit, as its group sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitEnd {
    /// The results are to be applied.
    Ours,
    /// The group was lost and claimed again meanwhile: its new claim has read what is stored.
    Stale,
}

impl Play {
    #[must_use]
    pub(crate) fn get(&self, group: &GroupId) -> Option<&Open> {
        self.open.get(group)
    }

    #[must_use]
    pub(crate) fn has(&self, group: &GroupId) -> bool {
        self.open.contains_key(group)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GroupId, &Open)> {
        self.open.iter()
    }

    /// Groups that train.
    pub(crate) fn training(&self) -> impl Iterator<Item = (&GroupId, &Open)> {
        self.open.iter().filter(|(_, open)| open.trains())
    }

    /// The place of a group's task in the order of admission. Groups that are not open come last.
    #[must_use]
    pub(crate) fn order(&self, group: &GroupId) -> u64 {
        self.open.get(group).map_or(u64::MAX, |open| open.order)
    }

    /// Begins to play a group. A group that has ended already is closed.
    pub(crate) fn insert(&mut self, group: GroupId, open: Open) {
        self.open.insert(group, open);
        self.plan(group);
    }

    /// Forgets a group.
    pub(crate) fn remove(&mut self, group: &GroupId) -> Option<Open> {
        self.next.remove(group);
        self.open.remove(group)
    }

    /// Forgets all groups of evaluations.
    pub(crate) fn remove_evaluations(&mut self) {
        self.open.retain(|_, open| open.trains());
        let open = &self.open;
        self.next.retain(|group, _| open.contains_key(group));
    }

    /// Returns true if nothing is under way, so that the next wave may begin.
    #[must_use]
    pub(crate) fn is_between_waves(&self) -> bool {
        let quiet = |open: &Open| open.run.outstanding() == 0 && open.committing == 0;
        self.wave.is_none() && self.open.values().all(quiet)
    }

    /// Takes what is to be done now, in the order of the groups.
    pub(crate) fn take_steps(&mut self) -> Vec<Step> {
        let next = std::mem::take(&mut self.next);
        let steps = next.into_iter().filter_map(|(group, need)| {
            let open = self.open.get_mut(&group)?;
            if need == Need::Close {
                return Some(Step::Close(group));
            }
            let turns = open.run.take_wanted();
            turns
                .iter()
                .for_each(|turn| open.times.ask(&turn.key, turn.ask.max_new_tokens));
            open.moved = Instant::now();
            let place = GroupPlace {
                group,
                attempt: open.attempt,
                order: open.order,
                purpose: open.purpose,
            };
            Some(Step::Ask(place, turns))
        });
        steps.collect()
    }

    /// Plans what the group needs, after something has happened to it.
    fn plan(&mut self, group: GroupId) {
        let Some(open) = self.open.get(&group) else { return };
        if !open.run.is_done() {
            self.next.insert(group, Need::Ask);
        } else if open.committing == 0 {
            self.next.insert(group, Need::Close);
        } else {
            self.next.remove(&group);
        }
    }

    /// Gives a conversation up that can never go on.
    pub(crate) fn give_up(&mut self, group: GroupId, member: u16, failure: Failure) {
        if let Some(open) = self.open.get_mut(&group) {
            open.run.give_up(member, failure);
            self.plan(group);
        }
    }

    /// Begins to close a group, and gives its questions up. Returns false if it is being closed
    /// already, or is not open.
    pub(crate) fn begin_close(&mut self, group: &GroupId) -> bool {
        let Some(open) = self.open.get_mut(group).filter(|open| !open.closing) else {
            return false;
        };
        open.closing = true;
        open.asking.clear();
        true
    }

    /// The ends of a group's conversations. The group keeps nothing of them; `empty` is a spec of
    /// no conversation.
    pub(crate) fn take_members(&mut self, group: &GroupId, empty: RunSpec) -> Vec<MemberEnd> {
        let Some(open) = self.open.get_mut(group) else {
            return Vec::new();
        };
        std::mem::replace(&mut open.run, GroupRun::new(empty)).finish()
    }

    /// Keeps a question under way, to be given up with its group.
    pub(crate) fn keep_question(&mut self, group: &GroupId, question: AbortHandle) {
        if let Some(open) = self.open.get_mut(group) {
            open.asking.retain(|asking| !asking.is_answered());
            open.asking.push(Asking::new(question));
        }
    }

    /// Takes turns back that have been silent for long, so that they are asked for again. `may_ask`
    /// returns true if the role's agent is alive.
    pub(crate) fn requeue_silent(&mut self, may_ask: impl Fn(Purpose, &RoleName) -> bool) {
        let is_silent = |open: &Open| open.run.outstanding() > 0 && open.moved.elapsed() > SILENT;
        let mut lost = Vec::new();
        for (group, open) in self.open.iter_mut().filter(|(_, open)| is_silent(open)) {
            let purpose = open.purpose;
            let turns = open.run.requeue_roles(|role| may_ask(purpose, role));
            if turns > 0 {
                tracing::warn!(%group, lost = turns, "turns are silent; asking again");
                open.moved = Instant::now();
                lost.push(*group);
            }
        }
        lost.into_iter().for_each(|group| self.plan(group));
    }

    /// Leases of groups that are played and not being closed.
    #[must_use]
    pub(crate) fn leases_to_release(&self) -> Vec<Lease> {
        let open = self.open.values().filter(|open| !open.closing);
        open.filter_map(|open| open.lease).collect()
    }

    #[must_use]
    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.open.values().filter_map(|open| open.lease).collect()
    }

    /// The number of the next wave.
    pub(crate) fn next_wave(&mut self) -> u64 {
        self.waves += 1;
        self.waves
    }

    #[must_use]
    pub(crate) fn has_wave(&self) -> bool {
        self.wave.is_some()
    }

    pub(crate) fn begin_wave(&mut self, missing: HashSet<RequestId>, frames: Vec<AgentFrame>) {
        self.wave = Some(Wave::new(missing, frames));
    }

    /// Forgets the wave: its results belong to attempts that are over.
    pub(crate) fn drop_wave(&mut self) {
        self.wave = None;
    }

    /// Takes results of the wave. Returns how many are stale, and all results with the last one.
    /// Without a wave the delivery is returned.
    pub(crate) fn add_to_wave(
        &mut self,
        results: Vec<TurnResult>,
        delivery: Option<Delivery>,
    ) -> (usize, Option<WaveResults>) {
        let Some(wave) = self.wave.as_mut() else {
            let deliveries = delivery.into_iter().collect();
            return (results.len(), Some((Vec::new(), deliveries)));
        };
        let stale = wave.add(results, delivery);
        let whole = if wave.is_complete() { self.wave.take() } else { None };
        (stale, whole.map(Wave::into_results))
    }

    /// The wave's frames for an agent that has restarted. Its queue holds only requests that its
    /// predecessor has not answered, and it computes the wave when it has the whole of it.
    #[must_use]
    pub(crate) fn wave_of(&self, agent: &AgentName) -> Vec<AgentFrame> {
        self.wave.as_ref().map_or_else(Vec::new, |wave| wave.frames_of(agent))
    }

    /// The wave's frames, if it has been silent for long.
    pub(crate) fn take_silent_wave(&mut self, alive: &BTreeSet<AgentName>) -> Vec<AgentFrame> {
        self.wave.as_mut().map_or_else(Vec::new, |wave| wave.take_silent(alive))
    }

    /// Lets a test change a group directly.
    #[cfg(test)]
    pub(crate) fn change<T>(&mut self, group: GroupId, change: impl FnOnce(&mut Open) -> T) -> T {
        let changed = change(self.open.get_mut(&group).unwrap());
        self.plan(group);
        changed
    }
}

#[cfg(test)]
mod tests;

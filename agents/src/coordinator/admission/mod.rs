//! Tasks on their way into play: first into the agents' ledgers, then claimed in the store.

mod admitting;
mod claims;
pub(crate) mod intake;
pub(crate) mod queues;
pub(crate) mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use broker::AgentName;
use broker::bus::Delivery;
use broker::ids::{GroupId, RunId};
use broker::protocol::reserve::{Reserve, ReserveAnswerFrame, ReserveVerdict};
use tokio::time::Instant;

use super::env::Env;
use crate::turn::tasks::{Candidate, Feed};

pub(crate) use admitting::Admitting;
pub(crate) use claims::Claiming;

/// The most reservations of a frame.
const RESERVES_PER_FRAME: usize = 64;
/// Time after which a refused reservation is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Time after which an unanswered reservation is asked for again.
const UNANSWERED: Duration = Duration::from_secs(10);

/// Tasks that wait for room, are being reserved, or are being claimed.
pub(crate) struct Admission {
    /// Published tasks that wait for room, each still unacked.
    waiting: VecDeque<Candidate>,
    /// Tasks that a ledger has handed back.
    reclaimed: VecDeque<Candidate>,
    /// The run's own tasks.
    feed: Feed,
    admitting: BTreeMap<GroupId, Admitting>,
    claiming: BTreeMap<GroupId, Admitting>,
    /// The order of the next task that has none. Such tasks come after those of the run's own
    /// source.
    next_order: u64,
}

/// The result of taking a candidate.
#[derive(Default)]
pub(crate) struct Taken {
    /// The group to reserve, unless it is under way already.
    pub group: Option<GroupId>,
    /// The candidate's delivery, where its queue need not keep it.
    pub ack: Option<Delivery>,
}

/// The effects of an agent's answers.
#[derive(Default)]
pub(crate) struct Answered {
    /// Deliveries that their queue need not keep: a ledger has the task, or the task is dead.
    pub acks: Vec<Delivery>,
    /// Groups to reserve at their next agent.
    pub next: Vec<GroupId>,
    /// Groups that every ledger has, to be claimed.
    pub claims: Vec<(GroupId, Admitting)>,
}

/// Splits requests into frames of at most [`RESERVES_PER_FRAME`] requests and `cap` bytes of tasks.
/// A larger task is alone in its frame.
fn frames(requests: Vec<Reserve>, cap: usize) -> impl Iterator<Item = Vec<Reserve>> {
    let mut rest = requests.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut frame = vec![rest.next()?];
        let mut bytes = frame[0].body.len();
        while frame.len() < RESERVES_PER_FRAME
            && let Some(next) = rest.next_if(|next| bytes + next.body.len() <= cap)
        {
            bytes += next.body.len();
            frame.push(next);
        }
        Some(frame)
    })
}

impl Admission {
    #[must_use]
    pub(crate) fn new(feed: Feed) -> Self {
        Self {
            waiting: VecDeque::new(),
            reclaimed: VecDeque::new(),
            feed,
            admitting: BTreeMap::new(),
            claiming: BTreeMap::new(),
            next_order: crate::ledger::PUBLISHED,
        }
    }

    /// A task has come from a queue.
    pub(crate) fn add(&mut self, candidate: Candidate) {
        if candidate.held {
            self.reclaimed.push_back(candidate);
        } else {
            self.waiting.push_back(candidate);
        }
    }

    /// Returns true if the group is being reserved or claimed.
    #[must_use]
    pub(crate) fn has(&self, group: &GroupId) -> bool {
        self.admitting.contains_key(group) || self.claiming.contains_key(group)
    }

    /// Returns true if no group is being reserved or claimed.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        self.admitting.is_empty() && self.claiming.is_empty()
    }

    /// Groups that are being reserved or claimed.
    #[must_use]
    pub(crate) fn under_way(&self) -> usize {
        self.admitting.len() + self.claiming.len()
    }

    /// Groups that are under way, or were handed back by a ledger and are not taken yet.
    #[must_use]
    pub(crate) fn held(&self) -> usize {
        self.under_way() + self.reclaimed.len()
    }

    #[must_use]
    pub(crate) fn none_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if the run's own source has given its last task.
    #[must_use]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.feed.exhausted()
    }

    /// Returns the reason why the run's own source ended before its last task.
    #[must_use]
    pub(crate) fn source_failure(&self) -> Option<&str> {
        self.feed.failure()
    }

    /// Goes on with the task at this place of the run's own source.
    pub(crate) fn skip_to(&mut self, order: u64) {
        self.feed.skip_to(order);
    }

    pub(crate) fn next_waiting(&mut self) -> Option<Candidate> {
        self.waiting.pop_front()
    }

    /// The next task of the run's own source that is not under way here, from the place `order` on.
    /// Every ledger has the tasks before it: another coordinator may have taken them.
    pub(crate) fn next_own(&mut self, run: &RunId, order: u64, plays: impl Fn(&GroupId) -> bool) -> Option<Candidate> {
        self.feed.skip_to(order);
        loop {
            let candidate = self.feed.next_task()?;
            let group = GroupId::new(run, &candidate.id);
            if !self.has(&group) && !plays(&group) {
                return Some(candidate);
            }
        }
    }

    /// All tasks that ledgers have handed back.
    pub(crate) fn take_reclaimed(&mut self) -> Vec<Candidate> {
        self.reclaimed.drain(..).collect()
    }

    /// The tasks of a broken round that ledgers have handed back, each once, without those that
    /// `skip` names; and the deliveries to ack, since ledgers have the tasks. Left unacked, a round
    /// of more groups than are delivered at once would never be complete.
    pub(crate) fn take_broken_round(
        &mut self,
        run: &RunId,
        skip: impl Fn(&GroupId) -> bool,
    ) -> (Vec<Candidate>, Vec<Delivery>) {
        let (mut groups, mut held, mut acks) = (BTreeSet::new(), Vec::new(), Vec::new());
        for mut candidate in std::mem::take(&mut self.reclaimed) {
            let group = GroupId::new(run, &candidate.id);
            acks.extend(candidate.delivery.take());
            if !self.has(&group) && !skip(&group) && groups.insert(group) {
                held.push(candidate);
            }
        }
        (held, acks)
    }

    /// Keeps the tasks of a broken round that is not complete yet.
    pub(crate) fn keep_reclaimed(&mut self, held: Vec<Candidate>) {
        self.reclaimed = held.into();
    }

    /// Begins to admit a task, unless its group is under way. `plays`: the group is being played.
    pub(crate) fn take(&mut self, group: GroupId, candidate: Candidate, plays: bool) -> Taken {
        if plays || self.has(&group) {
            let ack = match self.admitting.get_mut(&group) {
                Some(admitting) => admitting.add_copy(candidate.delivery),
                None => candidate.delivery,
            };
            return Taken { group: None, ack };
        }
        broker::fail::point("task.taken");
        let order = candidate.order.unwrap_or(self.next_order);
        self.next_order += u64::from(candidate.order.is_none());
        self.admitting.insert(group, Admitting::new(candidate, order));
        Taken {
            group: Some(group),
            ack: None,
        }
    }

    /// The requests for room for these groups, each to its next agent, in frames.
    pub(crate) fn requests(&mut self, groups: &[GroupId], env: &Env) -> Vec<(AgentName, Vec<Reserve>)> {
        let trainers = env.trainers();
        let mut by_agent: BTreeMap<AgentName, Vec<Reserve>> = BTreeMap::new();
        for group in groups {
            if let Some(admitting) = self.admitting.get_mut(group)
                && let Some(agent) = admitting.next_agent(&trainers)
            {
                admitting.ask_at(Instant::now() + UNANSWERED);
                let request = admitting.request(*group, env);
                by_agent.entry(agent.clone()).or_default().push(request);
            }
        }
        let mut all = Vec::new();
        for (agent, mut list) in by_agent {
            list.sort_by_key(|reserve| reserve.order);
            all.extend(frames(list, env.bundle_cap()).map(|frame| (agent.clone(), frame)));
        }
        all
    }

    /// Takes an agent's answers to requests for room.
    pub(crate) fn answered(&mut self, frame: ReserveAnswerFrame, trainers: &[AgentName]) -> Answered {
        let mut found = Answered::default();
        for answer in frame.answers {
            let Some(admitting) = self.admitting.get_mut(&answer.group) else {
                continue;
            };
            if admitting.next_agent(trainers).map(AgentName::as_str) != Some(frame.agent.as_str()) {
                continue;
            }
            match answer.verdict {
                ReserveVerdict::Later => {
                    admitting.ask_at(Instant::now() + ASK_AGAIN);
                    continue;
                }
                ReserveVerdict::Dead { reason } => {
                    tracing::debug!(group = %answer.group, reason, "a dead task came again");
                    if let Some(mut admitting) = self.admitting.remove(&answer.group) {
                        found.acks.extend(admitting.leave_the_queue());
                    }
                    continue;
                }
                ReserveVerdict::Granted => admitting.grant(),
                ReserveVerdict::Closed { .. } => {}
            }
            // The first ledger has the task open or closed: the queue need not keep it.
            broker::fail::point("task.granted");
            found.acks.extend(admitting.leave_the_queue());
            broker::fail::point("task.in-custody");
            if admitting.advance(trainers.len()) {
                found.next.push(answer.group);
            } else if let Some(admitting) = self.admitting.remove(&answer.group)
                && admitting.is_open_anywhere()
            {
                found.claims.push((answer.group, admitting));
            }
        }
        found
    }

    /// Groups with a refused or lost reservation, which is to be asked for again now.
    #[must_use]
    pub(crate) fn due(&self, now: Instant) -> Vec<GroupId> {
        let due = self.admitting.iter().filter(|(_, admitting)| admitting.is_due(now));
        due.map(|(group, _)| *group).collect()
    }
}

#[cfg(test)]
mod tests;

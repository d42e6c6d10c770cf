//! Decides a finished group: its outcome, the bundles of its agents, and a letter if its task
//! is dead. Deterministic: a later owner decides the same.

use broker::AgentName;
use broker::bus::Outgoing;
use broker::bus::letter::{self, Class, HEADER_TYPE, Refusal, Stage};
use broker::ids::GroupId;
use broker::protocol::Kind;
use broker::protocol::bundle::BundleContent;
use broker::protocol::failure::{Failure, FailureCode};
use broker::store::Lease;
use bytes::Bytes;
use rollout::group::{Assembled, GroupHead, GroupSummary, MemberEnd, Rules, assemble, compare_lengths, split};

use super::outcome::Ended;
use super::unplayed::unplayed;
use crate::base::outgoing::{self, Addressed};
use crate::coordinator::env::Env;
use crate::ledger::PUBLISHED;

/// A group that trains, with all of its conversations ended.
pub struct FinishedGroup {
    pub head: GroupHead,
    pub lease: Lease,
    pub members: Vec<MemberEnd>,
    /// The outcome that an owner before this one has written.
    pub stands: Option<Bytes>,
    /// The reason why the task goes to the dead letters, if it was found dead.
    pub dead: Option<Failure>,
    /// The task as it was published.
    pub body: Bytes,
}

/// A group that was decided, on its way to the agents.
pub struct Decided {
    pub(super) lease: Lease,
    /// The ends of its conversations, until they are in transcripts and figures.
    members: Vec<MemberEnd>,
    pub(super) assembled: Assembled,
    /// The outcome, which the store keeps once.
    pub(super) outcome: Bytes,
    /// The outcome that an owner before this one has written.
    pub(super) stands: Option<Bytes>,
    /// A dead task on its way to the dead letters.
    pub(super) letter: Option<Outgoing>,
}

impl FinishedGroup {
    /// Decides the group.
    #[must_use]
    pub fn decide(mut self, env: &Env, rules: &Rules) -> Decided {
        compare_lengths(rules, &mut self.members);
        let (assembled, dead) = match self.dead.take() {
            Some(failure) => (
                closed_as_dead(&self.head, env, &failure, GroupSummary::default()),
                Some(failure),
            ),
            None => self.assembled(env, rules),
        };
        let outcome = Ended::of(&self.members, dead.clone()).outcome(&assembled);
        let letter = dead.map(|failure| self.letter(env, &failure));
        Decided {
            lease: self.lease,
            members: self.members,
            assembled,
            outcome,
            stands: self.stands,
            letter,
        }
    }

    /// The bundles of the group, and why its task goes to the dead letters, if it does.
    fn assembled(&self, env: &Env, rules: &Rules) -> (Assembled, Option<Failure>) {
        let published = self.head.order >= PUBLISHED;
        let assembled = assemble(&self.head, rules, &self.members);
        let assembled = sendable(&self.head, assembled, env.bundle_cap());
        match unplayed(&self.members, &assembled.summary, rules.min_valid, published) {
            Some(failure) => {
                let closed = closed_as_dead(&self.head, env, &failure, assembled.summary);
                (closed, Some(failure))
            }
            None => (assembled, None),
        }
    }

    /// The task as it was published, on its way to the dead letters.
    fn letter(&self, env: &Env, failure: &Failure) -> Outgoing {
        let came_with = [("run".to_owned(), env.run.to_string())];
        let class = match failure.code {
            FailureCode::Crashed => Class::Crashed,
            _ => Class::Unplayed,
        };
        let refusal = Refusal::new(class, failure.to_string());
        let mut headers = letter::headers(&came_with, Stage::Play, &refusal, &env.topology.tasks().name);
        headers.push((HEADER_TYPE.into(), Kind::Task.to_string()));
        let to = env.topology.to(&env.topology.dead());
        outgoing::durable(to, Kind::Task, self.body.clone())
            .with_id(self.head.task.clone())
            .about(self.head.group)
            .with_headers(headers)
    }
}

impl Decided {
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.lease.group
    }

    #[must_use]
    pub fn assembled(&self) -> &Assembled {
        &self.assembled
    }

    /// Returns true if the task goes to the dead letters.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.letter.is_some()
    }

    /// Returns true if an owner before this one has written the outcome, and its figures with it.
    #[must_use]
    pub fn was_decided(&self) -> bool {
        self.stands.is_some()
    }

    /// The ends of the conversations. The group keeps none.
    pub fn take_members(&mut self) -> Vec<MemberEnd> {
        std::mem::take(&mut self.members)
    }

    #[cfg(test)]
    pub fn with_bundles(lease: Lease, assembled: Assembled) -> Self {
        Self {
            lease,
            members: Vec::new(),
            assembled,
            outcome: Bytes::new(),
            stands: None,
            letter: None,
        }
    }
}

/// Bundles without samples that close the group's rows as dead.
fn closed_as_dead(head: &GroupHead, env: &Env, failure: &Failure, summary: GroupSummary) -> Assembled {
    let reason = format!("dead: {failure}");
    let empty = |agent: AgentName| {
        let content = BundleContent::Dead { reason: reason.clone() };
        (agent, head.bundle(0, content))
    };
    Assembled {
        bundles: env.trainers().into_iter().map(empty).collect(),
        summary: GroupSummary {
            empty: Some(reason.clone()),
            ..summary
        },
    }
}

/// Closes a group empty for all agents if one of its rows fits into no message. Played again, the
/// same seeds would make the same row.
fn sendable(head: &GroupHead, mut assembled: Assembled, cap: usize) -> Assembled {
    let refused = assembled
        .bundles
        .values()
        .find_map(|bundle| split(bundle.clone(), cap).err());
    if let Some(refused) = refused {
        let reason = refused.to_string();
        for bundle in assembled.bundles.values_mut() {
            *bundle = head.bundle(0, BundleContent::Empty { reason: reason.clone() });
        }
        assembled.summary.empty = Some(reason);
    }
    assembled
}

#[cfg(test)]
mod tests;

//! From a finished group to its outcome, its bundles and its transcript.

use std::time::Duration;

use actix::{AsyncContext, Context};
use broker::AgentName;
use broker::bus::letter::{self, Class, HEADER_TYPE, Refusal, Stage};
use broker::bus::{Outgoing, PublishError};
use broker::codec;
use broker::ids::GroupId;
use broker::protocol::Kind;
use broker::protocol::bundle::{Bundle, BundleContent};
use broker::protocol::failure::{Failure, FailureCode};
use broker::store::{Lease, StoreError};
use futures_util::future::join_all;
use rollout::group::{Assembled, GroupHead, GroupRun, GroupSummary, MemberEnd, assemble, compare_lengths, split};

use super::actor::{Coordinator, Input, Open, Purpose};
use super::admission::Admitting;
use super::outcome::Ended;
use super::rounds::{self, Decided};
use super::unplayed::unplayed;
use crate::base::retry;
use crate::ledger::PUBLISHED;

/// Between a group that could not be closed and its next attempt.
const REPLAY_PAUSE: Duration = Duration::from_secs(1);
/// Room left in a message for its envelope.
const ENVELOPE: usize = 4096;

impl Coordinator {
    /// Every conversation of the group has ended: decide it once, then send what it earned.
    pub(super) fn close(&mut self, group: GroupId, ctx: &mut Context<Self>) {
        let Some(open) = self.open.get_mut(&group) else { return };
        if open.closing {
            return;
        }
        open.closing = true;
        // Whoever is still asked is asked for nobody.
        open.asking.clear();
        if open.purpose != Purpose::Train {
            return self.close_eval(group);
        }
        let Some(lease) = open.lease else { return };
        let head = GroupHead {
            group,
            attempt: open.attempt,
            task: open.task_id.clone(),
            order: open.order,
        };
        let (stands, buried) = (open.decided.clone(), open.dead.clone());
        let published = open.order >= PUBLISHED;
        self.strikes.begin([group]);
        let mut members = self.take_members(group);
        compare_lengths(&self.rules, &mut members);
        let (assembled, dead) = match buried {
            Some(failure) => (self.dead(&head, &failure, GroupSummary::default()), Some(failure)),
            None => self.assembled(&head, &members, published),
        };
        self.strikes.end([group]);
        let outcome = Ended::of(&members, dead.clone()).outcome(&assembled);
        let letter = dead.and_then(|failure| self.letter(group, &failure));
        let mut decided = Decided {
            lease,
            members,
            assembled,
            outcome,
            stands,
            letter,
        };
        if self.sends_rounds() {
            // What is not sent may be played again: until then it is in no figures.
            self.round.push(decided);
        } else {
            self.record(&mut decided);
            self.send_all(vec![decided], false, ctx);
        }
    }

    /// Writes what the group came to into transcripts and figures, as it is sent; it keeps no conversations then.
    ///
    /// Whoever wrote the outcome that stands has done so. A coordinator that ends between this and the outcome leaves it to be
    /// written twice.
    pub(super) fn record(&mut self, decided: &mut Decided) {
        let (group, members) = (decided.lease.group, std::mem::take(&mut decided.members));
        if decided.stands.is_some() {
            return;
        }
        self.counters.dead_tasks += u64::from(decided.letter.is_some());
        if let Some(open) = self.open.get(&group) {
            let step = self.lead_step();
            self.tell(group, open, &members, step, &decided.assembled);
            self.talk.add(&members, |seat| self.rules.reward(seat));
            if let Some(line) = self.talk.line(step) {
                self.metrics.write(line);
            }
        }
        self.count(&decided.assembled);
    }

    /// What every conversation came to; the group keeps nothing of it.
    pub(super) fn take_members(&mut self, group: GroupId) -> Vec<MemberEnd> {
        let Some(open) = self.open.get(&group) else {
            return Vec::new();
        };
        let spec = self.run_spec(&open.task.clone(), &open.task_id.clone(), 0);
        let Some(open) = self.open.get_mut(&group) else {
            return Vec::new();
        };
        std::mem::replace(&mut open.run, GroupRun::new(spec)).finish()
    }

    /// What the conversations earned; of a task that came to nothing, why it is put to the dead letters.
    fn assembled(&self, head: &GroupHead, members: &[MemberEnd], published: bool) -> (Assembled, Option<Failure>) {
        let assembled = sendable(head, assemble(head, &self.rules, members), self.bundle_cap());
        match unplayed(members, &assembled.summary, self.rules.min_valid, published) {
            Some(failure) => (self.dead(head, &failure, assembled.summary), Some(failure)),
            None => (assembled, None),
        }
    }

    /// Bundles without samples that close the group's rows as dead.
    fn dead(&self, head: &GroupHead, failure: &Failure, summary: GroupSummary) -> Assembled {
        let reason = format!("dead: {failure}");
        let empty = |agent: AgentName| {
            let content = BundleContent::Dead { reason: reason.clone() };
            (agent, head.bundle(0, content))
        };
        Assembled {
            bundles: self.env.trainers().into_iter().map(empty).collect(),
            summary: GroupSummary {
                empty: Some(reason.clone()),
                ..summary
            },
        }
    }

    /// The task as it was published, on its way to the dead letters.
    fn letter(&self, group: GroupId, failure: &Failure) -> Option<Outgoing> {
        let open = self.open.get(&group)?;
        let came_with = [("run".to_owned(), self.env.run.to_string())];
        let class = match failure.code {
            FailureCode::Crashed => Class::Crashed,
            _ => Class::Unplayed,
        };
        let refusal = Refusal::new(class, reason);
        let mut headers = letter::headers(&came_with, Stage::Play, &refusal, &self.env.topology.tasks().name);
        headers.push((HEADER_TYPE.into(), Kind::Task.to_string()));
        Some(Outgoing {
            to: self.env.topology.to(&self.env.topology.dead()),
            kind: Kind::Task,
            message_id: open.task_id.clone(),
            correlation_id: Some(group.to_string()),
            headers,
            body: open.body.clone(),
            durable: true,
        })
    }

    fn count(&mut self, assembled: &Assembled) {
        let summary = &assembled.summary;
        self.counters.groups += 1;
        self.counters.conversations += summary.conversations as u64;
        for (failure, count) in &summary.failed {
            *self.failed.entry(failure.code.name()).or_default() += *count as u64;
        }
        if let Some(reason) = &summary.empty {
            tracing::warn!(reason, "a group closes empty");
        }
    }

    fn bundle_cap(&self) -> usize {
        usize::try_from(self.env.config.run.message_cap.0)
            .unwrap_or(usize::MAX)
            .saturating_sub(ENVELOPE)
    }

    /// Decides and sends; with `journal`, only after all of it is on disk.
    pub(super) fn send_all(&mut self, groups: Vec<Decided>, journal: bool, ctx: &mut Context<Self>) {
        let cap = self.bundle_cap();
        let (env, addr) = (self.env.clone(), ctx.address());
        tokio::spawn(async move {
            if journal {
                rounds::journal(&env, &groups, cap).await;
            }
            let sent = groups.into_iter().map(|decided| async {
                let group = decided.lease.group;
                let result = decide_and_deliver(&env, decided, cap).await;
                let _ = addr.send(Input::Closed(group, result)).await;
            });
            join_all(sent).await;
        });
    }

    pub(super) fn on_closed(&mut self, group: GroupId, outcome: Result<(), StoreError>, ctx: &mut Context<Self>) {
        match outcome {
            Ok(()) => {
                if self.open.remove(&group).is_some() {
                    self.gate.sent(1);
                }
                self.strikes.forget(&group);
            }
            Err(error) => {
                let Some(open) = self.open.remove(&group) else { return };
                let Some(lease) = open.lease else { return };
                tracing::warn!(%group, %error, "a group could not be closed as played; beginning it anew");
                // Not at once: what refused it may refuse it again. Until then it counts as being claimed.
                self.claiming.insert(group, Admitting::reserved(open));
                ctx.run_later(REPLAY_PAUSE, move |actor, ctx| {
                    if let Some(admitting) = actor.claiming.remove(&group) {
                        actor.void(group, admitting, lease, ctx);
                    }
                });
            }
        }
    }
}

impl Open {
    /// The task is put to the dead letters: what is under way is not waited for by anybody.
    pub(super) fn bury(&mut self, failure: Failure) {
        let mut member = 0;
        while !self.run.is_done() {
            self.run.give_up(member, failure.clone());
            member += 1;
        }
        self.dead = Some(failure);
    }
}

/// A group with a row that fits into no message closes empty for all agents: played again, the same seeds would make the
/// same row, for ever.
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

async fn decide_and_deliver(env: &super::Env, decided: Decided, cap: usize) -> Result<(), StoreError> {
    let Decided {
        lease,
        assembled,
        outcome,
        stands,
        letter,
        ..
    } = decided;
    let standing = match stands {
        Some(bytes) => bytes,
        None => retry::settle("decide", || env.store.decide(lease, outcome.clone())).await?,
    };
    broker::fail::point("group.decided");
    if standing != outcome {
        // Another outcome stands: what we hold is not what was decided.
        return Err(StoreError::Stale);
    }
    // A dead task lies with the dead letters before any ledger gives up its custody.
    if let Some(letter) = letter {
        retry::publish(&env.bus, letter)
            .await
            .map_err(|error| StoreError::Unusable(format!("the dead letters do not take a task: {error}")))?;
    }
    deliver(env, lease, assembled, cap).await
}

/// A bundle in parts that fit into messages.
pub(super) fn parts(bundle: Bundle, cap: usize) -> Vec<Bundle> {
    split(bundle, cap).unwrap_or_default()
}

/// Sends every bundle and returns when all are confirmed.
async fn deliver(env: &super::Env, lease: Lease, assembled: Assembled, cap: usize) -> Result<(), StoreError> {
    for (agent, bundle) in assembled.bundles {
        let parts = split(bundle, cap).map_err(|error| StoreError::Unusable(error.to_string()))?;
        for part in parts {
            match retry::publish(&env.bus, bundle_message(env, &agent, &part)).await {
                Ok(()) => broker::fail::point("bundle.part-sent"),
                Err(PublishError::Unroutable(to)) => {
                    return Err(StoreError::Unusable(format!(
                        "agent {agent} has no samples queue ({to})"
                    )));
                }
                Err(error) => return Err(StoreError::Unusable(error.to_string())),
            }
        }
    }
    broker::fail::point("bundle.sent");
    // Forgetting it later is harmless.
    let _ = retry::settle("finish", || env.store.finish(lease)).await;
    Ok(())
}

pub(super) fn bundle_message(env: &super::Env, agent: &AgentName, bundle: &Bundle) -> Outgoing {
    Outgoing {
        to: env.topology.to(&env.topology.samples(agent)),
        kind: Kind::Bundle,
        message_id: format!("{}-{agent}-{}-{}", bundle.group, bundle.attempt, bundle.part),
        correlation_id: Some(bundle.group.to_string()),
        headers: vec![
            ("run".into(), env.run.to_string()),
            ("agent".into(), agent.to_string()),
            ("group".into(), bundle.group.to_string()),
            ("task".into(), bundle.task.clone()),
        ],
        body: codec::encode(bundle).into(),
        durable: true,
    }
}

#[cfg(test)]
mod tests;

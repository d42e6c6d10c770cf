//! Custody before work: each agent that trains writes the group into its ledger, in config order, then the group is claimed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{AsyncContext, Context};
use broker::AgentName;
use broker::bus::{Delivery, Outgoing};
use broker::codec;
use broker::ids::{Attempt, GroupId};
use broker::protocol::Kind;
use broker::protocol::control::RunPhase;
use broker::protocol::reserve::{Reserve, ReserveAnswerFrame, ReserveFrame, ReserveVerdict};
use broker::protocol::task::Task;
use broker::store::{Claim, Claimed, Lease, StoreError};
use rollout::group::GroupRun;

use super::actor::{Coordinator, Input, Open, Purpose};
use super::io;

/// Reservations per frame at most.
const RESERVES_PER_FRAME: usize = 64;
/// After how long an unanswered or refused reservation is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
const UNANSWERED: Duration = Duration::from_secs(10);

/// A task that waits to be admitted.
#[derive(Clone)]
pub struct Candidate {
    pub task: Arc<Task>,
    pub id: String,
    /// Its place in the run's own source.
    pub order: Option<u64>,
    pub body: bytes::Bytes,
    /// None for the run's own source, which makes its tasks again.
    pub delivery: Option<Delivery>,
    /// A ledger holds it already: it needs no room, and is finished whatever the phase.
    pub held: bool,
}

/// A group on its way through the agents' ledgers.
pub struct Admitting {
    pub candidate: Candidate,
    pub order: u64,
    /// Index into the agents that train: whose answer is awaited.
    at: usize,
    /// Whether some ledger holds it open, so that there is work left to do.
    any_open: bool,
    ask_at: Instant,
    /// Owner's (beat, fence) as another coordinator's claim stood when we looked.
    watched: Option<(u64, u64)>,
}

impl Admitting {
    /// Of a group whose rows are reserved already.
    pub(super) fn reserved(open: Open) -> Self {
        let body = codec::encode_json(open.task.as_ref());
        let candidate = Candidate {
            task: open.task,
            id: open.task_id,
            order: Some(open.order),
            body: body.into(),
            delivery: None,
            held: true,
        };
        Self {
            candidate,
            order: open.order,
            at: 0,
            any_open: true,
            ask_at: Instant::now(),
            watched: None,
        }
    }
}

impl Coordinator {
    /// Takes as many tasks as there is room for: published ones first, then the run's own.
    pub(super) fn admit(&mut self, ctx: &mut Context<Self>) {
        let held: Vec<Candidate> = self.reclaimed.drain(..).collect();
        let mut admitted: Vec<GroupId> = held.into_iter().filter_map(|candidate| self.take(candidate)).collect();
        let room = if self.may_admit() {
            self.gate.room(self.held_groups())
        } else {
            0
        };
        for _ in 0..room {
            let Some(candidate) = self.waiting.pop_front().or_else(|| self.feed.next_task()) else {
                break;
            };
            admitted.extend(self.take(candidate));
        }
        self.reserve(&admitted, ctx);
    }

    fn may_admit(&self) -> bool {
        self.phase == RunPhase::Running && !self.evals.blocks_admission(self.env.config.run.mode)
    }

    /// Begins to admit a task, unless its group is under way here.
    fn take(&mut self, candidate: Candidate) -> Option<GroupId> {
        let group = GroupId::new(&self.env.run, &candidate.id);
        if self.known(&group) {
            ack(candidate.delivery);
            return None;
        }
        let order = candidate.order.unwrap_or(self.next_order);
        self.next_order += u64::from(candidate.order.is_none());
        let admitting = Admitting {
            candidate,
            order,
            at: 0,
            any_open: false,
            ask_at: Instant::now(),
            watched: None,
        };
        self.admitting.insert(group, admitting);
        Some(group)
    }

    fn known(&self, group: &GroupId) -> bool {
        self.admitting.contains_key(group) || self.claiming.contains_key(group) || self.open.contains_key(group)
    }

    /// Asks each group's next agent for room.
    fn reserve(&mut self, groups: &[GroupId], _: &mut Context<Self>) {
        let trainers = self.env.trainers();
        let mut by_agent: BTreeMap<AgentName, Vec<Reserve>> = BTreeMap::new();
        for group in groups {
            let Some(admitting) = self.admitting.get_mut(group) else {
                continue;
            };
            let Some(agent) = trainers.get(admitting.at) else {
                continue;
            };
            admitting.ask_at = Instant::now() + UNANSWERED;
            by_agent.entry(agent.clone()).or_default().push(Reserve {
                group: *group,
                task: admitting.candidate.id.clone(),
                order: admitting.order,
                body: admitting.candidate.body.to_vec(),
            });
        }
        for (agent, mut list) in by_agent {
            list.sort_by_key(|reserve| reserve.order);
            for chunk in list.chunks(RESERVES_PER_FRAME) {
                self.send_reserve(&agent, chunk.to_vec());
            }
        }
    }

    fn send_reserve(&self, agent: &AgentName, requests: Vec<Reserve>) {
        let frame = ReserveFrame {
            reply_to: self.env.incarnation.clone(),
            requests,
        };
        let body = codec::encode(&frame);
        let message = Outgoing {
            to: self.env.topology.to(&self.env.topology.reserve(agent)),
            kind: Kind::Reserve,
            message_id: broker::ids::Digest::of(&body).to_string(),
            correlation_id: None,
            headers: vec![
                ("run".into(), self.env.run.to_string()),
                ("agent".into(), agent.to_string()),
            ],
            body: body.into(),
            durable: true,
        };
        let bus = self.env.bus.clone();
        tokio::spawn(async move {
            if let Err(error) = io::publish(&bus, message).await {
                tracing::warn!(%error, "a reservation was not sent; it is asked for again");
            }
        });
    }

    pub(super) fn on_answers(&mut self, frame: ReserveAnswerFrame, delivery: Delivery, ctx: &mut Context<Self>) {
        let trainers = self.env.trainers();
        let mut next = Vec::new();
        for answer in frame.answers {
            let Some(admitting) = self.admitting.get_mut(&answer.group) else {
                continue;
            };
            if trainers.get(admitting.at).map(AgentName::as_str) != Some(frame.agent.as_str()) {
                continue;
            }
            match answer.verdict {
                ReserveVerdict::Later => {
                    admitting.ask_at = Instant::now() + ASK_AGAIN;
                    continue;
                }
                ReserveVerdict::Dead { reason } => {
                    tracing::debug!(group = %answer.group, reason, "a dead task came again");
                    if let Some(admitting) = self.admitting.remove(&answer.group) {
                        ack(admitting.candidate.delivery);
                    }
                    continue;
                }
                ReserveVerdict::Granted => admitting.any_open = true,
                ReserveVerdict::Closed { .. } => {}
            }
            // The first ledger holds the task (or has closed it): the queue need not.
            ack(admitting.candidate.delivery.take());
            admitting.at += 1;
            if admitting.at < trainers.len() {
                next.push(answer.group);
            } else if let Some(admitting) = self.admitting.remove(&answer.group)
                && admitting.any_open
            {
                self.claim(answer.group, admitting, ctx);
            }
        }
        ack(Some(delivery));
        self.reserve(&next, ctx);
    }

    /// Asks again for what was refused or lost.
    pub(super) fn retry_admissions(&mut self, ctx: &mut Context<Self>) {
        let now = Instant::now();
        let due: Vec<GroupId> = self
            .admitting
            .iter()
            .filter(|(_, a)| a.ask_at <= now)
            .map(|(group, _)| *group)
            .collect();
        self.reserve(&due, ctx);
    }

    fn claim(&mut self, group: GroupId, admitting: Admitting, ctx: &mut Context<Self>) {
        let (store, owner, addr) = (self.env.store.clone(), self.env.incarnation.clone(), ctx.address());
        let silent = admitting.watched;
        self.claiming.insert(group, admitting);
        tokio::spawn(async move {
            let fresh = Attempt(crate::ids::random_bytes());
            let claim = io::settle("claim", || store.claim(group, &owner, fresh, silent)).await;
            let _ = addr.send(Input::Claimed(group, claim)).await;
        });
    }

    /// After a group was lost: its rows are still reserved, so its claim is all that is needed.
    pub(super) fn claim_again(&mut self, group: GroupId, open: Open, ctx: &mut Context<Self>) {
        if open.purpose == Purpose::Train {
            self.claim(group, Admitting::reserved(open), ctx);
        }
    }

    pub(super) fn on_claimed(&mut self, group: GroupId, claim: Result<Claim, StoreError>, ctx: &mut Context<Self>) {
        let Some(mut admitting) = self.claiming.remove(&group) else {
            return;
        };
        match claim {
            Ok(Claim::Ours(claimed)) => self.open_group(group, admitting, claimed, ctx),
            Ok(Claim::Theirs { owner, beat, fence }) => {
                if admitting.watched.is_none() {
                    tracing::debug!(%group, owner, "another coordinator plays this group; watching it");
                    admitting.watched = Some((beat, fence));
                    self.watch(group, admitting, ctx);
                }
                // The beat has moved: its owner lives, and the group is its business.
            }
            Err(error) => {
                tracing::warn!(%group, %error, "a claim failed; trying again");
                self.watch(group, admitting, ctx);
            }
        }
    }

    /// Claims again after a lease's time on our own clock.
    fn watch(&mut self, group: GroupId, admitting: Admitting, ctx: &mut Context<Self>) {
        self.claiming.insert(group, admitting);
        ctx.run_later(self.env.config.run.lease.0, move |actor, ctx| {
            if let Some(admitting) = actor.claiming.remove(&group) {
                actor.claim(group, admitting, ctx);
            }
        });
    }

    fn open_group(&mut self, group: GroupId, admitting: Admitting, claimed: Claimed, ctx: &mut Context<Self>) {
        let candidate = &admitting.candidate;
        let spec = self.run_spec(&candidate.task, &candidate.id, self.env.config.workflow.group_size);
        let committed = claimed.records.iter().filter_map(super::turns::read_record);
        let run = match GroupRun::restore(spec, committed) {
            Ok(run) => run,
            Err(error) => {
                tracing::warn!(%group, %error, "the stored turns are not of this group; beginning it anew");
                return self.void(group, admitting, claimed.lease, ctx);
            }
        };
        let open = Open {
            run,
            purpose: Purpose::Train,
            attempt: claimed.lease.attempt,
            lease: Some(claimed.lease),
            task: admitting.candidate.task,
            task_id: admitting.candidate.id,
            order: admitting.order,
            moved: Instant::now(),
            outstanding: 0,
            closing: false,
            decided: claimed.decided,
        };
        self.open.insert(group, open);
        self.dirty.insert(group);
    }

    /// Forgets what is stored of a group and begins a new attempt; its rows stay reserved.
    pub(super) fn void(&mut self, group: GroupId, admitting: Admitting, lease: Lease, ctx: &mut Context<Self>) {
        let (store, owner, addr) = (self.env.store.clone(), self.env.incarnation.clone(), ctx.address());
        self.claiming.insert(group, admitting);
        tokio::spawn(async move {
            // Stale: another has it, and the claim will say so.
            let _ = io::settle("void", || store.void(lease)).await;
            let fresh = Attempt(crate::ids::random_bytes());
            let claim = io::settle("claim", || store.claim(group, &owner, fresh, None)).await;
            let _ = addr.send(Input::Claimed(group, claim)).await;
        });
    }
}

/// Acks beside the actor; a lost ack only means that the message comes again.
pub(super) fn ack(delivery: Option<Delivery>) {
    if let Some(delivery) = delivery {
        tokio::spawn(async move { delivery.ack().await });
    }
}

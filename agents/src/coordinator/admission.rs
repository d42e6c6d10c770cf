//! Custody before work: each agent that trains writes the group into its ledger, in config order, then the group is claimed.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::{AsyncContext, Context};
use broker::AgentName;
use broker::bus::{Delivery, Outgoing};
use broker::codec;
use broker::ids::{Attempt, GroupId};
use broker::protocol::Kind;
use broker::protocol::control::RunPhase;
use broker::protocol::failure::Failure;
use broker::protocol::reserve::{Reserve, ReserveAnswerFrame, ReserveFrame, ReserveVerdict};
use broker::store::{Claim, Claimed, Lease, StoreError};
use configs::Mode;
use rollout::group::GroupRun;
use tokio::time::Instant;

use super::actor::{Coordinator, Input, Open, Purpose};
use super::outcome::Ended;
use crate::base::retry;
use crate::run_folder::crash_marks::{OUT, Standing};
use crate::turn::tasks::Candidate;

/// Reservations per frame at most.
const RESERVES_PER_FRAME: usize = 64;
/// After how long an unanswered or refused reservation is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
const UNANSWERED: Duration = Duration::from_secs(10);

/// A group on its way through the agents' ledgers.
pub struct Admitting {
    pub candidate: Candidate,
    pub order: u64,
    /// More messages of the task that came before any ledger had it, or the same again over another channel: each is as good
    /// as the first, and if we die now one of them must come again.
    also: Vec<Delivery>,
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
        let candidate = Candidate {
            task: open.task,
            id: open.task_id,
            order: Some(open.order),
            body: open.body,
            delivery: None,
            held: true,
        };
        Self {
            candidate,
            order: open.order,
            also: Vec::new(),
            at: 0,
            any_open: true,
            ask_at: Instant::now(),
            watched: None,
        }
    }

    /// Whether the queue still has it, and no ledger perhaps.
    fn is_in_a_queue(&self) -> bool {
        self.candidate.delivery.is_some()
    }

    /// A ledger has it, or it is dead: the queue need not.
    fn leave_the_queue(&mut self) {
        ack(self.candidate.delivery.take());
        self.also.drain(..).for_each(|delivery| ack(Some(delivery)));
    }
}

impl Coordinator {
    /// Takes as many tasks as there is room for: published ones first, then the run's own.
    pub(super) fn admit(&mut self, ctx: &mut Context<Self>) {
        if self.snapshot.is_some() {
            return;
        }
        let sync = self.env.config.run.mode == Mode::Sync;
        let (held, fill) = if sync {
            self.broken_round()
        } else {
            (self.reclaimed.drain(..).collect(), 0)
        };
        let mut admitted: Vec<GroupId> = held.into_iter().filter_map(|candidate| self.take(candidate)).collect();
        let room = match self.may_admit() {
            true if fill > 0 => fill,
            true => self.gate.room(self.held_groups()),
            false => 0,
        };
        for _ in 0..room {
            let Some(candidate) = self.waiting.pop_front().or_else(|| self.own_task()) else {
                break;
            };
            admitted.extend(self.take(candidate));
        }
        self.reserve(&admitted, ctx);
    }

    fn may_admit(&self) -> bool {
        self.admits_published() && !self.evals.blocks_admission(self.env.config.run.mode)
    }

    /// The next task of the run's own source that is not under way here.
    fn own_task(&mut self) -> Option<Candidate> {
        if self.run.phase != RunPhase::Running {
            return None;
        }
        // What every ledger has need not be asked again; another coordinator may have walked there before us.
        self.feed.skip_to(self.gate.next_order());
        loop {
            let candidate = self.feed.next_task()?;
            if !self.known(&GroupId::new(&self.env.run, &candidate.id)) {
                return Some(candidate);
            }
        }
    }

    /// Begins to admit a task, unless its group is under way here.
    fn take(&mut self, mut candidate: Candidate) -> Option<GroupId> {
        let group = GroupId::new(&self.env.run, &candidate.id);
        if self.known(&group) {
            let admitting = self.admitting.get_mut(&group);
            match admitting.filter(|admitting| admitting.is_in_a_queue()) {
                Some(admitting) => admitting.also.extend(candidate.delivery),
                None => ack(candidate.delivery),
            }
            return None;
        }
        if !broker::mutant::stands("task.custody") {
            ack(candidate.delivery.take());
        }
        broker::fail::point("task.taken");
        let order = candidate.order.unwrap_or(self.next_order);
        self.next_order += u64::from(candidate.order.is_none());
        let admitting = Admitting {
            candidate,
            order,
            also: Vec::new(),
            at: 0,
            any_open: false,
            ask_at: Instant::now(),
            watched: None,
        };
        self.admitting.insert(group, admitting);
        Some(group)
    }

    pub(super) fn known(&self, group: &GroupId) -> bool {
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
                seal: self.env.seal.as_ref().map(|key| {
                    let candidate = &admitting.candidate;
                    key.seal(&self.env.run, &candidate.id, admitting.order, &candidate.body)
                }),
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
            if let Err(error) = retry::publish(&bus, message).await {
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
                    if let Some(mut admitting) = self.admitting.remove(&answer.group) {
                        admitting.leave_the_queue();
                    }
                    continue;
                }
                ReserveVerdict::Granted => admitting.any_open = true,
                ReserveVerdict::Closed { .. } => {}
            }
            // The first ledger holds the task (or has closed it): the queue need not.
            broker::fail::point("task.granted");
            admitting.leave_the_queue();
            broker::fail::point("task.in-custody");
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

    pub(super) fn claim(&mut self, group: GroupId, admitting: Admitting, ctx: &mut Context<Self>) {
        let Some(admitting) = self.hold_back(group, admitting) else {
            return;
        };
        let (store, owner, addr) = (self.env.store.clone(), self.env.incarnation.clone(), ctx.address());
        let silent = admitting.watched;
        self.claiming.insert(group, admitting);
        tokio::spawn(async move {
            let fresh = Attempt(crate::base::ids::random_bytes());
            let claim = retry::settle("claim", || store.claim(group, &owner, fresh, silent)).await;
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
            Ok(Claim::Ours(claimed)) => {
                broker::fail::point("group.claimed");
                self.open_group(group, admitting, claimed, ctx);
            }
            Ok(Claim::Theirs { owner, beat, fence }) => {
                // A beat that has gone back says that the store has, and nothing of the owner.
                if admitting
                    .watched
                    .is_none_or(|(seen, owned)| (fence, beat) < (owned, seen))
                {
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
        // What an owner before us has decided of it is in no record.
        let ended = claimed.decided.as_deref().map(Ended::read).unwrap_or_default();
        let out = (self.strikes.standing(&group) == Standing::Out).then(|| {
            Failure::crashed(format_args!(
                "the coordinator died {OUT} times while it worked on this group"
            ))
        });
        let dead = ended.dead.or(out);
        self.patched |= !claimed.records.is_empty();
        // Of a dead task nothing is played.
        let size = if dead.is_some() {
            0
        } else {
            self.env.config.workflow.group_size
        };
        let spec = self.run_spec(&candidate.task, &candidate.id, size);
        let committed = claimed.records.iter().filter_map(super::commits::read_record);
        self.strikes.begin([group]);
        let run = if dead.is_some() {
            Ok(GroupRun::new(spec))
        } else {
            // Where what a workflow makes of the task may end the process.
            broker::fail::point_of("group.opened", &group);
            GroupRun::restore(spec, committed)
        };
        self.strikes.end([group]);
        let run = match run {
            Ok(mut run) => {
                run.give_up_all(ended.failed);
                run
            }
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
            committing: 0,
            closing: false,
            decided: claimed.decided,
            body: admitting.candidate.body,
            dead,
            asking: Vec::new(),
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
            let _ = retry::settle("void", || store.void(lease)).await;
            let fresh = Attempt(crate::base::ids::random_bytes());
            let claim = retry::settle("claim", || store.claim(group, &owner, fresh, None)).await;
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

//! Custody before work: each agent that trains writes a group into its ledger, in the order of the
//! configuration; then the group is claimed.

use actix::Context;
use broker::bus::Delivery;
use broker::ids::GroupId;
use broker::protocol::control::RunPhase;
use broker::protocol::reserve::ReserveAnswerFrame;
use tokio::time::Instant;

use super::Coordinator;
use crate::coordinator::admission::queues::{ack, send_requests};
use crate::coordinator::rounds;
use crate::turn::tasks::Candidate;

impl Coordinator {
    /// Takes as many tasks as there is room for: published tasks first, then the run's own.
    pub(super) fn admit(&mut self) {
        if self.snapshots.is_under_way() {
            return;
        }
        let (held, fill) = if self.is_sync() {
            self.broken_round()
        } else {
            (self.admission.take_reclaimed(), 0)
        };
        let mut admitted: Vec<GroupId> = held.into_iter().filter_map(|candidate| self.take(candidate)).collect();
        let room = match self.may_admit() {
            true if fill > 0 => fill,
            true => self.peers.gate().room(self.held_groups()),
            false => 0,
        };
        for _ in 0..room {
            let Some(candidate) = self.admission.next_waiting().or_else(|| self.own_task()) else {
                break;
            };
            admitted.extend(self.take(candidate));
        }
        self.reserve(&admitted);
    }

    fn may_admit(&self) -> bool {
        self.admits_published() && !self.evals.blocks_admission(self.env.config.run.mode)
    }

    /// The groups that ledgers have handed back, once all of their round are here, and the number
    /// of fresh groups that the round needs.
    pub(super) fn broken_round(&mut self) -> (Vec<Candidate>, u64) {
        let (play, rounds) = (&self.play, &self.rounds);
        let skip = |group: &GroupId| play.has(group) || rounds.was_resent(group);
        let (back, acks) = self.admission.take_broken_round(&self.env.run, skip);
        acks.into_iter().for_each(ack);
        let (count, held, phase) = (back.len(), self.held_groups(), self.lifecycle.phase());
        match rounds::room_left(count as u64, held, phase, self.peers.gate()) {
            Some(fill) => {
                tracing::info!(groups = count, more = fill, "playing a broken round again");
                (back, fill)
            }
            None => {
                self.admission.keep_reclaimed(back);
                (Vec::new(), 0)
            }
        }
    }

    /// The next task of the run's own source that is not under way here.
    fn own_task(&mut self) -> Option<Candidate> {
        if self.lifecycle.phase() != RunPhase::Running {
            return None;
        }
        let (order, play) = (self.peers.gate().next_order(), &self.play);
        self.admission.next_own(&self.env.run, order, |group| play.has(group))
    }

    fn take(&mut self, candidate: Candidate) -> Option<GroupId> {
        let group = GroupId::new(&self.env.run, &candidate.id);
        let own = candidate.order.is_some();
        let taken = self.admission.take(group, candidate, self.play.has(&group));
        match taken.group {
            Some(_) => self.figures.observed().admitted(own),
            None => self.figures.observed().task(own, "duplicate"),
        }
        taken.ack.into_iter().for_each(ack);
        taken.group
    }

    /// Asks each group's next agent for room.
    fn reserve(&mut self, groups: &[GroupId]) {
        for (agent, requests) in self.admission.requests(groups, &self.env) {
            send_requests(&self.env, &agent, requests);
        }
    }

    pub(super) fn on_answers(&mut self, frame: ReserveAnswerFrame, delivery: Delivery, ctx: &mut Context<Self>) {
        let answered = self.admission.answered(frame, &self.env.trainers());
        answered.acks.into_iter().for_each(ack);
        for (group, admitting) in answered.claims {
            self.claim(group, admitting, ctx);
        }
        ack(delivery);
        self.reserve(&answered.next);
    }

    /// Asks again for room that was refused, or after its request was lost.
    pub(super) fn retry_admissions(&mut self) {
        let due = self.admission.due(Instant::now());
        self.reserve(&due);
    }
}

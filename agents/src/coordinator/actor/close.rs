//! From a finished group to its bundles, alone or with its round.

use std::time::Duration;

use actix::Context;
use broker::ids::GroupId;
use broker::store::StoreError;
use rollout::group::GroupHead;

use super::{Coordinator, mailbox};
use crate::coordinator::admission::Admitting;
use crate::coordinator::closing::{Decided, FinishedGroup, send_all};
use crate::coordinator::figures::observed::GroupEnd;
use crate::coordinator::transcripts::{self, shared, traced};
use crate::ledger::PUBLISHED;

/// The pause before the next attempt of a group that could not be closed: what refused it may
/// refuse it again.
const REPLAY_PAUSE: Duration = Duration::from_secs(1);

impl Coordinator {
    /// Decides a group once all of its conversations have ended, and sends what it earned.
    pub(super) fn close(&mut self, group: GroupId, ctx: &mut Context<Self>) {
        if !self.play.begin_close(&group) {
            return;
        }
        let Some(open) = self.play.get(&group) else { return };
        if !open.trains() {
            return self.close_evaluation(group);
        }
        let Some(lease) = open.lease else { return };
        let head = GroupHead {
            group,
            attempt: open.attempt,
            task: open.task_id.clone(),
            order: open.order,
        };
        let (stands, dead, body) = (open.decided.clone(), open.dead.clone(), open.body.clone());
        let empty = self.specs.run_spec(&open.task, &open.task_id, 0);
        // Workflows and graders that read a text may end the process.
        self.strikes.begin([group]);
        let finished = FinishedGroup {
            head,
            lease,
            members: self.play.take_members(&group, empty),
            stands,
            dead,
            body,
        };
        let mut decided = finished.decide(&self.env, self.specs.rules());
        self.strikes.end([group]);
        if self.is_sync() {
            // A group that is not sent yet may be played again: until then it is in no figures.
            self.rounds.add(decided);
        } else {
            self.record(&mut decided);
            send_all(&self.env, mailbox(ctx), vec![decided], false);
        }
    }

    /// Writes a group into transcripts and figures as it is sent.
    ///
    /// The coordinator that wrote the outcome that stands has done so. If a coordinator ends
    /// between this and the outcome, the next one writes them a second time.
    fn record(&mut self, decided: &mut Decided) {
        let members = decided.take_members();
        if decided.was_decided() {
            return;
        }
        let group = decided.group();
        let own = self.play.get(&group).is_some_and(|open| open.order < PUBLISHED);
        if decided.is_dead() {
            self.figures.count_dead_task(own);
        }
        if let Some(open) = self.play.get(&group) {
            let (step, assembled) = (self.lead_step(), decided.assembled());
            let written = transcripts::of_group(&self.specs, group, open, &members, step, Some(assembled));
            written.iter().for_each(|one| self.figures.write_transcript(one));
            traced::send_group(&self.env.traces, &self.specs, group, open, &members, Some(assembled));
            shared::send_group(&self.env, self.specs.rules(), group, &members);
            let took = |number| open.times.conversation(number);
            self.figures.add_conversations(&members, self.specs.rules(), step, took);
        }
        self.figures.count_group(decided.assembled(), own);
        let end = match (decided.is_dead(), &decided.assembled().summary.empty) {
            (true, _) => GroupEnd::Dead,
            (false, Some(_)) => GroupEnd::Empty,
            (false, None) => GroupEnd::Closed,
        };
        self.figures.observed().group(end);
    }

    /// Takes back the groups of a broken round that have begun. Call it between waves.
    pub(super) fn restart_broken_round(&mut self, ctx: &mut Context<Self>) {
        for group in self.rounds.restart(self.play.iter()) {
            if let Some(open) = self.play.remove(&group)
                && let Some(lease) = open.lease
            {
                self.void(group, Admitting::reserved(open), lease, ctx);
            }
        }
    }

    /// Sends the bundles of a round when its last group has ended.
    pub(super) fn send_round(&mut self, ctx: &mut Context<Self>) {
        let plays = self.play.training().any(|(_, open)| !open.closing);
        if self.rounds.is_empty() || plays || !self.admission.is_idle() {
            return;
        }
        let mut round = self.rounds.take(|group| self.play.order(group));
        round.iter_mut().for_each(|decided| self.record(decided));
        send_all(&self.env, mailbox(ctx), round, self.env.alone);
    }

    pub(super) fn on_closed(&mut self, group: GroupId, outcome: Result<(), StoreError>, ctx: &mut Context<Self>) {
        let open = self.play.remove(&group);
        let Err(error) = outcome else {
            if open.is_some() {
                self.peers.sent_group();
            }
            return self.strikes.forget(&group);
        };
        let Some((open, lease)) = open.and_then(|open| open.lease.map(|lease| (open, lease))) else {
            return;
        };
        tracing::warn!(%group, %error, "a group could not be closed as played; beginning it again");
        let admitting = Admitting::reserved(open);
        self.later(group, admitting, REPLAY_PAUSE, ctx, move |actor, admitting, ctx| {
            actor.void(group, admitting, lease, ctx);
        });
    }
}

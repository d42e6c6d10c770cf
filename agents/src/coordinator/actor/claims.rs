//! Claims and leases: groups become ours, are lost, and are given up at a stop.

use std::time::Duration;

use actix::{AsyncContext, Context};
use broker::ids::GroupId;
use broker::protocol::failure::Failure;
use broker::store::{Claim, Claimed, Lease, StoreError};
use rollout::group::GroupRun;
use tokio::sync::oneshot;

use super::{Coordinator, mailbox};
use crate::coordinator::admission::{Admitting, Claiming, store};
use crate::coordinator::closing::outcome::Ended;
use crate::coordinator::figures::observed::GroupEnd;
use crate::coordinator::play::{Open, read_record};
use crate::coordinator::specs::Purpose;
use crate::run_folder::crash_marks::{Isolation, OUT};

impl Coordinator {
    /// Claims a group, after the snapshot if one is under way.
    pub(super) fn claim(&mut self, group: GroupId, admitting: Admitting, ctx: &mut Context<Self>) {
        let Some(admitting) = self.snapshots.hold_back(group, admitting) else {
            return;
        };
        let watched = self.admission.begin_claim(group, admitting);
        store::claim(&self.env, mailbox(ctx), group, watched);
    }

    pub(super) fn on_claimed(&mut self, group: GroupId, claim: Result<Claim, StoreError>, ctx: &mut Context<Self>) {
        match self.admission.claimed(group, claim) {
            Claiming::Ours(admitting, claimed) => {
                broker::fail::point("group.claimed");
                self.open_group(group, admitting, claimed, ctx);
            }
            // A lease's time passes on our own clock.
            Claiming::Watch(admitting) => {
                let lease = self.env.config.run.lease.0;
                self.later(group, admitting, lease, ctx, move |actor, admitting, ctx| {
                    actor.claim(group, admitting, ctx);
                });
            }
            Claiming::Leave => {}
        }
    }

    /// Goes on with a group after a pause. Until then it counts as being claimed.
    pub(super) fn later(
        &mut self,
        group: GroupId,
        admitting: Admitting,
        pause: Duration,
        ctx: &mut Context<Self>,
        go_on: impl FnOnce(&mut Self, Admitting, &mut Context<Self>) + 'static,
    ) {
        self.admission.begin_claim(group, admitting);
        ctx.run_later(pause, move |actor, ctx| {
            let _scope = actor.lifecycle.log_scope();
            if let Some(admitting) = actor.admission.take_claim(&group) {
                go_on(actor, admitting, ctx);
            }
        });
    }

    /// Begins to play a group that was claimed, from what is stored of it.
    fn open_group(&mut self, group: GroupId, admitting: Admitting, claimed: Claimed, ctx: &mut Context<Self>) {
        let candidate = admitting.candidate();
        // Failures that an owner before us has decided are in no record.
        let ended = claimed.decided.as_deref().map(Ended::read).unwrap_or_default();
        let crashed = (self.strikes.isolation(&group) == Isolation::Out).then(|| {
            Failure::crashed(format_args!(
                "the coordinator died {OUT} times while it worked on this group"
            ))
        });
        let dead = ended.dead.or(crashed);
        if !claimed.records.is_empty() {
            self.rounds.patch();
        }
        // No conversation of a dead task is played.
        let size = match dead {
            Some(_) => 0,
            None => self.env.config.workflow.group_size,
        };
        let spec = self.specs.run_spec(&candidate.task, &candidate.id, size);
        self.strikes.begin([group]);
        let run = if dead.is_some() {
            Ok(GroupRun::new(spec))
        } else {
            // A workflow that reads the task may end the process.
            broker::fail::point_of("group.opened", &group);
            GroupRun::restore(spec, claimed.records.iter().filter_map(read_record))
        };
        self.strikes.end([group]);
        let mut run = match run {
            Ok(run) => run,
            Err(error) => {
                tracing::warn!(%group, %error, "the stored turns are not of this group; beginning it again");
                return self.void(group, admitting, claimed.lease, ctx);
            }
        };
        run.give_up_all(ended.failed);
        let (candidate, order) = admitting.into_task();
        let lease = claimed.lease;
        let mut open = Open::new(run, Purpose::Train, candidate.task, candidate.id, lease.attempt);
        (open.order, open.lease) = (order, Some(lease));
        (open.decided, open.dead, open.body) = (claimed.decided, dead, candidate.body);
        self.play.insert(group, open);
    }

    /// Forgets what is stored of a group and begins a new attempt. Its rows stay reserved.
    pub(super) fn void(&mut self, group: GroupId, admitting: Admitting, lease: Lease, ctx: &mut Context<Self>) {
        self.figures.observed().group(GroupEnd::Voided);
        self.admission.begin_claim(group, admitting);
        store::void_and_claim(&self.env, mailbox(ctx), group, lease);
    }

    pub(super) fn renew_leases(&mut self, ctx: &mut Context<Self>) {
        store::renew(&self.env, mailbox(ctx), self.play.leases());
    }

    /// A lease no longer stands: forgets the group and claims it again. Its rows are still
    /// reserved.
    pub(super) fn lose(&mut self, group: GroupId, ctx: &mut Context<Self>) {
        // A group that is being closed learns its owner from the store. Its key may be gone because
        // it is finished.
        if self.play.get(&group).is_none_or(|open| open.closing) {
            return;
        }
        let Some(open) = self.play.remove(&group) else { return };
        tracing::warn!(%group, task = open.task_id, "lost hold of a group; claiming it again");
        self.figures.observed().lease_lost();
        if open.trains() {
            self.rounds.patch();
            self.claim(group, Admitting::reserved(open), ctx);
        }
    }

    /// Releases the groups that are being played. A group that is being sent stays ours: its
    /// commits would be refused.
    pub(super) fn stop(&mut self, done: oneshot::Sender<()>) {
        self.lifecycle.stop();
        self.strikes.clear();
        // Agents that hold for an evaluation of ours need not wait until the hold runs out.
        self.release_hold();
        self.figures.flush();
        store::release(&self.env, self.play.leases_to_release(), done);
    }
}

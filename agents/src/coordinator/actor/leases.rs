//! Leases: renewed while we live, lost to others, given up at a stop.

use actix::{AsyncContext, Context};
use broker::ids::GroupId;
use broker::store::Lease;
use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::coordinator::actor::{Coordinator, Input, Purpose};
use crate::base::retry;

impl Coordinator {
    pub(in crate::coordinator) fn renew_leases(&mut self, ctx: &mut Context<Self>) {
        let leases: Vec<Lease> = self.open.values().filter_map(|open| open.lease).collect();
        if leases.is_empty() {
            return;
        }
        let (store, addr) = (self.env.store.clone(), ctx.address());
        tokio::spawn(async move {
            let Ok(standing) = store.beat(&leases).await else {
                return;
            };
            let lost: Vec<GroupId> = leases
                .iter()
                .zip(standing)
                .filter(|(_, stands)| !stands)
                .map(|(lease, _)| lease.group)
                .collect();
            if !lost.is_empty() {
                let _ = addr.send(Input::Lost(lost)).await;
            }
        });
    }

    /// Releases the groups that are being played. One that is being sent stays ours: what is under way would be refused.
    pub(in crate::coordinator) fn stop(&mut self, done: oneshot::Sender<()>) {
        self.stopping = true;
        self.strikes.clear();
        // Whoever holds for an evaluation of ours need not wait until the hold runs out.
        self.release();
        let open = self.open.values().filter(|open| !open.closing);
        let leases: Vec<Lease> = open.filter_map(|open| open.lease).collect();
        self.transcripts.flush();
        self.metrics.flush();
        let store = self.env.store.clone();
        tokio::spawn(async move {
            let release = |lease| {
                let store = &store;
                retry::settle("release", move || store.release(lease))
            };
            // Stale: another has it already.
            let released = join_all(leases.into_iter().map(release)).await;
            tracing::info!(groups = released.iter().filter(|done| done.is_ok()).count(), "released");
            let _ = done.send(());
        });
    }

    /// The group is no longer ours as we knew it: forget what we hold and claim it anew.
    pub(in crate::coordinator) fn lose(&mut self, group: GroupId, ctx: &mut Context<Self>) {
        // One that is being closed finds out by itself whose it is; its key may be gone because it is finished.
        if self.open.get(&group).is_none_or(|open| open.closing) {
            return;
        }
        let Some(open) = self.open.remove(&group) else { return };
        tracing::warn!(%group, task = open.task_id, "lost hold of a group; claiming it anew");
        self.dirty.remove(&group);
        self.patched |= open.purpose == Purpose::Train;
        self.claim_again(group, open, ctx);
    }
}

//! Steps of claims in the store. Each runs next to the actor and reports back to it.

use std::sync::Arc;

use broker::ids::{Attempt, GroupId};
use broker::store::Lease;
use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::base::ids::random_bytes;
use crate::base::log_scope;
use crate::base::retry;
use crate::coordinator::env::Env;
use crate::coordinator::input::{Input, Mailbox};

/// Claims a group. `watched`: the owner's (beat, fence) of an earlier look, if there was one.
pub(crate) fn claim(env: &Arc<Env>, mailbox: Mailbox, group: GroupId, watched: Option<(u64, u64)>) {
    let env = env.clone();
    log_scope::spawn(async move { claim_now(&env, mailbox, group, watched).await });
}

/// Forgets what is stored of a group and claims it for a new attempt. Its rows stay reserved.
pub(crate) fn void_and_claim(env: &Arc<Env>, mailbox: Mailbox, group: GroupId, lease: Lease) {
    let env = env.clone();
    log_scope::spawn(async move {
        void(&env, lease).await;
        claim_now(&env, mailbox, group, None).await;
    });
}

/// Forgets what is stored of several groups, one after another.
pub(crate) fn void_all(env: &Arc<Env>, leases: Vec<Lease>) {
    let env = env.clone();
    log_scope::spawn(async move {
        for lease in leases {
            void(&env, lease).await;
        }
    });
}

/// Renews leases, and reports those that no longer stand.
pub(crate) fn renew(env: &Arc<Env>, mailbox: Mailbox, leases: Vec<Lease>) {
    if leases.is_empty() {
        return;
    }
    let store = env.store.clone();
    log_scope::spawn(async move {
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
            let _ = mailbox.send(Input::Lost(lost)).await;
        }
    });
}

/// Gives leases up, and reports when that is done.
pub(crate) fn release(env: &Arc<Env>, leases: Vec<Lease>, done: oneshot::Sender<()>) {
    let store = env.store.clone();
    log_scope::spawn(async move {
        let release = |lease| {
            let store = &store;
            retry::settle("release", move || store.release(lease))
        };
        // Stale: another coordinator has the group already.
        let released = join_all(leases.into_iter().map(release)).await;
        tracing::info!(groups = released.iter().filter(|done| done.is_ok()).count(), "released");
        let _ = done.send(());
    });
}

async fn claim_now(env: &Env, mailbox: Mailbox, group: GroupId, watched: Option<(u64, u64)>) {
    let fresh = Attempt(random_bytes());
    let claim = retry::settle("claim", || env.store.claim(group, &env.incarnation, fresh, watched)).await;
    let _ = mailbox.send(Input::Claimed(group, claim)).await;
}

async fn void(env: &Env, lease: Lease) {
    // Stale: another coordinator has the group, and the next claim will say so.
    let _ = retry::settle("void", || env.store.void(lease)).await;
}

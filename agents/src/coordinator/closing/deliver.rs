//! Sends decided groups: the outcome into the store, a dead task to the dead letters, the bundles
//! to their agents.

use std::sync::Arc;

use broker::bus::PublishError;
use broker::store::{Lease, StoreError};
use futures_util::future::join_all;
use rollout::group::{Assembled, split};

use super::decided::Decided;
use super::journal;
use super::message::bundle_message;
use crate::base::log_scope;
use crate::base::retry;
use crate::coordinator::env::Env;
use crate::coordinator::input::{Input, Mailbox};

/// Decides and sends. With `write_journal`, nothing is sent before all of it is on disk.
pub fn send_all(env: &Arc<Env>, mailbox: Mailbox, groups: Vec<Decided>, write_journal: bool) {
    let env = env.clone();
    log_scope::spawn(async move {
        if write_journal {
            journal::write_round(&env, &groups).await;
        }
        let sent = groups.into_iter().map(|decided| async {
            let group = decided.group();
            let result = decide_and_deliver(&env, decided).await;
            let _ = mailbox.send(Input::Closed(group, result)).await;
        });
        join_all(sent).await;
    });
}

async fn decide_and_deliver(env: &Env, decided: Decided) -> Result<(), StoreError> {
    let (lease, outcome) = (decided.lease, decided.outcome);
    let standing = match decided.stands {
        Some(bytes) => bytes,
        None => retry::settle("decide", || env.store.decide(lease, outcome.clone())).await?,
    };
    broker::fail::point("group.decided");
    if standing != outcome {
        // Another outcome stands: these bundles are not what was decided.
        return Err(StoreError::Stale);
    }
    // A dead task is in the dead letters before any ledger gives up its custody.
    if let Some(letter) = decided.letter {
        retry::publish(&env.bus, letter)
            .await
            .map_err(|error| StoreError::Unusable(format!("the dead letters do not take a task: {error}")))?;
    }
    deliver(env, lease, decided.assembled).await
}

/// Sends every bundle and returns when all are confirmed.
async fn deliver(env: &Env, lease: Lease, assembled: Assembled) -> Result<(), StoreError> {
    for (agent, bundle) in assembled.bundles {
        let parts = split(bundle, env.bundle_cap()).map_err(|error| StoreError::Unusable(error.to_string()))?;
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
    // A later finish is harmless.
    let _ = retry::settle("finish", || env.store.finish(lease)).await;
    Ok(())
}

//! From a finished group to its outcome, its bundles and its transcript.

use actix::{AsyncContext, Context};
use broker::AgentName;
use broker::bus::{Outgoing, PublishError};
use broker::codec;
use broker::ids::GroupId;
use broker::protocol::Kind;
use broker::protocol::bundle::{Bundle, BundleContent};
use broker::store::{Lease, StoreError};
use rollout::group::{Assembled, GroupHead, GroupRun, MemberEnd, assemble, split};

use super::actor::{Coordinator, Input, Purpose};
use super::admission::Admitting;
use super::io;

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
        let members = self.take_members(group);
        let assembled = sendable(&head, assemble(&head, &self.rules, &members), self.bundle_cap());
        if let Some(open) = self.open.get(&group) {
            let step = self.lead_step();
            self.tell(group, open, &members, step);
        }
        self.count(&assembled);
        let decided = self.open.get(&group).and_then(|open| open.decided.clone());
        self.send(lease, assembled, decided, ctx);
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

    fn count(&mut self, assembled: &Assembled) {
        let summary = &assembled.summary;
        self.counters.groups += 1;
        self.counters.conversations += summary.conversations as u64;
        self.counters.failed_conversations += summary.failed.values().map(|n| *n as u64).sum::<u64>();
        if let Some(reason) = &summary.empty {
            tracing::warn!(reason, "a group closes empty");
        }
    }

    fn bundle_cap(&self) -> usize {
        usize::try_from(self.env.config.run.message_cap.0)
            .unwrap_or(usize::MAX)
            .saturating_sub(ENVELOPE)
    }

    fn send(&mut self, lease: Lease, assembled: Assembled, decided: Option<bytes::Bytes>, ctx: &mut Context<Self>) {
        let cap = self.bundle_cap();
        let (env, addr) = (self.env.clone(), ctx.address());
        tokio::spawn(async move {
            let outcome = outcome_bytes(&assembled);
            let standing = match decided {
                Some(bytes) => Ok(bytes),
                None => io::settle("decide", || env.store.decide(lease, outcome.clone())).await,
            };
            let result = match standing {
                // Another outcome stands: what we hold is not what was decided.
                Ok(bytes) if bytes != outcome => Err(StoreError::Stale),
                Ok(_) => deliver(&env, lease, assembled, cap).await,
                Err(error) => Err(error),
            };
            let _ = addr.send(Input::Closed(lease.group, result)).await;
        });
    }

    pub(super) fn on_closed(&mut self, group: GroupId, outcome: Result<(), StoreError>, ctx: &mut Context<Self>) {
        match outcome {
            Ok(()) => {
                if self.open.remove(&group).is_some() {
                    self.gate.sent(1);
                }
            }
            Err(error) => {
                let Some(open) = self.open.remove(&group) else { return };
                let Some(lease) = open.lease else { return };
                tracing::warn!(%group, %error, "a group could not be closed as played; beginning it anew");
                self.void(group, Admitting::reserved(open), lease, ctx);
            }
        }
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

/// What is decided: the digest of each agent's bundle. Deterministic, so that a later owner writes the same bytes.
fn outcome_bytes(assembled: &Assembled) -> bytes::Bytes {
    let lines: Vec<String> = assembled
        .bundles
        .iter()
        .map(|(agent, bundle)| format!("{agent}={}", bundle.digest))
        .collect();
    lines.join("\n").into()
}

/// Sends every bundle and returns when all are confirmed.
async fn deliver(env: &super::Env, lease: Lease, assembled: Assembled, cap: usize) -> Result<(), StoreError> {
    for (agent, bundle) in assembled.bundles {
        let parts = split(bundle, cap).map_err(|error| StoreError::Unusable(error.to_string()))?;
        for part in parts {
            match io::publish(&env.bus, bundle_message(env, &agent, &part)).await {
                Ok(()) => {}
                Err(PublishError::Unroutable(to)) => {
                    return Err(StoreError::Unusable(format!(
                        "agent {agent} has no samples queue ({to})"
                    )));
                }
                Err(error) => return Err(StoreError::Unusable(error.to_string())),
            }
        }
    }
    // Forgetting it later is harmless.
    let _ = io::settle("finish", || env.store.finish(lease)).await;
    Ok(())
}

fn bundle_message(env: &super::Env, agent: &AgentName, bundle: &Bundle) -> Outgoing {
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

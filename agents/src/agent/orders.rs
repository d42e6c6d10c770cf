//! What a coordinator's heartbeat asks of an agent: to know the run's state, to write its part of a joint snapshot, and to hold its
//! weights.

use broker::protocol::control::{CoordinatorBeat, RunPhase};
use tokio::time::Instant;

use super::Agent;

/// Stores the run's state before it is repeated to anybody: what all agents repeat is durable.
pub async fn hear(agent: &Agent, beat: &CoordinatorBeat) {
    let known = agent.status.borrow().run;
    if beat.run > known {
        match agent.ledger.adopt(beat.run).await {
            Ok(run) => agent.status.send_modify(|status| status.run = run),
            Err(error) => tracing::error!(%error, "the run's state could not be stored; it is told again"),
        }
    }
    if agent.status.borrow().run.phase == RunPhase::Closed {
        agent.closing.notify_one();
    }
    let (who, seq, now) = (&beat.incarnation, beat.seq, Instant::now());
    agent
        .holds
        .send_if_modified(|holds| holds.hear(who, seq, beat.hold.as_deref(), now));
    agent
        .due
        .send_if_modified(|due| due.hear(who, seq, beat.evaluates_at, now));
    if beat.snapshot.is_some() {
        agent.wanted.send_if_modified(|wanted| {
            let new = *wanted != beat.snapshot;
            wanted.clone_from(&beat.snapshot);
            new
        });
    }
}

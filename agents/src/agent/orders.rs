//! A coordinator's requests in its heartbeat: the run's state, a joint snapshot's part, and holds.

use broker::protocol::control::{CoordinatorBeat, RunPhase};
use tokio::time::Instant;

use super::Agent;

/// Applies them. The run's state is stored before it is repeated, because the state that all agents
/// repeat is durable.
pub async fn apply(agent: &Agent, beat: &CoordinatorBeat) {
    let known = agent.status.borrow().run;
    if beat.run > known {
        match agent.ledger.adopt(beat.run).await {
            Ok(run) => agent.status.send_modify(|status| status.run = run),
            Err(error) => tracing::error!(%error, "the run's state could not be stored; the next heartbeat repeats it"),
        }
    }
    if agent.status.borrow().run.phase == RunPhase::Closed {
        agent.closing.notify_one();
    }
    let (coordinator, seq, now) = (&beat.incarnation, beat.seq, Instant::now());
    agent
        .holds
        .send_if_modified(|holds| holds.record(coordinator, seq, beat.hold.as_deref(), now));
    agent
        .due
        .send_if_modified(|due| due.record(coordinator, seq, beat.evaluates_at, now));
    if beat.snapshot.is_some() {
        agent.wanted.send_if_modified(|wanted| {
            let new = *wanted != beat.snapshot;
            wanted.clone_from(&beat.snapshot);
            new
        });
    }
}

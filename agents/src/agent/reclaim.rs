//! Returns overdue reservations: a group that stays reserved for too long goes back to the
//! coordinators.

use std::sync::Arc;
use std::time::Duration;

use broker::protocol::Kind;
use broker::seal::{HEADER_AGENT, HEADER_ORDER, HEADER_SEAL};

use super::Agent;
use crate::base::log_scope;
use crate::base::outgoing::{self, Addressed};
use crate::base::retry;

/// The time that a reservation may wait for its bundle before it is reported; doubled each time.
const BOUND: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Looks for overdue reservations until the process ends.
pub fn start(agent: Arc<Agent>) {
    log_scope::spawn(async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Err(error) = reclaim(&agent, BOUND).await {
                tracing::warn!(%error, "overdue reservations could not be returned; the next look tries again");
            }
        }
    });
}

/// Reports every reservation to a coordinator that has just appeared. It may replace a coordinator
/// that is gone, with open groups. A report about another coordinator's group is acked and
/// forgotten.
pub fn soon(agent: Arc<Agent>) {
    log_scope::spawn(async move {
        if let Err(error) = reclaim(&agent, Duration::ZERO).await {
            tracing::warn!(%error, "reservations could not be reported to the new coordinator");
        }
    });
}

async fn reclaim(agent: &Agent, bound: Duration) -> anyhow::Result<()> {
    for overdue in agent.ledger.overdue(bound).await? {
        tracing::info!(group = %overdue.group, task = overdue.task, times = overdue.reported, "returning a reservation to the coordinators");
        let mut headers = vec![
            (HEADER_AGENT, agent.name.to_string()),
            (HEADER_ORDER, overdue.order.to_string()),
        ];
        headers.extend(overdue.seal.map(|seal| (HEADER_SEAL, seal.to_string())));
        let to = agent.topology.to(&agent.topology.reclaim());
        let message = outgoing::durable(to, Kind::Task, overdue.body)
            .with_id(overdue.task)
            .with_headers(headers);
        retry::publish(&agent.bus, message).await?;
    }
    Ok(())
}

//! Messages of admission: requests for room, acks, and looks at the queues of tasks.

use std::sync::Arc;

use broker::AgentName;
use broker::bus::Delivery;
use broker::codec;
use broker::protocol::Kind;
use broker::protocol::reserve::{Reserve, ReserveFrame};

use crate::base::log_scope;
use crate::base::outgoing::{self, Addressed};
use crate::base::retry;
use crate::coordinator::env::Env;
use crate::coordinator::input::{Input, Mailbox};

/// Asks an agent for room.
pub(crate) fn send_requests(env: &Arc<Env>, agent: &AgentName, requests: Vec<Reserve>) {
    let reply_to = env.incarnation.clone();
    let frame = ReserveFrame { reply_to, requests };
    let to = env.topology.to(&env.topology.reserve(agent));
    let headers = [("run", env.run.to_string()), ("agent", agent.to_string())];
    let message = outgoing::durable(to, Kind::Reserve, codec::encode(&frame)).with_headers(headers);
    let bus = env.bus.clone();
    log_scope::spawn(async move {
        if let Err(error) = retry::publish(&bus, message).await {
            tracing::warn!(%error, "a reservation was not sent; it is asked for again");
        }
    });
}

/// Asks for the number of tasks that wait, and reports it as [`Input::Depth`].
pub(crate) fn look(env: &Arc<Env>, mailbox: Mailbox) {
    let env = env.clone();
    log_scope::spawn(async move {
        let tasks = env.bus.depth(&env.topology.tasks()).await;
        let reclaimed = env.bus.depth(&env.topology.reclaim()).await;
        let depth = tasks.zip(reclaimed).map(|(tasks, reclaimed)| tasks + reclaimed);
        let _ = mailbox.send(Input::Depth(depth)).await;
    });
}

/// Acks a delivery next to the actor. A lost ack only means that the message comes again.
pub(crate) fn ack(delivery: Delivery) {
    log_scope::spawn(async move { delivery.ack().await });
}

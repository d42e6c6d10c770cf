//! The message that carries a bundle.

use broker::AgentName;
use broker::bus::Outgoing;
use broker::codec;
use broker::protocol::Kind;
use broker::protocol::bundle::Bundle;

use crate::base::outgoing::{self, Addressed};
use crate::coordinator::env::Env;

pub(super) fn bundle_message(env: &Env, agent: &AgentName, bundle: &Bundle) -> Outgoing {
    let (group, attempt, part) = (bundle.group, bundle.attempt, bundle.part);
    let headers = [
        ("run", env.run.to_string()),
        ("agent", agent.to_string()),
        ("group", group.to_string()),
        ("task", bundle.task.clone()),
    ];
    let to = env.topology.to(&env.topology.samples(agent));
    outgoing::durable(to, Kind::Bundle, codec::encode(bundle))
        .with_id(format!("{group}-{agent}-{attempt}-{part}"))
        .about(group)
        .with_headers(headers)
}

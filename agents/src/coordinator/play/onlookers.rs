//! Committed turns as text for onlookers such as the live page, and messages to them.

use std::collections::BTreeMap;

use broker::AgentName;
use broker::bus::Outgoing;
use broker::codec;
use broker::ids::{GroupId, TurnKey};
use broker::protocol::Kind;
use broker::protocol::inference::SharedTurn;
use broker::protocol::turn::Generation;

use super::Open;
use crate::base::log_scope;
use crate::base::outgoing::{self, Addressed as _};
use crate::coordinator::env::Env;
use crate::coordinator::specs::GroupSpecs;

/// A turn of an open group as onlookers see it.
#[must_use]
pub(crate) fn shared_turn(
    specs: &GroupSpecs,
    group: GroupId,
    open: &Open,
    key: &TurnKey,
    made: &Generation,
) -> Option<SharedTurn> {
    let agent = specs.player(open.purpose, &key.role)?.agent;
    let tokens = made.output_ids.len() as u32;
    Some(SharedTurn {
        group,
        task: open.task_id.clone(),
        member: key.member,
        role: key.role.clone(),
        seat: key.seat,
        turn: key.turn,
        agent,
        text: made.text.clone(),
        finish: made.finish,
        tokens,
        mean_logprob: made.mean_logprob() as f32,
        logprobs_of: made.logprobs_of,
        version: made.newest(),
    })
}

/// Publishes committed turns. It is no fault if they reach no onlooker.
pub(crate) fn share(env: &Env, turns: Vec<SharedTurn>) {
    let mut by_place: BTreeMap<(AgentName, String), Vec<SharedTurn>> = BTreeMap::new();
    for turn in turns {
        let place = (turn.agent.clone(), turn.role.to_string());
        by_place.entry(place).or_default().push(turn);
    }
    for ((agent, role), turns) in by_place {
        let to = env.topology.to_inference(&agent, &role);
        let headers = [("run", env.run.to_string()), ("agent", agent.to_string())];
        let message = outgoing::durable(to, Kind::Inference, codec::encode_json(&turns));
        send(env, message.with_headers(headers));
    }
}

/// Publishes a message that may be lost.
pub(crate) fn send(env: &Env, message: Outgoing) {
    let (bus, message) = (env.bus.clone(), message.transient());
    log_scope::spawn(async move {
        let _ = bus.publish(message).await;
    });
}

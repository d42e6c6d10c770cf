//! The ends of a decided group's conversations, for onlookers such as the live page.

use std::collections::BTreeMap;

use broker::codec;
use broker::ids::GroupId;
use broker::protocol::Kind;
use broker::protocol::inference::SharedEnd;
use rollout::group::{MemberEnd, Rules};

use super::builder::{by_seat, status};
use crate::base::outgoing::{self, Addressed as _};
use crate::coordinator::env::Env;
use crate::coordinator::play::onlookers;

/// Publishes how the conversations of a group ended, and their rewards.
pub(crate) fn send_group(env: &Env, rules: &Rules, group: GroupId, members: &[MemberEnd]) {
    let ends: Vec<SharedEnd> = (0..)
        .zip(members)
        .map(|(member, end)| shared_end(rules, group, member, end))
        .collect();
    let message = outgoing::durable(env.topology.to_ended(), Kind::Ended, codec::encode_json(&ends));
    onlookers::send(env, message.with_headers([("run", env.run.to_string())]));
}

fn shared_end(rules: &Rules, group: GroupId, member: u16, end: &MemberEnd) -> SharedEnd {
    let rewards = match end {
        MemberEnd::Ended { outcome, .. } => by_seat(outcome, |seat| rules.reward(seat)),
        MemberEnd::Failed { .. } => BTreeMap::new(),
    };
    SharedEnd {
        group,
        member,
        status: status(rules, end),
        rewards,
    }
}

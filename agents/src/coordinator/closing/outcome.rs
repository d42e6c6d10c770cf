//! The outcome of a group, written once when it has ended: the digest of each agent's bundle, and
//! what no record says.
//!
//! Turns are committed, failures are not. A coordinator that takes a decided group over would ask
//! again for a failed turn, might receive it, and would come to another outcome than the one by
//! which an agent may have closed its row. The outcome therefore names the conversations that were
//! given up, and why. The next owner goes on from there.

use broker::AgentName;
use bytes::Bytes;
use rollout::group::{Assembled, MemberEnd};

const FAILED: &str = "failed ";
const DEAD: &str = "dead ";

/// The end of a group, as far as its committed turns do not say it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Conversations that were given up, with the reason.
    pub failed: Vec<(u16, String)>,
    /// Why its task went to the dead letters, if it did.
    pub dead: Option<String>,
}

impl Ended {
    pub(crate) fn of(members: &[MemberEnd], dead: Option<String>) -> Self {
        let failed = |(member, end): (usize, &MemberEnd)| match end {
            MemberEnd::Failed { reason, .. } => Some((member as u16, reason.clone())),
            MemberEnd::Ended { .. } => None,
        };
        // No conversation of a dead task is played: its reason says everything.
        let members = if dead.is_some() { &[] } else { members };
        Self {
            failed: members.iter().enumerate().filter_map(failed).collect(),
            dead,
        }
    }

    /// The bytes of the outcome: deterministic, so that a later owner writes the same.
    pub(crate) fn outcome(&self, assembled: &Assembled) -> Bytes {
        let digest =
            |(agent, bundle): (&AgentName, &broker::protocol::bundle::Bundle)| format!("{agent}={}", bundle.digest);
        let mut lines: Vec<String> = assembled.bundles.iter().map(digest).collect();
        let failed = self.failed.iter();
        lines.extend(failed.map(|(member, reason)| format!("{FAILED}{member} {}", serde_json::json!(reason))));
        lines.extend(
            self.dead
                .iter()
                .map(|reason| format!("{DEAD}{}", serde_json::json!(reason))),
        );
        lines.join("\n").into()
    }

    /// Reads an outcome. Other lines are skipped.
    pub(crate) fn read(outcome: &[u8]) -> Self {
        let mut ended = Self::default();
        for line in String::from_utf8_lossy(outcome).lines() {
            if let Some((member, reason)) = line.strip_prefix(FAILED).and_then(|rest| rest.split_once(' ')) {
                let reason = serde_json::from_str(reason).ok();
                ended.failed.extend(member.parse().ok().zip(reason));
            } else if let Some(reason) = line.strip_prefix(DEAD) {
                ended.dead = serde_json::from_str(reason).ok();
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_was_given_up_is_read_as_it_was_written() {
        let assembled = Assembled {
            bundles: BTreeMap::new(),
            summary: rollout::group::GroupSummary::default(),
        };
        let reason = "engine: \"out\"\nof memory\\".to_owned();
        let failed = Ended {
            failed: vec![(0, reason.clone()), (7, String::new())],
            dead: None,
        };
        let dead = Ended {
            failed: Vec::new(),
            dead: Some(reason),
        };
        for ended in [failed, dead, Ended::default()] {
            assert_eq!(Ended::read(&ended.outcome(&assembled)), ended);
        }
        assert_eq!(Ended::read(b"a=00\nfailed x \"y\"\nfailed 1\n\xff"), Ended::default());
    }
}

//! The outcome of a group, written once when it has ended: the digest of each agent's bundle, and
//! what no record says.
//!
//! Turns are committed, failures are not. A coordinator that takes a decided group over would ask
//! again for a failed turn, might receive it, and would come to another outcome than the one by
//! which an agent may have closed its row. The outcome therefore names the conversations that were
//! given up, and why. The next owner goes on from there.
//!
//! An outcome is text: one line `agent=digest` for each bundle, then a line of JSON if a
//! conversation failed ([`Ended`]).

use broker::AgentName;
use broker::codec;
use broker::protocol::failure::Failure;
use bytes::Bytes;
use rollout::group::{Assembled, MemberEnd};
use serde::{Deserialize, Serialize};

/// The end of a group, as far as its committed turns do not say it.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Conversations that were given up, by member, with the reason.
    pub failed: Vec<(u16, Failure)>,
    /// The reason why its task went to the dead letters, if it did.
    pub dead: Option<Failure>,
}

impl Ended {
    pub(crate) fn of(members: &[MemberEnd], dead: Option<Failure>) -> Self {
        let failed = |(member, end): (usize, &MemberEnd)| match end {
            MemberEnd::Failed { failure, .. } => Some((member as u16, failure.clone())),
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
        if *self != Self::default() {
            lines.push(String::from_utf8_lossy(&codec::encode_json(self)).into_owned());
        }
        lines.join("\n").into()
    }

    /// Reads the failures of an outcome. Other lines are skipped.
    pub(crate) fn read(outcome: &[u8]) -> Self {
        let text = String::from_utf8_lossy(outcome);
        let failures = text.lines().find_map(|line| serde_json::from_str(line).ok());
        failures.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::ids::WeightVersion;
    use std::collections::BTreeMap;

    #[test]
    fn a_stored_outcome_keeps_its_text() {
        let version = WeightVersion { lineage: 2, step: 31 };
        let ended = Ended {
            failed: vec![(0, Failure::engine("x")), (3, Failure::not_finite(version, "y"))],
            dead: Some(Failure::crashed("z")),
        };
        let text = concat!(
            r#"{"failed":[[0,{"code":"engine","reason":"x"}],"#,
            r#"[3,{"code":{"not_finite":{"version":{"lineage":2,"step":31}}},"reason":"y"}]],"#,
            r#""dead":{"code":"crashed","reason":"z"}}"#
        );
        assert_eq!(ended.outcome(&nothing()), text);
        assert_eq!(Ended::read(format!("a=00\n{text}").as_bytes()), ended);
        assert_eq!(Ended::default().outcome(&nothing()), "");
    }

    fn nothing() -> Assembled {
        Assembled {
            bundles: BTreeMap::new(),
            summary: rollout::group::GroupSummary::default(),
        }
    }

    #[test]
    fn what_was_given_up_is_read_as_it_was_written() {
        let assembled = nothing();
        let reason = Failure::engine("\"out\"\nof memory\\");
        let failed = Ended {
            failed: vec![(0, reason.clone()), (7, Failure::other(""))],
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

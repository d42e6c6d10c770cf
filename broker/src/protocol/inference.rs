//! The shared inference result: the public part of a committed turn, and of a conversation's end.
//! It is for onlookers only; no prompt is built from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::turn::{Finish, LogProbs};
use crate::ids::{GroupId, WeightVersion};
use configs::{AgentName, RoleName};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedTurn {
    pub group: GroupId,
    pub task: String,
    pub member: u16,
    pub role: RoleName,
    pub seat: u16,
    pub turn: u16,
    pub agent: AgentName,
    pub text: String,
    pub finish: Finish,
    pub tokens: u32,
    pub mean_logprob: f32,
    /// The distribution of `mean_logprob`; omitted if it is the one that was sampled from.
    #[serde(default = "sampled", skip_serializing_if = "is_sampled")]
    pub logprobs_of: LogProbs,
    /// The weights of the last token.
    pub version: WeightVersion,
}

/// The end of a conversation, sent before the outcome of its group is stored, and again if the
/// group is played again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedEnd {
    pub group: GroupId,
    pub member: u16,
    /// `completed`, `truncated`, or `failed: ` with the reason.
    pub status: String,
    /// The weighted sum of the reward's parts, by role, or by `role/seat` if a role has several
    /// seats. Empty if it failed.
    pub rewards: BTreeMap<String, f64>,
}

fn sampled() -> LogProbs {
    LogProbs::Sampled
}

fn is_sampled(of: &LogProbs) -> bool {
    *of == LogProbs::Sampled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_omitted_if_it_was_sampled_from() {
        let plain = r#"{"group":"11111111111111111111111111111111","task":"t","member":3,"role":"solver","seat":1,"turn":2,"agent":"a","text":"4","finish":"length","tokens":3,"mean_logprob":-0.5,"version":{"lineage":2,"step":40}}"#;
        let mut turn: SharedTurn = serde_json::from_str(plain).unwrap();
        assert_eq!(turn.logprobs_of, LogProbs::Sampled);
        assert_eq!(serde_json::to_string(&turn).unwrap(), plain);
        turn.logprobs_of = LogProbs::Truncated;
        let json = serde_json::to_string(&turn).unwrap();
        assert!(json.contains(r#""logprobs_of":"truncated""#), "{json}");
        assert_eq!(serde_json::from_str::<SharedTurn>(&json).unwrap(), turn);
    }
}

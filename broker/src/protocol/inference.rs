//! The shared inference result: what everyone may see of a committed turn. Onlookers only; nothing reads a prompt from it.

use serde::{Deserialize, Serialize};

use super::turn::Finish;
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
    pub version: WeightVersion,
}

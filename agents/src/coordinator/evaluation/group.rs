//! A group that an evaluation plays, and the turns of its conversations.

use broker::ids::TurnKey;
use broker::protocol::turn::Generation;
use rollout::group::{MemberEnd, RunSpec};

use crate::coordinator::specs::Purpose;

/// A group that an evaluation plays.
pub(crate) struct EvalGroup {
    pub spec: RunSpec,
    pub purpose: Purpose,
    /// Its place among the groups that begin with it.
    pub index: usize,
}

/// The turns of a conversation that came to its end, empty if it failed.
pub(super) fn turns(end: &MemberEnd) -> &[(TurnKey, Generation)] {
    match end {
        MemberEnd::Ended { turns, .. } => turns,
        MemberEnd::Failed { .. } => &[],
    }
}

//! What a batch is formed by, and what becomes of its samples.

use broker::ids::{GroupId, WeightVersion};
use configs::TrainConfig;

/// Dynamic sampling draws at most this many times `batch_groups` groups for one batch, then trains short: without a cap it
/// starves as learning succeeds and ever more groups are all right.
pub const REFILL_CAP: usize = 4;

/// What a batch is formed by.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub config: &'a TrainConfig,
    /// The agent's token limit, for `constant` aggregation.
    pub max_new_tokens: u32,
    /// The weights that are about to be trained.
    pub current: WeightVersion,
    /// Trainer steps from a version to the current one, along lineages ([`crate::staleness::Lineages::staleness`]).
    pub staleness: &'a dyn Fn(WeightVersion) -> u64,
    /// Of this batch: from the run's seed and the step.
    pub seed: u64,
    /// Groups that earlier calls for this same batch discarded (`zero_advantage = refill`).
    pub drawn: usize,
    /// Whether more groups may come. `false` at the end of a run: what is there is trained, short as it is.
    pub more: bool,
}

/// Why a sample has no part in a batch's gradient. It stays in its group's baseline, and in D but for `refill`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Discard {
    /// Every token, or under `drop_sample` any token, is older than `max_staleness`.
    Stale,
    /// It reached its token limit and `truncated = mask`.
    Truncated,
    /// Its advantage is 0 and `zero_advantage` is `skip`, or its group's is and it is `refill`.
    ZeroAdvantage,
    /// Its role's weight is 0.
    RoleWeight,
    /// The loss imitates known answers, and this sample has none.
    NoTarget,
    /// Its known answer does not fit the model's context behind what was asked, or cannot be encoded.
    TargetUnfit,
}

impl Discard {
    /// The reason as the ledger and the metrics spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Discard::Stale => "stale",
            Discard::Truncated => "truncated",
            Discard::ZeroAdvantage => "zero_advantage",
            Discard::RoleWeight => "role_weight",
            Discard::NoTarget => "no_target",
            Discard::TargetUnfit => "target_unfit",
        }
    }
}

/// What became of one sample. `Ok`: it was trained on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub group: GroupId,
    pub member: u16,
    pub role: String,
    pub seat: u16,
    pub outcome: Result<(), Discard>,
}

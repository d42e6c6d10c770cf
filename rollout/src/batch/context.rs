//! Everything that forming a batch depends on, and the outcome of its samples.

use broker::ids::{GroupId, WeightVersion};
use configs::{TokenRecordPolicy, TrainConfig};

/// Dynamic sampling draws at most this many times `batch_groups` groups for one batch, and then
/// trains a short batch. Without a limit it would starve: as learning succeeds, more and more
/// groups are all right.
pub const REFILL_CAP: usize = 4;

/// Everything that forming a batch depends on.
#[derive(Clone, Copy)]
pub struct BatchContext<'a> {
    pub config: &'a TrainConfig,
    /// The agent's token limit, for `constant` aggregation.
    pub max_new_tokens: u32,
    /// The weights that are trained next.
    pub current: WeightVersion,
    /// Returns the trainer steps from a version to the current one, along lineages
    /// ([`crate::staleness::Lineages::staleness`]).
    pub staleness: &'a dyn Fn(WeightVersion) -> u64,
    /// The seed of this batch, from the run's seed and the step.
    pub seed: u64,
    /// The number of groups that earlier calls for this same batch discarded (`zero_advantage =
    /// refill`).
    pub drawn: usize,
    /// True if more groups may come. At the end of a run it is false, and a short batch is trained.
    pub more: bool,
    /// The samples that [`super::Batch::answers`] describes.
    pub records: TokenRecordPolicy,
}

/// The reason why a sample does not contribute to a batch's gradient. It still counts in its
/// group's baseline, and in D unless `refill` discarded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Discard {
    /// Every token is older than `max_staleness`; with `drop_sample`, any token.
    Stale,
    /// It reached its token limit and `truncated = mask`.
    Truncated,
    /// Its advantage is 0 and `zero_advantage` is `skip`, or its whole group's is and it is
    /// `refill`.
    ZeroAdvantage,
    /// The weight of its role is 0.
    RoleWeight,
    /// The loss imitates known answers, and this sample has none.
    NoTarget,
    /// Its known answer does not fit the model's context after the prompt, or cannot be encoded.
    TargetUnfit,
}

impl Discard {
    /// Returns the reason as the ledger and the metrics spell it.
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

/// The outcome of one sample. `Ok` means that it was trained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchVerdict {
    pub group: GroupId,
    pub member: u16,
    pub role: String,
    pub seat: u16,
    pub outcome: Result<(), Discard>,
}

//! From whole closed groups to the optimizer steps of one batch.
//!
//! A batch is `batch_groups` groups, oldest admitted first: [`select`] takes them and their advantages, once per batch;
//! [`mask`] takes tokens out that are too old or cut; [`weigh`] gives every sample its weight `w_role * u_s / D`, with D
//! fixed before any mask; [`forest`] lays the rows out with shared prompts. `minibatches` x `epochs` steps follow, over a
//! seeded split by group. Nothing depends on the order of arrival.

mod collapse;
mod flat;
mod forest;
mod imitate;
mod mask;
mod select;
mod stats;
mod warm;
mod weigh;

use std::collections::BTreeSet;

use broker::ids::{GroupId, WeightVersion};
use broker::protocol::bundle::Bundle;
use broker::protocol::train::TrainBatch;
use configs::{LossKind, TrainConfig};

pub use flat::{FlatRow, flatten};
pub use imitate::{Imitated, imitate};
pub use stats::{BatchStats, Mean, RoleStats, Spread, Staleness};
pub use warm::cross_entropy;

use crate::shuffle::{SplitMix, permutation};
use mask::Prepared;
use select::Selection;

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

/// The steps of one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// One for each optimizer step, epoch after epoch. A step whose samples were all discarded is there without spans: it
    /// is taken all the same, as a step of gradient 0.
    pub minibatches: Vec<TrainBatch>,
    /// Roles in the order of their names: the place of one is its number in the spans of every step.
    pub roles: Vec<String>,
    /// Groups of the batch, oldest first: those given, without what was discarded or left for the next batch.
    pub groups: Vec<GroupId>,
    /// For every sample of the groups used up, those that `refill` discarded included.
    pub verdicts: Vec<Verdict>,
    pub stats: BatchStats,
}

/// What forming a batch came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Formed {
    Batch(Box<Batch>),
    /// Too few groups. Ask again with those that are left and `groups` more.
    More {
        groups: usize,
        /// Groups of zero advantage, to be discarded at once, so that their places in the buffer are free for others; add
        /// their number to [`Context::drawn`].
        discarded: Vec<GroupId>,
        verdicts: Vec<Verdict>,
    },
}

/// Forms a batch of `bundles`: whole bundles of closed groups of one agent, oldest admitted first. Empty bundles are passed
/// over and take no place. At most `batch_groups` are taken.
#[must_use]
pub fn form(bundles: &[Bundle], context: &Context<'_>) -> Formed {
    let selection = select::select(bundles, context);
    if let Some(groups) = selection.missing {
        return Formed::More {
            groups,
            discarded: selection.zero.iter().map(|bundle| bundle.group).collect(),
            verdicts: selection
                .zero
                .iter()
                .flat_map(|bundle| select::zero_verdicts(bundle))
                .collect(),
        };
    }
    let groups: Vec<Prepared<'_>> = selection
        .groups
        .iter()
        .map(|group| mask::prepare(group, context))
        .collect();
    let roles = roles(&groups);
    let minibatches = steps(&groups, &roles, context);
    let verdicts = verdicts(&selection, &groups);
    let stats = stats::measure(&selection, &groups, &verdicts, context);
    let groups = selection.groups.iter().map(|group| group.bundle.group).collect();
    Formed::Batch(Box::new(Batch {
        minibatches,
        roles,
        groups,
        verdicts,
        stats,
    }))
}

fn roles(groups: &[Prepared<'_>]) -> Vec<String> {
    let samples = groups.iter().flat_map(|group| &group.samples);
    let names: BTreeSet<&String> = samples.map(|sample| &sample.sample.role).collect();
    names.into_iter().cloned().collect()
}

fn steps(groups: &[Prepared<'_>], roles: &[String], context: &Context<'_>) -> Vec<TrainBatch> {
    let parts = context.config.minibatches.clamp(1, groups.len().max(1));
    let mut seeds = SplitMix::new(context.seed);
    let mut steps = Vec::new();
    for epoch in 0..context.config.epochs.max(1) {
        let order = permutation(groups.len(), seeds.bits());
        for part in 0..parts {
            let mut chosen = order[part * groups.len() / parts..(part + 1) * groups.len() / parts].to_vec();
            chosen.sort_unstable();
            let chosen: Vec<&Prepared<'_>> = chosen.iter().map(|at| &groups[*at]).collect();
            // The weights move with the first step: only before it are they those that sampled. A known answer was never
            // sampled.
            let fresh = epoch == 0 && part == 0 && context.config.loss.kind != LossKind::CrossEntropy;
            if !chosen.is_empty() {
                let weights = weigh::Weights::new(&chosen, context);
                steps.push(forest::plant(&chosen, &weights, roles, fresh));
            }
        }
    }
    steps
}

fn verdicts(selection: &Selection<'_>, groups: &[Prepared<'_>]) -> Vec<Verdict> {
    let of = |group: &Prepared<'_>| {
        let id = group.bundle.group;
        group
            .samples
            .iter()
            .map(move |s| select::verdict(id, s.sample, s.discard.map_or(Ok(()), Err)))
            .collect::<Vec<_>>()
    };
    let zero = selection.zero.iter().flat_map(|bundle| select::zero_verdicts(bundle));
    groups.iter().flat_map(of).chain(zero).collect()
}

#[cfg(test)]
mod tests;

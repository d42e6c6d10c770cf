//! Turns whole closed groups into the optimizer steps of one batch.
//!
//! A batch is `batch_groups` groups, oldest admitted first. These steps form it:
//! - [`select`] takes the groups and computes their advantages, once per batch,
//! - [`mask`] removes tokens that are stale or cut,
//! - [`weigh`] gives every sample its weight `w_role * u_s / D`, with D fixed before any mask,
//! - [`forest`] lays the rows out with shared prompts.
//!
//! Then `minibatches` x `epochs` steps follow, over a seeded split by group. The result does not
//! depend on the order of arrival.

mod answers;
mod collapse;
mod context;
mod flat;
mod forest;
mod imitate;
mod mask;
mod select;
mod stats;
mod warm;
mod weigh;

use std::collections::BTreeSet;

use broker::ids::GroupId;
use broker::protocol::bundle::Bundle;
use broker::protocol::train::TrainBatch;
use configs::LossKind;

pub use answers::{Answer, Stretch};
pub use context::{BatchContext, BatchVerdict, Discard, REFILL_CAP};
pub use flat::{FlatRow, flatten};
pub use imitate::{Imitated, imitate};
pub use stats::{BatchStats, Mean, RoleStats, Spread, Staleness};
pub use warm::cross_entropy;

use crate::shuffle::{SplitMix, permutation};
use mask::Prepared;
use select::Selection;

/// The steps of one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// One entry for each optimizer step, epoch after epoch. If all samples of a step were
    /// discarded, it has no spans and is still taken, with gradient 0.
    pub minibatches: Vec<TrainBatch>,
    /// For each of these steps, the samples with recorded tokens ([`BatchContext::records`]).
    pub answers: Vec<Vec<Answer>>,
    /// Roles in alphabetical order. Spans refer to a role by its index.
    pub roles: Vec<String>,
    /// Groups of the batch, oldest first, without groups that were discarded or left for the next
    /// batch.
    pub groups: Vec<GroupId>,
    /// A verdict for every sample of the groups used, including those that `refill` discarded.
    pub verdicts: Vec<BatchVerdict>,
    pub stats: BatchStats,
}

/// The result of forming a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Formed {
    Batch(Box<Batch>),
    /// There are too few groups. Call again with the remaining groups and `groups` more.
    More {
        groups: usize,
        /// Groups of zero advantage. Discard them at once, so that their places in the buffer are
        /// free, and add their number to [`BatchContext::drawn`].
        discarded: Vec<GroupId>,
        verdicts: Vec<BatchVerdict>,
    },
}

/// Forms a batch of `bundles`: whole bundles of closed groups of one agent, oldest admitted first.
/// Empty bundles are skipped and do not count. At most `batch_groups` are taken.
#[must_use]
pub fn form(bundles: &[Bundle], context: &BatchContext<'_>) -> Formed {
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
    let (minibatches, answers) = steps(&groups, &roles, context).into_iter().unzip();
    let verdicts = verdicts(&selection, &groups);
    let stats = stats::measure(&selection, &groups, &verdicts, context);
    let groups = selection.groups.iter().map(|group| group.bundle.group).collect();
    Formed::Batch(Box::new(Batch {
        minibatches,
        answers,
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

fn steps(groups: &[Prepared<'_>], roles: &[String], context: &BatchContext<'_>) -> Vec<(TrainBatch, Vec<Answer>)> {
    let parts = context.config.minibatches.clamp(1, groups.len().max(1));
    let mut seeds = SplitMix::new(context.seed);
    let mut steps = Vec::new();
    for epoch in 0..context.config.epochs.max(1) {
        let order = permutation(groups.len(), seeds.bits());
        for part in 0..parts {
            let mut chosen = order[part * groups.len() / parts..(part + 1) * groups.len() / parts].to_vec();
            chosen.sort_unstable();
            let chosen: Vec<&Prepared<'_>> = chosen.iter().map(|at| &groups[*at]).collect();
            // The weights change with the first step, so only before it are they the ones that
            // sampled. Known answers were never sampled.
            let fresh = epoch == 0 && part == 0 && context.config.loss.kind != LossKind::CrossEntropy;
            if !chosen.is_empty() {
                let weights = weigh::Weights::new(&chosen, context);
                let planted = forest::plant(&chosen, &weights, roles, fresh);
                steps.push((planted, answers::recorded(&chosen, context.records)));
            }
        }
    }
    steps
}

fn verdicts(selection: &Selection<'_>, groups: &[Prepared<'_>]) -> Vec<BatchVerdict> {
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

//! Selects the groups of a batch and computes their advantages.

use broker::ids::GroupId;
use broker::protocol::bundle::{Bundle, BundleContent, Sample};
use configs::{Advantage, ZeroAdvantage};

use super::context::{BatchContext, BatchVerdict, Discard, REFILL_CAP};
use crate::advantage::{self, GroupAdvantages};

/// A group of the batch.
pub(super) struct Chosen<'a> {
    pub(super) bundle: &'a Bundle,
    pub(super) samples: &'a [Sample],
    pub(super) advantages: GroupAdvantages,
}

/// The outcome of [`select`], which takes groups from the front of the waiting ones.
pub(super) struct Selection<'a> {
    pub(super) groups: Vec<Chosen<'a>>,
    /// Groups with zero advantage, which `zero_advantage = refill` replaces by other groups.
    pub(super) zero: Vec<&'a Bundle>,
    /// The number of groups still needed before the batch can be formed. `None` if it can be formed
    /// now.
    pub(super) missing: Option<usize>,
}

pub(super) fn select<'a>(bundles: &'a [Bundle], context: &BatchContext<'_>) -> Selection<'a> {
    let config = context.config;
    let refill = config.zero_advantage == ZeroAdvantage::Refill;
    let wanted = config.batch_groups.max(1);
    let mut selection = Selection {
        groups: Vec::new(),
        zero: Vec::new(),
        missing: None,
    };
    for bundle in bundles {
        if selection.groups.len() == wanted {
            break;
        }
        let BundleContent::Samples(samples) = &bundle.content else {
            continue;
        };
        let advantages = advantage::of_group(config.advantage, samples);
        if refill && advantages.is_zero() {
            selection.zero.push(bundle);
        } else {
            selection.groups.push(Chosen {
                bundle,
                samples,
                advantages,
            });
        }
    }
    selection.missing = missing(&selection, wanted, refill, context);
    // If the KL reduces the reward, the batch is normalised later, after the trainer has computed
    // the KL.
    if selection.missing.is_none() && config.advantage.is_of_batch() && !config.kl_in_reward() {
        normalise(config.advantage, &mut selection.groups);
    }
    selection
}

fn missing(selection: &Selection<'_>, wanted: usize, refill: bool, context: &BatchContext<'_>) -> Option<usize> {
    let short = wanted - selection.groups.len();
    let cap = if refill { REFILL_CAP * wanted } else { usize::MAX };
    let drawn = context.drawn + selection.zero.len() + selection.groups.len();
    let groups = short.min(cap.saturating_sub(drawn));
    (context.more && groups > 0).then_some(groups)
}

fn normalise(kind: Advantage, groups: &mut [Chosen<'_>]) {
    let tokens = |sample: &Sample| sample.rows.iter().map(|row| row.trained_tokens()).sum::<usize>();
    let all = groups
        .iter()
        .flat_map(|g| g.advantages.values.iter().copied().zip(g.samples.iter().map(tokens)));
    let mut values: Vec<(f64, usize)> = all.collect();
    advantage::normalise(kind, &mut values);
    let places = groups.iter_mut().flat_map(|group| &mut group.advantages.values);
    for (place, (value, _)) in places.zip(values) {
        *place = value;
    }
}

pub(super) fn verdict(group: GroupId, sample: &Sample, outcome: Result<(), Discard>) -> BatchVerdict {
    BatchVerdict {
        group,
        member: sample.member,
        role: sample.role.clone(),
        seat: sample.seat,
        outcome,
    }
}

pub(super) fn zero_verdicts(bundle: &Bundle) -> Vec<BatchVerdict> {
    match &bundle.content {
        BundleContent::Samples(samples) => samples
            .iter()
            .map(|s| verdict(bundle.group, s, Err(Discard::ZeroAdvantage)))
            .collect(),
        BundleContent::Empty { .. } | BundleContent::Dead { .. } => Vec::new(),
    }
}

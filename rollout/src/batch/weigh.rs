//! The weight of a sample's tokens: `w_role * u_s / D`, with D over all samples of an optimizer
//! step, before any mask.

use std::collections::BTreeMap;

use configs::Aggregation;

use super::context::BatchContext;
use super::mask::{Prepared, PreparedSample};

/// Denominators of one optimizer step.
pub(super) struct Weights {
    aggregation: Aggregation,
    /// D.
    pub(super) denominator: f64,
    /// Sampled tokens of the step.
    pub(super) tokens: u64,
    limit: f64,
    /// Sampled tokens of one conversation's samples, by (index of the group in the step, member).
    conversations: BTreeMap<(usize, u16), usize>,
    /// Sampled tokens of each role that has any.
    roles: BTreeMap<String, usize>,
}

impl Weights {
    pub(super) fn new(groups: &[&Prepared<'_>], context: &BatchContext<'_>) -> Self {
        let samples = || groups.iter().flat_map(|group| &group.samples);
        let tokens: usize = samples().map(|s| s.tokens).sum();
        let mut roles = BTreeMap::new();
        for sample in samples().filter(|sample| sample.tokens > 0) {
            *roles.entry(sample.sample.role.clone()).or_insert(0) += sample.tokens;
        }
        let aggregation = context.config.loss.agg;
        let denominator = match aggregation {
            Aggregation::Token => tokens,
            Aggregation::Sequence | Aggregation::Constant => samples().count(),
            Aggregation::Conversation => groups.iter().map(|g| usize::from(g.bundle.conversations)).sum(),
            Aggregation::Role => roles.len(),
        };
        let mut conversations = BTreeMap::new();
        for (at, group) in groups.iter().enumerate() {
            for sample in &group.samples {
                *conversations.entry((at, sample.sample.member)).or_insert(0) += sample.tokens;
            }
        }
        Self {
            aggregation,
            denominator: denominator.max(1) as f64,
            tokens: tokens as u64,
            limit: f64::from(context.max_new_tokens.max(1)),
            conversations,
            roles,
        }
    }

    /// Returns the weight of each token of a sample. `group` is the index of its group in the step.
    pub(super) fn of(&self, group: usize, sample: &PreparedSample<'_>) -> f32 {
        let share = match self.aggregation {
            Aggregation::Token => 1.0,
            Aggregation::Sequence => 1.0 / sample.tokens.max(1) as f64,
            Aggregation::Constant => 1.0 / self.limit,
            Aggregation::Role => {
                let tokens = self.roles.get(&sample.sample.role).copied().unwrap_or(1);
                1.0 / tokens.max(1) as f64
            }
            Aggregation::Conversation => {
                let tokens = self
                    .conversations
                    .get(&(group, sample.sample.member))
                    .copied()
                    .unwrap_or(1);
                1.0 / tokens.max(1) as f64
            }
        };
        (sample.role_weight * share / self.denominator) as f32
    }
}

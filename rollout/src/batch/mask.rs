//! Decides which tokens of a group are trained. Tokens that are stale, cut, without advantage or
//! without weight are not.

use broker::ids::WeightVersion;
use broker::protocol::bundle::{Bundle, Row, Sample, SampleStatus, Segment};
use broker::protocol::turn::LogProbs;
use configs::{LossKind, Stale, TrainConfig, Truncated, ZeroAdvantage};

use super::context::{BatchContext, Discard};
use super::select::Chosen;

/// A group of the batch with its tokens masked.
pub(super) struct Prepared<'a> {
    pub(super) bundle: &'a Bundle,
    pub(super) samples: Vec<PreparedSample<'a>>,
}

pub(super) struct PreparedSample<'a> {
    pub(super) sample: &'a Sample,
    pub(super) advantage: f32,
    /// The weight of the role, `w_role`.
    pub(super) role_weight: f64,
    /// Sampled tokens before any mask. Denominators count these.
    pub(super) tokens: usize,
    /// Trainer steps since the oldest token was sampled.
    pub(super) staleness: u64,
    /// Sampled tokens that are too old.
    pub(super) stale_tokens: usize,
    pub(super) discard: Option<Discard>,
    pub(super) rows: Vec<PreparedRow<'a>>,
}

pub(super) struct PreparedRow<'a> {
    pub(super) row: &'a Row,
    /// For each id of the row: its behaviour log-prob, if it is trained.
    pub(super) trained: Vec<Option<f32>>,
    /// True if every token and KV entry came from the weights in training, and was sampled from the
    /// whole vocabulary. The trainer does not know about truncated sampling, so only then must its
    /// log-probs be identical.
    pub(super) on_policy: bool,
}

pub(super) fn prepare<'a>(group: &Chosen<'a>, context: &BatchContext<'_>) -> Prepared<'a> {
    let samples = group.samples.iter().zip(&group.advantages.values);
    Prepared {
        bundle: group.bundle,
        samples: samples.map(|(s, a)| prepare_sample(s, *a, context)).collect(),
    }
}

fn prepare_sample<'a>(sample: &'a Sample, advantage: f64, context: &BatchContext<'_>) -> PreparedSample<'a> {
    let config = context.config;
    let ages = || {
        sample
            .rows
            .iter()
            .flat_map(|row| &row.segments)
            .flat_map(|s| ages(s, context))
    };
    let staleness = ages().map(|(age, _)| age).max().unwrap_or(0);
    let stale_tokens = ages()
        .filter(|(age, _)| *age > config.max_staleness)
        .map(|(_, tokens)| tokens)
        .sum();
    let tokens = sample.rows.iter().map(Row::trained_tokens).sum();
    let role_weight = role_weight(config, &sample.role);
    let discard = discard(sample, advantage, role_weight, (stale_tokens, tokens), config);
    PreparedSample {
        sample,
        advantage: advantage as f32,
        role_weight,
        tokens,
        staleness,
        stale_tokens,
        discard,
        rows: sample.rows.iter().map(|row| prepare_row(row, context)).collect(),
    }
}

/// Returns (trainer steps, tokens) for each version span of a segment.
fn ages<'s>(segment: &'s Segment, context: &BatchContext<'s>) -> impl Iterator<Item = (u64, usize)> + use<'s> {
    let staleness = context.staleness;
    segment
        .spans
        .iter()
        .map(move |span| (staleness(span.version), span.end.saturating_sub(span.start) as usize))
}

fn role_weight(config: &TrainConfig, role: &str) -> f64 {
    let found = config.role_weights.iter().find(|(name, _)| name.as_str() == role);
    found.map_or(1.0, |(_, weight)| *weight)
}

fn discard(
    sample: &Sample,
    advantage: f64,
    role_weight: f64,
    (stale, tokens): (usize, usize),
    config: &TrainConfig,
) -> Option<Discard> {
    let too_old = match config.stale {
        Stale::Keep => false,
        Stale::Mask => tokens > 0 && stale >= tokens,
        Stale::DropSample => stale > 0,
    };
    if too_old {
        return Some(Discard::Stale);
    }
    if config.truncated == Truncated::Mask && sample.status == SampleStatus::Truncated {
        return Some(Discard::Truncated);
    }
    if role_weight == 0.0 {
        return Some(Discard::RoleWeight);
    }
    if tokens == 0 && config.loss.kind == LossKind::CrossEntropy {
        return Some(match sample.target {
            Some(_) => Discard::TargetUnfit,
            None => Discard::NoTarget,
        });
    }
    (advantage == 0.0 && may_skip(config)).then_some(Discard::ZeroAdvantage)
}

/// Returns true if skipping a sample without advantage equals keeping it. That holds only if the
/// loss of a token is its advantage times a factor.
fn may_skip(config: &TrainConfig) -> bool {
    config.zero_advantage == ZeroAdvantage::Skip
        && config.kl.coef == 0.0
        && config.entropy == 0.0
        && !config.advantage.is_of_batch()
}

fn prepare_row<'a>(row: &'a Row, context: &BatchContext<'_>) -> PreparedRow<'a> {
    let mut trained = vec![None; row.ids.len()];
    let mut logprobs = row.logprobs.iter();
    for segment in &row.segments {
        let versions = segment
            .spans
            .iter()
            .flat_map(|s| std::iter::repeat_n(s.version, s.end.saturating_sub(s.start) as usize));
        let keep = |version: WeightVersion| {
            context.config.stale == Stale::Keep || (context.staleness)(version) <= context.config.max_staleness
        };
        let places = trained
            .iter_mut()
            .skip(segment.start as usize)
            .take(segment.len as usize);
        for ((place, logprob), version) in places.zip(logprobs.by_ref()).zip(versions) {
            *place = keep(version).then_some(*logprob);
        }
    }
    let now = |version: WeightVersion| version == context.current;
    let whole = |s: &Segment| s.logprobs_of == LogProbs::Sampled;
    let fresh = |s: &Segment| whole(s) && now(s.oldest_kv) && s.spans.iter().all(|span| now(span.version));
    PreparedRow {
        row,
        trained,
        on_policy: row.segments.iter().all(fresh),
    }
}

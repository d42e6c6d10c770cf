//! Figures of a batch, for metrics.

use std::collections::BTreeMap;

use super::collapse;
use super::context::{BatchContext, BatchVerdict, Discard};
use super::mask::{Prepared, PreparedSample};
use super::select::{Chosen, Selection};
use broker::protocol::bundle::SampleStatus;
use configs::KlPlace;

/// A mean that values can be added to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Mean {
    pub sum: f64,
    pub count: u64,
}

impl Mean {
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// Returns `None` without values.
    #[must_use]
    pub fn get(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// A mean and the spread of its values.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    pub mean: Mean,
    squares: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.mean.add(value);
        self.squares += value * value;
    }

    /// Returns the standard deviation over the values, or `None` without values. It is the biased
    /// one, because the values are the whole batch.
    #[must_use]
    pub fn std(&self) -> Option<f64> {
        let mean = self.mean.get()?;
        Some((self.squares / self.mean.count as f64 - mean * mean).max(0.0).sqrt())
    }
}

/// Figures of one role's samples in a batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RoleStats {
    /// Groups that it played in, and those in which its rewards have no difference. Groups that
    /// `refill` replaced are not included.
    pub groups: usize,
    pub zero_groups: usize,
    pub samples: u64,
    pub reward: Spread,
    /// Samples with advantage 0. With a KL in the reward the advantage is not known yet, and none
    /// is counted.
    pub zero_advantage: u64,
    /// Samples with a generation at its token limit.
    pub truncated: u64,
    pub repetition: Mean,
    /// Sampled tokens before any mask.
    pub tokens: u64,
    pub trained_tokens: u64,
    /// Sampled tokens that are too old and not trained.
    pub stale_tokens: u64,
    /// Samples that do not contribute to the gradient.
    pub discarded: u64,
    /// The same by reason. Groups that `refill` replaced are not included.
    pub discarded_by: BTreeMap<Discard, u64>,
    pub staleness: Staleness,
}

/// Trainer steps between the oldest token of each sample and its training.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Staleness {
    pub mean: Mean,
    pub max: u64,
    /// Number of samples by staleness. The last entry counts [`Staleness::PLACES`] - 1 and more.
    pub histogram: Vec<u64>,
    /// Samples by weights of an unknown lineage. They are counted only here.
    pub unknown: u64,
}

impl Staleness {
    pub const PLACES: usize = 17;

    fn add(&mut self, steps: u64) {
        if steps == u64::MAX {
            self.unknown += 1;
            return;
        }
        let place = usize::try_from(steps).map_or(Self::PLACES - 1, |s| s.min(Self::PLACES - 1));
        if self.histogram.len() <= place {
            self.histogram.resize(place + 1, 0);
        }
        self.histogram[place] += 1;
        self.mean.add(steps as f64);
        self.max = self.max.max(steps);
    }
}

/// Figures of one batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchStats {
    pub groups: usize,
    /// Groups that `refill` discarded for this batch, in this call and in earlier ones.
    pub refilled: usize,
    /// True if the batch has fewer than `batch_groups` groups.
    pub short: bool,
    pub samples: usize,
    pub rows: usize,
    /// Sampled tokens before any mask.
    pub tokens: u64,
    /// Tokens that contribute to the gradient. Each is counted once, not once per epoch.
    pub trained_tokens: u64,
    pub stale_tokens: u64,
    /// Samples with a generation at its token limit.
    pub truncated: usize,
    /// Rows with all tokens and KV entries from the weights in training.
    pub on_policy_rows: usize,
    pub reward: Spread,
    pub by_role: BTreeMap<String, RoleStats>,
    /// Reward parts before their weights, by (role, part).
    pub reward_parts: BTreeMap<(String, String), Mean>,
    pub tokens_per_sample: Mean,
    /// The fraction of an answer that repeats itself, over the answers that are long enough.
    pub repetition: Mean,
    /// The fraction of a key's answers that equal another of them, over the keys of all groups.
    pub sameness: Mean,
    pub advantage_abs: Mean,
    /// Advantage keys of the batch. The next two count the keys with equal rewards, and those with
    /// only one conversation.
    pub keys: usize,
    pub equal_keys: usize,
    pub alone_keys: usize,
    /// Groups of the batch in which every advantage is 0.
    pub zero_groups: usize,
    pub staleness: Staleness,
    /// Samples that do not contribute to the gradient, including those that `refill` discarded.
    pub discarded: BTreeMap<Discard, usize>,
}

impl BatchStats {
    /// Returns the fraction of the groups drawn for this batch that have no difference in reward.
    #[must_use]
    pub fn zero_share(&self) -> f64 {
        share(self.zero_groups + self.refilled, self.groups + self.refilled)
    }

    /// Returns the same fraction for one role. Replaced groups have no difference for any role.
    #[must_use]
    pub fn zero_share_of(&self, role: &RoleStats) -> f64 {
        share(role.zero_groups + self.refilled, role.groups + self.refilled)
    }
}

fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

pub(super) fn measure(
    selection: &Selection<'_>,
    groups: &[Prepared<'_>],
    verdicts: &[BatchVerdict],
    context: &BatchContext<'_>,
) -> BatchStats {
    let mut stats = BatchStats {
        groups: groups.len(),
        refilled: context.drawn + selection.zero.len(),
        short: groups.len() < context.config.batch_groups,
        ..BatchStats::default()
    };
    for group in &selection.groups {
        stats.keys += group.advantages.keys;
        stats.equal_keys += group.advantages.equal;
        stats.alone_keys += group.advantages.alone;
        // The advantages cannot tell: a z-score over the batch also moves those of equal rewards.
        let same = group.advantages.equal + group.advantages.alone == group.advantages.keys;
        stats.zero_groups += usize::from(same);
        stats.count_group(group);
    }
    // With a KL in the reward, the trainer computes them later.
    let final_advantages = context.config.kl.place == KlPlace::Loss;
    for sample in groups.iter().flat_map(|group| &group.samples) {
        stats.add(sample);
        if final_advantages {
            stats.advantage_abs.add(f64::from(sample.advantage.abs()));
            let role = stats.by_role.entry(sample.sample.role.clone()).or_default();
            role.zero_advantage += u64::from(sample.advantage == 0.0);
        }
    }
    for group in groups {
        let all = collapse::sameness(group.samples.iter().map(|s| s.sample));
        all.into_iter().for_each(|same| stats.sameness.add(same));
    }
    for reason in verdicts.iter().filter_map(|v| v.outcome.err()) {
        *stats.discarded.entry(reason).or_default() += 1;
    }
    stats
}

impl BatchStats {
    /// Counts a group of the batch for each of its roles.
    fn count_group(&mut self, group: &Chosen<'_>) {
        let mut roles: BTreeMap<&str, bool> = BTreeMap::new();
        for (sample, differs) in group.samples.iter().zip(&group.advantages.differs) {
            *roles.entry(&sample.role).or_default() |= differs;
        }
        for (name, differs) in roles {
            let role = self.by_role.entry(name.to_owned()).or_default();
            role.groups += 1;
            role.zero_groups += usize::from(!differs);
        }
    }

    fn add(&mut self, prepared: &PreparedSample<'_>) {
        let sample = prepared.sample;
        self.samples += 1;
        self.rows += sample.rows.len();
        self.tokens += prepared.tokens as u64;
        self.stale_tokens += prepared.stale_tokens as u64;
        self.truncated += usize::from(sample.status == SampleStatus::Truncated);
        self.on_policy_rows += prepared.rows.iter().filter(|row| row.on_policy).count();
        let trained = match prepared.discard {
            None => prepared.rows.iter().flat_map(|row| &row.trained).flatten().count() as u64,
            Some(_) => 0,
        };
        self.trained_tokens += trained;
        let (reward, repeated) = (f64::from(sample.reward), collapse::repetition(sample));
        self.reward.add(reward);
        let role = self.by_role.entry(sample.role.clone()).or_default();
        role.samples += 1;
        role.reward.add(reward);
        role.truncated += u64::from(sample.status == SampleStatus::Truncated);
        role.tokens += prepared.tokens as u64;
        role.trained_tokens += trained;
        role.stale_tokens += (prepared.stale_tokens as u64).min((prepared.tokens as u64).saturating_sub(trained));
        role.discarded += u64::from(prepared.discard.is_some());
        if let Some(reason) = prepared.discard {
            *role.discarded_by.entry(reason).or_default() += 1;
        }
        role.staleness.add(prepared.staleness);
        if let Some(repeated) = repeated {
            role.repetition.add(repeated);
            self.repetition.add(repeated);
        }
        for part in &sample.parts {
            let key = (sample.role.clone(), part.name.clone());
            self.reward_parts.entry(key).or_default().add(f64::from(part.value));
        }
        self.tokens_per_sample.add(prepared.tokens as f64);
        self.staleness.add(prepared.staleness);
    }
}

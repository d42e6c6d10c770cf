//! Advantages within one group of one agent: how far a sample's reward is above its baseline.
//!
//! Samples are compared only with samples of the same key (group, agent, role, subkey), so opposing
//! seats never share a baseline. `m_c` is the mean reward of the key within conversation c:
//! - `loo`: `A = r - mean of m_c' over the other conversations c'` (leave-one-out; Kool, van Hoof,
//!   Welling, 2019);
//! - `grpo`: `A = (r - mean) / (std + 1e-6)`, std unbiased over the rewards (DeepSeekMath,
//!   arXiv:2402.03300). The mean is over conversations, with r in place of the own conversation's
//!   `m_c`, so that r is never compared with another seat of that conversation. With one seat per
//!   conversation this is the published formula. The std is that of the rewards: that of the `m_c`
//!   can be 0 where seats differ, and the divisor would be the epsilon alone;
//! - `astraflow`: `(r - mean) / (std + 1e-5)` with all roles in one key (group, agent), then a
//!   z-score over the tokens of the batch ([`normalise`]). This recipe is kept for comparison;
//! - `reinforce_plus_plus`: `A = r`, and `reinforce_plus_plus_baseline`: `A = r - mean` with the
//!   mean of `grpo`, then a z-score over the tokens of the batch (REINFORCE++, arXiv:2501.03262,
//!   equations 6 to 8).
//!
//! A subkey names one thing that several seats try, for example a proposed problem. These tries are
//! independent, so each seat counts as a conversation in the formulas above. Without a subkey, the
//! seats of a conversation may have influenced each other and count as one.
//!
//! Sums run in f64, in a fixed order of samples, so the order of arrival changes no bit.

use std::collections::BTreeMap;

use broker::protocol::bundle::Sample;
use configs::Advantage;

const GRPO_EPSILON: f64 = 1e-6;
const ASTRAFLOW_EPSILON: f64 = 1e-5;
/// The smallest variance to divide by. A smaller divisor would turn rounding errors into advantages
/// near 1.
const REINFORCE_MIN_VARIANCE: f64 = 1e-8;
const ASTRAFLOW_CLIP: f64 = 20.0;

/// Advantages of the samples of one agent in one group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupAdvantages {
    /// One value for each sample, in the order given.
    pub values: Vec<f64>,
    /// For each sample, true if the conversations of its key differ in reward.
    pub differs: Vec<bool>,
    /// The number of (group, agent, role, subkey) keys.
    pub keys: usize,
    /// The number of keys with two or more conversations and equal rewards in all of them.
    pub equal: usize,
    /// The number of keys with a single conversation (or try), which cannot be compared.
    pub alone: usize,
}

impl GroupAdvantages {
    /// Returns true if every advantage of the group is 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.values.iter().all(|value| *value == 0.0)
    }
}

/// The comparison of a sample with the others of its key: `(reward - baseline) / scale` is the
/// advantage. For a single conversation or equal rewards it is 0, except for `reinforce_plus_plus`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The number of conversations (or tries) of the key.
    pub conversations: usize,
    /// The mean of `m_c` over the conversations.
    pub mean: f64,
    /// Unbiased standard deviation of the key's rewards.
    pub std: f64,
    /// The value subtracted from the reward (from the reward clamped to +-20 for `astraflow`).
    pub baseline: f64,
    /// The divisor of reward minus baseline.
    pub scale: f64,
    /// The advantage before [`normalise`].
    pub advantage: f64,
}

/// Returns the advantages of the samples of one whole group.
#[must_use]
pub fn of_group(kind: Advantage, samples: &[Sample]) -> GroupAdvantages {
    let mut group = GroupAdvantages {
        values: vec![0.0; samples.len()],
        differs: vec![false; samples.len()],
        ..GroupAdvantages::default()
    };
    for (key, indices) in keys(kind, samples) {
        group.keys += 1;
        group.alone += usize::from(key.alone());
        group.equal += usize::from(!key.alone() && key.equal);
        for i in indices {
            group.values[i] = key.compare(kind, &samples[i]).advantage;
            group.differs[i] = !key.alone() && !key.equal;
        }
    }
    group
}

/// Returns each sample's comparison, in the order given, with the same advantages as [`of_group`].
#[must_use]
pub fn comparisons(kind: Advantage, samples: &[Sample]) -> Vec<Comparison> {
    let mut compared: Vec<(usize, Comparison)> = Vec::with_capacity(samples.len());
    for (key, indices) in keys(kind, samples) {
        compared.extend(indices.into_iter().map(|i| (i, key.compare(kind, &samples[i]))));
    }
    compared.sort_by_key(|(i, _)| *i);
    compared.into_iter().map(|(_, comparison)| comparison).collect()
}

/// Returns the keys of a group, each with the indices of its samples, ordered by (member, role,
/// seat).
fn keys(kind: Advantage, samples: &[Sample]) -> Vec<(Key, Vec<usize>)> {
    let mut keys: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (index, sample) in samples.iter().enumerate() {
        let key = match kind {
            Advantage::Astraflow => ("", ""),
            _ => (sample.role.as_str(), sample.subkey.as_str()),
        };
        keys.entry(key).or_default().push(index);
    }
    let ordered = |mut indices: Vec<usize>| {
        indices.sort_by_key(|i| (samples[*i].member, &samples[*i].role, samples[*i].seat));
        (Key::new(indices.iter().map(|i| &samples[*i])), indices)
    };
    keys.into_values().map(ordered).collect()
}

/// The unit that counts as a conversation, (member, seat). With a subkey it is a single seat,
/// otherwise the whole conversation, as seat 0.
type Unit = (u16, u16);

fn unit(sample: &Sample) -> Unit {
    let seat = if sample.subkey.is_empty() { 0 } else { sample.seat };
    (sample.member, seat)
}

/// The rewards of one key.
struct Key {
    /// `m_c` by unit.
    means: BTreeMap<Unit, f64>,
    /// The sum of `m_c`, in the order of units.
    sum: f64,
    /// Unbiased standard deviation of the rewards.
    std: f64,
    rewards: Vec<f64>,
    equal: bool,
}

impl Key {
    fn new<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        let mut sums: BTreeMap<Unit, (f64, f64)> = BTreeMap::new();
        let mut rewards = Vec::new();
        for sample in samples {
            let (sum, count) = sums.entry(unit(sample)).or_default();
            *sum += f64::from(sample.reward);
            *count += 1.0;
            rewards.push(f64::from(sample.reward));
        }
        let means: BTreeMap<Unit, f64> = sums
            .into_iter()
            .map(|(unit, (sum, count))| (unit, sum / count))
            .collect();
        let equal = rewards.windows(2).all(|pair| pair[0] == pair[1]);
        Self {
            sum: means.values().sum(),
            std: unbiased_std(&rewards),
            means,
            rewards,
            equal,
        }
    }

    /// Returns true if there is only one conversation (or try), so nothing to compare with.
    fn alone(&self) -> bool {
        self.means.len() < 2
    }

    fn compare(&self, kind: Advantage, sample: &Sample) -> Comparison {
        let n = self.means.len() as f64;
        let reward = f64::from(sample.reward);
        let others = self.sum - self.means.get(&unit(sample)).copied().unwrap_or(0.0);
        let (clipped, baseline, scale) = match kind {
            Advantage::Loo => (reward, others / (n - 1.0).max(1.0), 1.0),
            Advantage::Grpo => (reward, (others + reward) / n, self.std + GRPO_EPSILON),
            Advantage::Astraflow => {
                let clip = |r: f64| r.clamp(-ASTRAFLOW_CLIP, ASTRAFLOW_CLIP);
                let rewards: Vec<f64> = self.rewards.iter().copied().map(clip).collect();
                let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
                (clip(reward), mean, unbiased_std(&rewards) + ASTRAFLOW_EPSILON)
            }
            Advantage::ReinforcePlusPlus => (reward, 0.0, 1.0),
            Advantage::ReinforcePlusPlusBaseline => (reward, (others + reward) / n, 1.0),
        };
        let no_contrast = (self.alone() || self.equal) && kind != Advantage::ReinforcePlusPlus;
        Comparison {
            conversations: self.means.len(),
            mean: self.sum / n,
            std: self.std,
            baseline,
            scale,
            advantage: if no_contrast { 0.0 } else { (clipped - baseline) / scale },
        }
    }
}

/// Returns the unbiased standard deviation, or 0 for fewer than two values.
fn unbiased_std(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if n < 2.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt()
}

/// Replaces the advantages of a whole batch by their z-scores over the batch's tokens. Call it only
/// if [`Advantage::is_of_batch`]. `values` has an advantage and its number of trained tokens for
/// each sample.
///
/// The standard deviation is unbiased (+ 1e-5) for `astraflow`. For REINFORCE++ it is biased, and
/// its variance at least 1e-8.
pub fn normalise(kind: Advantage, values: &mut [(f64, usize)]) {
    let tokens: f64 = values.iter().map(|(_, n)| *n as f64).sum();
    if tokens < 2.0 {
        return;
    }
    let mean = values.iter().map(|(a, n)| a * *n as f64).sum::<f64>() / tokens;
    let squares = values.iter().map(|(a, n)| (a - mean).powi(2) * *n as f64).sum::<f64>();
    let scale = match kind {
        Advantage::Astraflow => (squares / (tokens - 1.0)).sqrt() + ASTRAFLOW_EPSILON,
        _ => (squares / tokens).max(REINFORCE_MIN_VARIANCE).sqrt(),
    };
    for (advantage, _) in values {
        *advantage = (*advantage - mean) / scale;
    }
}

#[cfg(test)]
mod tests;

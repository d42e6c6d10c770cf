//! Advantages within one group of one agent: how far a sample's reward is above its baseline.
//!
//! The key is (group, agent, role, subkey), so opposing seats never share a baseline. `m_c` is the
//! mean reward of the key within conversation c:
//! - `loo`: `A = r - mean of m_c' over the other conversations c'` (leave-one-out; Kool, van Hoof,
//!   Welling, 2019);
//! - `grpo`: `A = (r - mean) / (std + 1e-6)`, std unbiased over the rewards (DeepSeekMath,
//!   arXiv:2402.03300). Its mean takes the sample's own reward in the place of its conversation's
//!   `m_c`, so that a sibling seat never enters the baseline. With one seat per conversation this
//!   is the published formula. The scale is that of the rewards and not of the `m_c`. Otherwise
//!   conversations with equal means and unlike seats would be divided by the epsilon alone;
//! - `astraflow`: pooled over (group, agent), `(r - mean) / (std + 1e-5)`, then a z-score over the
//!   tokens of the batch ([`normalise`]). This is the reference recipe, kept for comparison;
//! - `reinforce_plus_plus`: `A = r`, and `reinforce_plus_plus_baseline`: `A = r - mean` with the
//!   mean of `grpo`, then a z-score over the tokens of the batch (REINFORCE++, arXiv:2501.03262,
//!   equations 6 to 8).
//!
//! A subkey names one thing that is tried several times, for example a proposed problem. Its seats
//! are independent tries, and each counts as a conversation in the formulas above. Without a
//! subkey, the seats of a conversation may have influenced each other and count as one.
//!
//! Sums run in the order of (member, seat), in f64, so the order of arrival changes no bit.

use std::collections::BTreeMap;

use broker::protocol::bundle::Sample;
use configs::Advantage;

const GRPO_EPSILON: f64 = 1e-6;
const ASTRAFLOW_EPSILON: f64 = 1e-5;
/// The least variance. Below it, rounding errors would become advantages near 1.
const REINFORCE_VARIANCE: f64 = 1e-8;
const ASTRAFLOW_CLIP: f64 = 20.0;

/// Advantages of the samples of one agent in one group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupAdvantages {
    /// One value for each sample, in the order given.
    pub values: Vec<f64>,
    /// The number of (group, agent, role, subkey) keys.
    pub keys: usize,
    /// The number of keys with two or more conversations and equal rewards in all of them.
    pub equal: usize,
    /// The number of keys with one conversation (or try): there is no comparison, so A = 0.
    pub alone: usize,
}

impl GroupAdvantages {
    /// Returns true if every advantage of the group is 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.values.iter().all(|value| *value == 0.0)
    }
}

/// How one sample compares with the others of its key: `advantage = (reward - baseline) / scale`,
/// or 0 where there is no comparison.
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
    /// The divisor of the difference.
    pub scale: f64,
    /// The advantage before [`normalise`].
    pub advantage: f64,
}

/// Returns the advantages of the samples of one whole group.
#[must_use]
pub fn of_group(kind: Advantage, samples: &[Sample]) -> GroupAdvantages {
    let mut group = GroupAdvantages {
        values: vec![0.0; samples.len()],
        ..GroupAdvantages::default()
    };
    for (key, at) in keys(kind, samples) {
        group.keys += 1;
        group.alone += usize::from(key.alone());
        group.equal += usize::from(!key.alone() && key.equal);
        for i in at {
            group.values[i] = key.compare(kind, &samples[i]).advantage;
        }
    }
    group
}

/// Returns the comparison of each sample, from which [`of_group`] takes the advantages, in the
/// order given.
#[must_use]
pub fn comparisons(kind: Advantage, samples: &[Sample]) -> Vec<Comparison> {
    let mut compared: Vec<(usize, Comparison)> = Vec::with_capacity(samples.len());
    for (key, at) in keys(kind, samples) {
        compared.extend(at.into_iter().map(|i| (i, key.compare(kind, &samples[i]))));
    }
    compared.sort_by_key(|(i, _)| *i);
    compared.into_iter().map(|(_, comparison)| comparison).collect()
}

/// The keys of a group, each with the places of its samples in the order of (member, seat).
fn keys(kind: Advantage, samples: &[Sample]) -> Vec<(Key, Vec<usize>)> {
    let mut keys: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (at, sample) in samples.iter().enumerate() {
        let key = match kind {
            Advantage::Astraflow => ("", ""),
            _ => (sample.role.as_str(), sample.subkey.as_str()),
        };
        keys.entry(key).or_default().push(at);
    }
    let ordered = |mut at: Vec<usize>| {
        at.sort_by_key(|i| (samples[*i].member, &samples[*i].role, samples[*i].seat));
        (Key::new(at.iter().map(|i| &samples[*i])), at)
    };
    keys.into_values().map(ordered).collect()
}

/// The unit of comparison: a conversation, by its member, or with a subkey one seat of it.
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

    /// The result for a key without a comparison.
    fn alone(&self) -> bool {
        self.means.len() < 2
    }

    fn compare(&self, kind: Advantage, sample: &Sample) -> Comparison {
        let n = self.means.len() as f64;
        let reward = f64::from(sample.reward);
        let others = self.sum - self.means.get(&unit(sample)).copied().unwrap_or(0.0);
        let (held, baseline, scale) = match kind {
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
        let says_nothing = (self.alone() || self.equal) && kind != Advantage::ReinforcePlusPlus;
        Comparison {
            conversations: self.means.len(),
            mean: self.sum / n,
            std: self.std,
            baseline,
            scale,
            advantage: if says_nothing { 0.0 } else { (held - baseline) / scale },
        }
    }
}

/// Returns 0 for fewer than two values.
fn unbiased_std(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if n < 2.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt()
}

/// Normalises advantages over a whole batch, for the kinds that do so. Subtracts the mean over the
/// batch's tokens and divides by their standard deviation: unbiased (+ 1e-5) for `astraflow`,
/// biased (of a variance of at least 1e-8) for REINFORCE++. `values` are (advantage, trained tokens
/// that carry it).
pub fn normalise(kind: Advantage, values: &mut [(f64, usize)]) {
    let tokens: f64 = values.iter().map(|(_, n)| *n as f64).sum();
    if tokens < 2.0 {
        return;
    }
    let mean = values.iter().map(|(a, n)| a * *n as f64).sum::<f64>() / tokens;
    let squares = values.iter().map(|(a, n)| (a - mean).powi(2) * *n as f64).sum::<f64>();
    let scale = match kind {
        Advantage::Astraflow => (squares / (tokens - 1.0)).sqrt() + ASTRAFLOW_EPSILON,
        _ => (squares / tokens).max(REINFORCE_VARIANCE).sqrt(),
    };
    for (advantage, _) in values {
        *advantage = (*advantage - mean) / scale;
    }
}

#[cfg(test)]
mod tests;

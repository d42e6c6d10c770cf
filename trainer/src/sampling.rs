//! Chooses the next token on the host, from probabilities over the vocabulary and the request's own
//! random numbers.
//!
//! The order is temperature -> top-k -> top-p -> min-p, as in Hugging Face's transformers. The draw
//! inverts the cumulative distribution at `uniform(seed, position)`, so a request has the same
//! random numbers in every batch.

use std::cmp::Ordering;

use broker::protocol::engine::TopLogprob;

use crate::rng;

/// The sampling parameters of one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy: the most likely token, the lowest id among equals, with its log-prob at
    /// temperature 1.
    pub temperature: f32,
    /// Keeps the smallest set of most likely tokens with at least this total probability; 1 keeps
    /// all.
    pub top_p: f32,
    /// Keeps this many most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps tokens at least this likely relative to the most likely one; 0 keeps all.
    pub min_p: f32,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
        }
    }
}

impl SamplingParams {
    /// Returns the fault of the parameters, if any.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let wrong = |name: &str, value: f32, rule: &str| Some(format!("{name} is {value}: it must be {rule}"));
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return wrong("temperature", self.temperature, "0 or more");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return wrong("top_p", self.top_p, "above 0 and at most 1");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return wrong("min_p", self.min_p, "from 0 to 1");
        }
        None
    }

    /// Returns true if the draw may leave out tokens with a probability above 0.
    #[must_use]
    pub fn truncates(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0
    }

    /// The divisor of the logits before the softmax that [`pick`] needs.
    #[must_use]
    pub fn divisor(&self) -> f32 {
        if self.temperature > 0.0 { self.temperature } else { 1.0 }
    }
}

/// A chosen token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    pub id: u32,
    /// In f32 over the full vocabulary, after temperature and before truncation.
    pub logprob: f32,
    /// Log of the total probability of the tokens that truncation kept; 0 without truncation, and
    /// for greedy choices. The token was drawn from the truncated and renormalised distribution,
    /// where its log-prob is `logprob - log_kept`.
    pub log_kept: f32,
}

/// Chooses from `probs` = softmax(logits / divisor), one per id. Returns `None` when they are not a
/// distribution: the logits were not finite.
#[must_use]
pub fn pick(probs: &[f32], params: &SamplingParams, seed: u64, position: u32) -> Option<Choice> {
    let draw = |total: f64| total * uniform(seed, position);
    let mut log_kept = 0.0;
    let index = if params.temperature == 0.0 {
        most_likely(probs)?
    } else if params.truncates() {
        let kept = truncate(probs, params)?;
        let total: f64 = kept.iter().map(|&i| f64::from(probs[i])).sum();
        // By rounding, the sum may exceed 1.
        log_kept = total.ln().min(0.0) as f32;
        invert(kept.iter().map(|&i| (i, probs[i])), draw(total))?
    } else {
        let total: f64 = probs.iter().map(|&p| f64::from(p)).sum();
        if !(total > 0.5 && total < 2.0) {
            return None;
        }
        invert(probs.iter().copied().enumerate(), draw(total))?
    };
    let p = probs[index];
    (p > 0.0).then(|| Choice {
        id: index as u32,
        logprob: p.ln(),
        log_kept,
    })
}

/// The `count` most likely tokens of [`pick`]'s input, with log-probs as in [`Choice`]: most likely
/// first, the lower id first among equals. Fewer if fewer tokens have a probability above 0.
#[must_use]
pub fn top(probs: &[f32], count: usize) -> Vec<TopLogprob> {
    let mut best: Vec<(usize, f32)> = Vec::with_capacity(count.min(probs.len()) + 1);
    let mut floor = 0.0;
    for (id, &p) in probs.iter().enumerate() {
        if p > floor && count > 0 {
            let place = best.partition_point(|(_, other)| *other >= p);
            best.insert(place, (id, p));
            best.truncate(count);
            if let Some((_, least)) = best.get(count - 1) {
                floor = *least;
            }
        }
    }
    let likely = |(id, p): (usize, f32)| TopLogprob {
        id: id as u32,
        logprob: p.ln(),
    };
    best.into_iter().map(likely).collect()
}

/// The random stream of sampled tokens.
const TOKENS: u64 = 0;

/// The request's random number for the token at `position`, in [0, 1).
pub(crate) fn uniform(seed: u64, position: u32) -> f64 {
    rng::uniform(seed, TOKENS, u64::from(position))
}

fn most_likely(probs: &[f32]) -> Option<usize> {
    let mut best = None;
    let mut most = 0.0;
    for (i, &p) in probs.iter().enumerate() {
        if p.is_nan() {
            return None;
        }
        if p > most {
            (best, most) = (Some(i), p);
        }
    }
    best
}

/// The first place where the running sum exceeds `target`, or the last possible one when rounding
/// leaves a remainder.
fn invert(probs: impl Iterator<Item = (usize, f32)>, target: f64) -> Option<usize> {
    let mut sum = 0.0;
    let mut last = None;
    for (i, p) in probs {
        if p > 0.0 {
            sum += f64::from(p);
            last = Some(i);
            if sum > target {
                break;
            }
        }
    }
    last
}

/// The number of most likely tokens that are examined before the whole vocabulary is sorted.
const HEAD: usize = 1024;

/// The ids that pass top-k, top-p and min-p, most likely first, the lower id first among equals.
fn truncate(probs: &[f32], params: &SamplingParams) -> Option<Vec<usize>> {
    let likelier = |&a: &usize, &b: &usize| {
        probs[b]
            .partial_cmp(&probs[a])
            .unwrap_or(Ordering::Equal)
            .then(a.cmp(&b))
    };
    if probs.iter().any(|p| p.is_nan()) {
        return None;
    }
    let mut ids: Vec<usize> = (0..probs.len()).collect();
    let limit = params.top_k as usize;
    if limit > 0 && limit < ids.len() {
        ids.select_nth_unstable_by(limit, likelier);
        ids.truncate(limit);
    }
    let total = ids.iter().map(|&i| f64::from(probs[i])).sum();
    let head = HEAD.min(ids.len());
    if head < ids.len() {
        ids.select_nth_unstable_by(head, likelier);
    }
    ids[..head].sort_unstable_by(likelier);
    let mut kept = keep(&ids[..head], probs, params, total);
    if kept == head && head < ids.len() {
        ids.sort_unstable_by(likelier);
        kept = keep(&ids, probs, params, total);
    }
    ids.truncate(kept);
    Some(ids)
}

/// The number of sorted ids that top-p and min-p keep, at least one. `total` is the total
/// probability of the ids that top-k kept.
fn keep(sorted: &[usize], probs: &[f32], params: &SamplingParams, total: f64) -> usize {
    let floor = sorted.first().map_or(0.0, |&first| params.min_p * probs[first]);
    let goal = f64::from(params.top_p) * total;
    let mut sum = 0.0;
    for (count, &id) in sorted.iter().enumerate() {
        let reached = params.top_p < 1.0 && sum >= goal;
        if count > 0 && (reached || probs[id] < floor) {
            return count;
        }
        sum += f64::from(probs[id]);
    }
    sorted.len()
}

#[cfg(test)]
mod tests;

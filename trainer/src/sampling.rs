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
    let draw = |total: f64| total * rng::uniform(seed, TOKENS, u64::from(position));
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: SamplingParams = SamplingParams {
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
    };

    fn normalise(weights: &[f32]) -> Vec<f32> {
        let total: f32 = weights.iter().sum();
        weights.iter().map(|w| w / total).collect()
    }

    /// The definition, by a full sort.
    fn slow(probs: &[f32], params: &SamplingParams) -> Vec<usize> {
        let mut ids: Vec<usize> = (0..probs.len()).collect();
        ids.sort_by(|&a, &b| probs[b].total_cmp(&probs[a]).then(a.cmp(&b)));
        if params.top_k > 0 {
            ids.truncate(params.top_k as usize);
        }
        let total: f64 = ids.iter().map(|&i| f64::from(probs[i])).sum();
        if params.top_p < 1.0 {
            let mut sum = 0.0;
            let n = ids.iter().take_while(|&&i| {
                let before = sum;
                sum += f64::from(probs[i]);
                before < f64::from(params.top_p) * total
            });
            let n = n.count().max(1);
            ids.truncate(n);
        }
        let floor = params.min_p * probs[ids[0]];
        ids.retain(|&i| probs[i] >= floor);
        ids
    }

    #[test]
    fn frequencies_follow_the_probabilities() {
        let probs = normalise(&[1.0, 0.0, 5.0, 3.0, 1.0]);
        let n = 20_000u32;
        let mut counts = [0u32; 5];
        for seed in 0..u64::from(n) {
            counts[pick(&probs, &SAMPLE, seed, 3).unwrap().id as usize] += 1;
        }
        let chi: f64 = (0..5)
            .filter(|&i| probs[i] > 0.0)
            .map(|i| {
                let wanted = f64::from(probs[i]) * f64::from(n);
                (f64::from(counts[i]) - wanted).powi(2) / wanted
            })
            .sum();
        assert_eq!(counts[1], 0);
        assert!(
            chi < 16.3,
            "chi squared {chi} with 3 degrees of freedom is beyond 0.999"
        );
    }

    #[test]
    fn greedy_takes_the_lowest_id_and_truncation_reports_its_part() {
        let probs = [0.1f32, 0.4, 0.4, 0.1];
        let greedy = SamplingParams {
            temperature: 0.0,
            ..SAMPLE
        };
        assert_eq!(
            pick(&probs, &greedy, 0, 0),
            Some(Choice {
                id: 1,
                logprob: 0.4f32.ln(),
                log_kept: 0.0,
            })
        );
        let narrow = SamplingParams { top_k: 1, ..SAMPLE };
        for seed in 0..50 {
            assert_eq!(
                pick(&probs, &narrow, seed, 0),
                Some(Choice {
                    id: 1,
                    logprob: 0.4f32.ln(),
                    log_kept: f64::from(0.4f32).ln() as f32,
                })
            );
        }
    }

    #[test]
    fn log_probs_less_what_was_kept_are_those_of_the_frequencies() {
        // For 0.5, 0.25, 0.15, 0.1, top-p 0.8 keeps three, with probabilities 50/90, 25/90 and
        // 15/90.
        let probs = [0.15f32, 0.5, 0.1, 0.25];
        let params = SamplingParams { top_p: 0.8, ..SAMPLE };
        let n = 30_000u32;
        let mut counts = [0u32; 4];
        let mut behaviour = [0f64; 4];
        for seed in 0..u64::from(n) {
            let choice = pick(&probs, &params, seed, 0).unwrap();
            counts[choice.id as usize] += 1;
            behaviour[choice.id as usize] = f64::from(choice.logprob - choice.log_kept).exp();
        }
        assert_eq!(counts[2], 0, "it was left out");
        for (id, wanted) in [(0, 15.0 / 90.0), (1, 50.0 / 90.0), (3, 25.0 / 90.0)] {
            assert!((behaviour[id] - wanted).abs() < 1e-6, "{id}: {}", behaviour[id]);
            // Five standard deviations.
            let spread = 5.0 * (wanted * (1.0 - wanted) / f64::from(n)).sqrt();
            let found = f64::from(counts[id]) / f64::from(n);
            assert!((found - wanted).abs() < spread, "{id}: {found}");
        }
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for params in [
            SAMPLE,
            SamplingParams {
                temperature: 0.0,
                ..SAMPLE
            },
            SamplingParams { top_k: 2, ..SAMPLE },
        ] {
            assert_eq!(pick(&[0.5, f32::NAN, 0.5], &params, 0, 0), None);
            assert_eq!(pick(&[0.0; 4], &params, 0, 0), None);
            assert_eq!(pick(&[], &params, 0, 0), None);
        }
        assert!(SamplingParams { top_p: 0.0, ..SAMPLE }.fault().is_some());
        assert!(
            SamplingParams {
                temperature: f32::NAN,
                ..SAMPLE
            }
            .fault()
            .is_some()
        );
        assert!(SamplingParams { min_p: 1.5, ..SAMPLE }.fault().is_some());
        assert_eq!(SAMPLE.fault(), None);
    }

    #[test]
    fn what_has_no_probability_is_among_no_likely_tokens() {
        let ids = |probs: &[f32], count| top(probs, count).iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(&[0.0, 0.75, 0.0, 0.25], 3), [1, 3]);
        assert_eq!(ids(&[0.25; 4], 3), [0, 1, 2]);
        assert_eq!(ids(&[0.25; 4], 0), [0; 0]);
        assert_eq!(top(&[1.0], 20), [TopLogprob { id: 0, logprob: 0.0 }]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_likely_tokens_are_the_first_of_all_sorted(
            // Few distinct values, so that many are equal.
            weights in prop::collection::vec((0u8..6).prop_map(f32::from), 1..60), count in 0usize..30,
        ) {
            prop_assume!(weights.iter().any(|w| *w > 0.0));
            let probs = normalise(&weights);
            let mut ids: Vec<usize> = (0..probs.len()).filter(|i| probs[*i] > 0.0).collect();
            ids.sort_by(|a, b| probs[*b].total_cmp(&probs[*a]).then(a.cmp(b)));
            ids.truncate(count);
            let found = top(&probs, count);
            let found: Vec<(usize, f32)> = found.iter().map(|one| (one.id as usize, one.logprob)).collect();
            prop_assert_eq!(found, ids.iter().map(|i| (*i, probs[*i].ln())).collect::<Vec<_>>());
        }

        #[test]
        fn the_fast_truncation_is_the_definition(
            weights in prop::collection::vec(0.0f32..1.0, 1..3000),
            top_k in prop_oneof![Just(0u32), 1u32..3000], top_p in prop_oneof![Just(1.0f32), 0.01f32..1.0],
            min_p in prop_oneof![Just(0.0f32), 0.0f32..1.0],
        ) {
            prop_assume!(weights.iter().any(|w| *w > 0.0));
            let probs = normalise(&weights);
            let params = SamplingParams { temperature: 1.0, top_p, top_k, min_p };
            let (fast, slow) = (truncate(&probs, &params).unwrap(), slow(&probs, &params));
            // Sums in another order may move the edge of top-p by one rounding.
            prop_assert!(fast.len().abs_diff(slow.len()) <= 1, "{} and {}", fast.len(), slow.len());
            let n = fast.len().min(slow.len());
            prop_assert_eq!(&fast[..n], &slow[..n]);
        }
    }
}

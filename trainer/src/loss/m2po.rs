//! M2PO: bounds how far a token may be from its sampler by the second moment of the log-ratios
//! (Zheng et al., "Prosperity before Collapse: How Far Can Off-Policy RL Reach with Stale Data on
//! LLMs?", arXiv:2510.01161).
//!
//! There are three published ways to keep `mean l^2` of the harmful tokens under a budget, with
//! `l = p - q`. A token is harmful in the two quadrants where a clip acts: `A > 0` with `l > 0`,
//! and `A < 0` with `l < 0`.

pub use broker::protocol::train::M2poMode;

use super::policy::policy_between;
use super::token::Term;

/// Squared log-ratios of a scope, as sums, so that scopes can be added.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moment {
    /// The number of tokens under the budget: the harmful ones, or all tokens for
    /// [`M2poMode::Mask`].
    pub bounded: f64,
    pub sum: f64,
    /// The number of these tokens that keep their gradient, and the sum of their squares. For
    /// [`M2poMode::Cap`], all of them and the capped squares.
    pub kept: f64,
    pub kept_sum: f64,
}

/// The result of applying the budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// The ratio is clipped to `low..=high`.
    pub low: f64,
    pub high: f64,
    /// True for tokens that count. [`M2poMode::Mask`] drops the others, also from the denominator.
    pub kept: Vec<bool>,
    pub moment: Moment,
}

/// AstraFlow's clip bounds when the budget needs no change; it never exceeds them.
const WIDEST_LOW: f64 = 0.95;
const WIDEST_HIGH: f64 = 20.0;

/// Computes the bounds for the tokens of one scope: a minibatch, or a micro-batch in the published
/// codes. `log_ratios` and `advantages` have one entry per token, all of them trained.
#[must_use]
pub fn bounds(mode: M2poMode, log_ratios: &[f64], advantages: &[f64], budget: f64) -> Bounds {
    let pairs = log_ratios.iter().zip(advantages);
    let chosen = pairs.filter(|(l, a)| mode == M2poMode::Mask || is_harmful(**l, **a));
    let mut squares: Vec<f64> = chosen.map(|(l, _)| l * l).collect();
    squares.sort_by(|a, b| b.total_cmp(a));
    let over = !squares.is_empty() && mean(&squares) > budget;
    let (mut low, mut high) = match mode {
        M2poMode::Clip => (1.0 - WIDEST_LOW, 1.0 + WIDEST_HIGH),
        M2poMode::Cap | M2poMode::Mask => (0.0, f64::INFINITY),
    };
    let mut kept = vec![true; log_ratios.len()];
    let after = match mode {
        _ if !over => squares.clone(),
        M2poMode::Clip => {
            let first = first_within(&squares, budget);
            let cut = squares[first].sqrt();
            low = low.max((-cut).exp());
            high = high.min(cut.exp());
            squares[first..].to_vec()
        }
        M2poMode::Cap => {
            let largest = largest_cap(&squares, budget);
            let cut = largest.sqrt();
            (low, high) = ((-cut).exp(), cut.exp());
            squares.iter().map(|square| square.min(largest)).collect()
        }
        M2poMode::Mask => {
            let dropped = first_within(&squares, budget);
            kept = masked(log_ratios, dropped);
            squares[dropped..].to_vec()
        }
    };
    Bounds {
        low,
        high,
        kept,
        moment: Moment {
            bounded: squares.len() as f64,
            sum: squares.iter().sum(),
            kept: after.len() as f64,
            kept_sum: after.iter().sum(),
        },
    }
}

/// Returns true if a clip could act: the loss pushes further in the direction of the ratio.
fn is_harmful(log_ratio: f64, advantage: f64) -> bool {
    (advantage > 0.0 && log_ratio > 0.0) || (advantage < 0.0 && log_ratio < 0.0)
}

/// The first place in the descending list from which the mean is below the budget, or the last
/// place if there is none.
fn first_within(descending: &[f64], budget: f64) -> usize {
    let mut sum: f64 = descending.iter().sum();
    for (place, square) in descending.iter().enumerate() {
        if sum / ((descending.len() - place) as f64) < budget {
            return place;
        }
        sum -= square;
    }
    descending.len() - 1
}

/// The largest element `c` for which the mean of `min(x, c)` is within the budget, or the smallest
/// element if there is none.
fn largest_cap(descending: &[f64], budget: f64) -> f64 {
    let count = descending.len() as f64;
    let mut rest: f64 = descending.iter().sum();
    for (place, square) in descending.iter().enumerate() {
        // The squares before this one are capped to it.
        if (rest + place as f64 * square) / count <= budget {
            return *square;
        }
        rest -= square;
    }
    descending.last().copied().unwrap_or(0.0)
}

/// Masks the `dropped` tokens with the largest squares. Among equals, the later token is dropped
/// first.
fn masked(log_ratios: &[f64], dropped: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..log_ratios.len()).collect();
    order.sort_by(|a, b| log_ratios[*b].abs().total_cmp(&log_ratios[*a].abs()).then(b.cmp(a)));
    let mut kept = vec![true; log_ratios.len()];
    order.into_iter().take(dropped).for_each(|token| kept[token] = false);
    kept
}

/// Returns `max(-A r, -A clip(r, low, high))` of one token and its derivative by the log-prob.
#[must_use]
pub fn token(bounds: &Bounds, log_ratio: f64, advantage: f64) -> Term {
    policy_between(log_ratio, 0.0, advantage, bounds.low, bounds.high)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: [f64; 8] = [1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0];
    const L: [f64; 8] = [0.02, 0.30, -0.40, 0.10, -0.05, -0.25, 0.50, -0.15];

    #[test]
    fn the_golden_case_of_the_clip() {
        let bounds = bounds(M2poMode::Clip, &L, &A, 0.01);
        let moment = bounds.moment;
        assert!((moment.sum / moment.bounded - 0.031_316_7).abs() < 1e-7);
        assert!((moment.kept_sum / moment.kept - 0.008_85).abs() < 1e-9 && moment.kept == 4.0);
        assert!((bounds.low - 0.860_708).abs() < 1e-6 && (bounds.high - 1.161_834).abs() < 1e-6);
        let terms: Vec<_> = L.iter().zip(A).map(|(l, a)| token(&bounds, *l, a)).collect();
        let loss = terms.iter().map(|term| term.value).sum::<f64>() / 8.0;
        assert!((loss - 0.045_480_0).abs() < 1e-6, "{loss}");
        let still: Vec<usize> = (0..8).filter(|i| terms[*i].d_logprob == 0.0).collect();
        assert_eq!(still, [1, 5]);
    }

    #[test]
    fn the_other_two_on_the_same_data() {
        let cap = bounds(M2poMode::Cap, &L, &A, 0.01);
        assert!((cap.high.ln() - 0.10).abs() < 1e-12 && (cap.low.ln() + 0.10).abs() < 1e-12);
        let mask = bounds(M2poMode::Mask, &L, &A, 0.01);
        let dropped: Vec<usize> = (0..8).filter(|i| !mask.kept[*i]).collect();
        assert_eq!(dropped, [1, 2, 5, 6]);
        assert_eq!((mask.low, mask.high), (0.0, f64::INFINITY));
    }

    #[test]
    fn under_the_budget_nothing_happens() {
        let small = L.map(|l| l / 100.0);
        let clip = bounds(M2poMode::Clip, &small, &A, 0.01);
        assert!((clip.low - 0.05).abs() < 1e-12 && clip.high == 21.0);
        assert_eq!(bounds(M2poMode::Cap, &small, &A, 0.01).high, f64::INFINITY);
        assert!(bounds(M2poMode::Mask, &small, &A, 0.01).kept.iter().all(|kept| *kept));
        assert!(bounds(M2poMode::Clip, &[], &[], 0.01).kept.is_empty());
    }

    #[test]
    fn derivatives_equal_finite_differences() {
        for mode in [M2poMode::Clip, M2poMode::Cap, M2poMode::Mask] {
            // The bounds are statistics: they are held constant.
            let bounds = bounds(mode, &L, &A, 0.01);
            for (l, a) in L.iter().zip(A) {
                let at = |by: f64| token(&bounds, l + by, a).value;
                let slope = (at(1e-7) - at(-1e-7)) / 2e-7;
                let kink = (l - bounds.high.ln()).abs() < 1e-6 || (l - bounds.low.ln()).abs() < 1e-6;
                let got = token(&bounds, *l, a).d_logprob;
                assert!(kink || (slope - got).abs() < 1e-6, "{mode:?} {l} {a}: {slope} {got}");
            }
        }
    }

    proptest! {
        /// Whatever the data, the remaining tokens are within the budget, or only one token
        /// remains.
        #[test]
        fn the_budget_is_kept(data in prop::collection::vec((-1.0f64..1.0, any::<bool>()), 1..40), budget in 1e-4f64..0.2) {
            let l: Vec<f64> = data.iter().map(|(l, _)| *l).collect();
            let a: Vec<f64> = data.iter().map(|(_, up)| if *up { 1.0 } else { -1.0 }).collect();
            let harmful = |i: usize| a[i] * l[i] > 0.0;
            let clip = bounds(M2poMode::Clip, &l, &a, budget);
            let free: Vec<f64> = (0..l.len())
                .filter(|i| harmful(*i) && !token(&clip, l[*i], a[*i]).clipped)
                .map(|i| l[i] * l[i])
                .collect();
            prop_assert!(free.len() <= 1 || mean(&free) <= budget + 1e-9);
            let cap = bounds(M2poMode::Cap, &l, &a, budget).high.ln();
            let capped: Vec<f64> = (0..l.len()).filter(|i| harmful(*i)).map(|i| (l[i] * l[i]).min(cap * cap)).collect();
            let least = capped.iter().copied().fold(f64::INFINITY, f64::min);
            prop_assert!(mean(&capped) <= budget + 1e-9 || cap * cap <= least + 1e-12);
            let mask = bounds(M2poMode::Mask, &l, &a, budget);
            let left: Vec<f64> = (0..l.len()).filter(|i| mask.kept[*i]).map(|i| l[i] * l[i]).collect();
            prop_assert!(left.len() <= 1 || mean(&left) <= budget + 1e-9);
        }
    }
}

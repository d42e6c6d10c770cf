//! Percentile bootstrap intervals of a difference. The random numbers are fixed, so equal values
//! give equal intervals.

use super::{Interval, mean};

const RESAMPLES: usize = 10_000;
const SEED: u64 = 0x6479_6164;

/// Returns the interval of the mean of differences between paired values. None for fewer than two
/// values, which do not determine a spread.
#[must_use]
pub fn paired(differences: &[f64]) -> Option<Interval> {
    if differences.len() < 2 {
        return None;
    }
    let mut random = Random(SEED);
    let means = (0..RESAMPLES).map(|_| random.resampled_mean(differences)).collect();
    Some(percentiles(mean(differences), means))
}

/// Returns the interval of `mean(b) - mean(a)`, with each side resampled separately. None if a side
/// has fewer than two values.
#[must_use]
pub fn unpaired(a: &[f64], b: &[f64]) -> Option<Interval> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let mut random = Random(SEED);
    let differences = (0..RESAMPLES)
        .map(|_| {
            let of_a = random.resampled_mean(a);
            random.resampled_mean(b) - of_a
        })
        .collect();
    Some(percentiles(mean(b) - mean(a), differences))
}

fn percentiles(mean: f64, mut found: Vec<f64>) -> Interval {
    found.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let index = (part * (found.len() - 1) as f64).round() as usize;
        found.get(index).copied().unwrap_or(mean)
    };
    Interval {
        mean,
        low: at(0.025),
        high: at(0.975),
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the mean of `values.len()` values drawn with replacement.
    fn resampled_mean(&mut self, values: &[f64]) -> f64 {
        let n = values.len() as u64;
        // The upper half of the product is uniform below n, except for a bias of 1 in 2^64 / n.
        let draw = |bits: u64| ((u128::from(bits) * u128::from(n)) >> 64) as usize;
        let sum: f64 = (0..n).map(|_| values[draw(self.next())]).sum();
        sum / n as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::t;
    use proptest::prelude::*;

    #[test]
    fn many_values_have_the_interval_that_theory_gives() {
        let values: Vec<f64> = (0..400).map(|i| f64::from(i % 20)).collect();
        let (found, theory) = (paired(&values).unwrap(), t(&values).unwrap());
        assert!((found.low - theory.low).abs() < 0.05 && (found.high - theory.high).abs() < 0.05);
        assert_eq!(
            paired(&values),
            paired(&values),
            "the same values give the same interval"
        );
        let shifted: Vec<f64> = values.iter().map(|value| value + 3.0).collect();
        let found = unpaired(&values, &shifted).unwrap();
        // The variance of a difference is the sum of two variances.
        let margin = (theory.high - theory.mean) * 2f64.sqrt();
        assert!(
            (found.mean - 3.0).abs() < 1e-9 && (found.high - 3.0 - margin).abs() < 0.08,
            "{found:?}"
        );
    }

    #[test]
    fn equal_differences_give_an_interval_of_zero_width() {
        let found = paired(&[0.5; 7]).unwrap();
        assert_eq!((found.low, found.high), (0.5, 0.5));
        assert_eq!(paired(&[]), None);
        assert_eq!(paired(&[1.0]), None);
        assert_eq!(unpaired(&[0.0], &[1.0, 1.0]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn an_interval_stays_within_the_observed_values(values in prop::collection::vec(-3.0..3.0f64, 2..12)) {
            let found = paired(&values).unwrap();
            let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
            prop_assert!(least - 1e-9 <= found.low && found.low <= found.high && found.high <= most + 1e-9);
        }
    }
}

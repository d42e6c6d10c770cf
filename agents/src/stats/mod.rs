//! Statistics of evaluations: means with 95% intervals, and repeated samples of a task
//! ([`repeated`]).
//!
//! Everything here is a pure function of numbers. An interval names what varied. Values over tasks
//! estimate other tasks of the same kind with the same weights; values over runs estimate another
//! seed.

mod bootstrap;
pub mod figures;
pub mod repeated;
mod student;
pub mod summary;

pub use bootstrap::{paired, unpaired};
pub use student::quantile;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run_folder::logs::numbers::number;

/// Two-sided 95% quantile of a normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// A mean, or a difference of means, with its 95% interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    #[serde(deserialize_with = "number")]
    pub mean: f64,
    #[serde(deserialize_with = "number")]
    pub low: f64,
    #[serde(deserialize_with = "number")]
    pub high: f64,
}

/// Returns the mean; 0 for an empty slice.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the unbiased variance; 0 for fewer than two values.
fn variance(values: &[f64]) -> f64 {
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    squares / values.len().saturating_sub(1).max(1) as f64
}

/// Returns Student's t interval of independent values. None for fewer than two values, which do not
/// determine a spread.
#[must_use]
pub fn t(values: &[f64]) -> Option<Interval> {
    let n = values.len();
    if n < 2 {
        return None;
    }
    let margin = quantile(n - 1) * (variance(values) / n as f64).sqrt();
    Some(around(mean(values), margin))
}

/// Returns Wilson's score interval of the share `ones` of `n`. Unlike t it has a width where all
/// values are equal. None if `n` is 0.
#[must_use]
pub fn wilson(ones: usize, n: usize) -> Option<Interval> {
    if n == 0 || ones > n {
        return None;
    }
    let (share, n) = (ones as f64 / n as f64, n as f64);
    let square = Z * Z;
    let centre = (share + square / (2.0 * n)) / (1.0 + square / n);
    let margin = Z / (1.0 + square / n) * (share * (1.0 - share) / n + square / (4.0 * n * n)).sqrt();
    Some(Interval {
        mean: share,
        // Rounding must leave the mean inside the interval, and the interval inside 0 to 1.
        low: (centre - margin).clamp(0.0, share),
        high: (centre + margin).clamp(share, 1.0),
    })
}

/// Returns the interval over tasks: Wilson's where each value is 0 or 1, else Student's t.
#[must_use]
pub fn over_tasks(values: &[f64]) -> Option<Interval> {
    let ones = values.iter().filter(|value| **value == 1.0).count();
    if values.iter().all(|value| *value == 0.0 || *value == 1.0) {
        wilson(ones, values.len())
    } else {
        t(values)
    }
}

/// Returns the interval of a named figure over tasks, as [`over_tasks`] does. The interval of a
/// share (`success`, pass@k, maj@k) stays within 0 to 1.
#[must_use]
pub fn over_tasks_of(name: &str, values: &[f64]) -> Option<Interval> {
    let found = over_tasks(values)?;
    let within = 0.0..=1.0;
    Some(
        if figures::is_share(name) && values.iter().all(|value| within.contains(value)) {
            Interval {
                low: found.low.max(0.0),
                high: found.high.min(1.0),
                ..found
            }
        } else {
            found
        },
    )
}

/// Returns Welch's interval of `mean(b) - mean(a)`, which allows different spreads. Its degrees of
/// freedom are rounded down. None if a side has fewer than two values.
#[must_use]
pub fn welch(a: &[f64], b: &[f64]) -> Option<Interval> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let (of_a, of_b) = (variance(a) / a.len() as f64, variance(b) / b.len() as f64);
    let together = of_a + of_b;
    let difference = mean(b) - mean(a);
    if together == 0.0 {
        return Some(around(difference, 0.0));
    }
    let freedom = together * together / (of_a * of_a / (a.len() - 1) as f64 + of_b * of_b / (b.len() - 1) as f64);
    Some(around(
        difference,
        quantile((freedom.floor() as usize).max(1)) * together.sqrt(),
    ))
}

fn around(mean: f64, margin: f64) -> Interval {
    Interval {
        mean,
        low: mean - margin,
        high: mean + margin,
    }
}

impl Interval {
    /// Returns true if 0 is outside the interval: a difference of this sign was found.
    #[must_use]
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn t_matches_a_table() {
        // 1, 2, 3: mean 2, variance 1, t(2) = 4.3027.
        let found = t(&[1.0, 2.0, 3.0]).unwrap();
        let margin = 4.302_652_73 / 3f64.sqrt();
        assert!(
            (found.mean - 2.0).abs() < 1e-12 && (found.high - 2.0 - margin).abs() < 1e-7,
            "{found:?}"
        );
        assert_eq!(t(&[1.0]), None);
        assert_eq!(t(&[]), None);
    }

    #[test]
    fn wilson_matches_its_formula_and_has_a_width_at_the_ends() {
        // 8 of 10: 0.4902 to 0.9433, as in published tables.
        let found = wilson(8, 10).unwrap();
        assert!(
            (found.low - 0.4902).abs() < 1e-4 && (found.high - 0.9433).abs() < 1e-4,
            "{found:?}"
        );
        let all = wilson(16, 16).unwrap();
        // 1 / (1 + z^2 / n)
        assert!((all.low - 1.0 / (1.0 + Z * Z / 16.0)).abs() < 1e-12 && all.high == 1.0);
        assert_eq!(wilson(0, 0), None);
    }

    #[test]
    fn welch_with_equal_spreads_and_sizes_is_students() {
        let (a, b) = ([1.0, 2.0, 3.0], [3.0, 4.0, 5.0]);
        let found = welch(&a, &b).unwrap();
        // Variance 1 each: freedom 4, t(4) = 2.7764.
        let margin = 2.776_445_1 * (2.0f64 / 3.0).sqrt();
        assert!(
            (found.mean - 2.0).abs() < 1e-12 && (found.low - (2.0 - margin)).abs() < 1e-6,
            "{found:?}"
        );
        assert_eq!(welch(&a, &[1.0]), None);
        assert_eq!(welch(&[1.0, 1.0], &[2.0, 2.0]), Some(around(1.0, 0.0)));
    }

    proptest! {
        #[test]
        fn an_interval_is_around_its_mean_and_moves_with_it(
            values in prop::collection::vec(-10.0..10.0f64, 2..20), shift in -5.0..5.0f64
        ) {
            let (here, there) = (t(&values).unwrap(), t(&values.iter().map(|v| v + shift).collect::<Vec<_>>()).unwrap());
            prop_assert!(here.low <= here.mean && here.mean <= here.high);
            prop_assert!((there.low - here.low - shift).abs() < 1e-9 && (there.high - here.high - shift).abs() < 1e-9);
        }

        #[test]
        fn shares_stay_within_0_and_1(n in 1..200usize, part in 0.0..=1.0f64) {
            let found = wilson((n as f64 * part) as usize, n).unwrap();
            prop_assert!(0.0 <= found.low && found.low <= found.mean && found.mean <= found.high && found.high <= 1.0);
        }
    }
}

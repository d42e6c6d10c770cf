//! Statistics of several samples of one task: pass@k and the majority answer.

/// Returns the probability that at least one of `k` samples is right. The samples are drawn without
/// replacement from `n`, of which `right` are right: 1 - C(n - right, k) / C(n, k), unbiased (Chen
/// et al. 2021, arXiv:2107.03374). None if there are fewer than `k` samples.
#[must_use]
pub fn pass_at_k(n: usize, right: usize, k: usize) -> Option<f64> {
    if k > n || right > n {
        return None;
    }
    if n - right < k {
        return Some(1.0);
    }
    let miss: f64 = (n - right + 1..=n).map(|i| 1.0 - k as f64 / i as f64).product();
    Some(1.0 - miss)
}

/// Returns the sample counts at which pass@k is reported: 1, 2, 4, ... and `samples` itself.
#[must_use]
pub fn steps(samples: usize) -> Vec<usize> {
    let mut steps: Vec<usize> = std::iter::successors(Some(1), |k| Some(k * 2))
        .take_while(|k| *k < samples)
        .collect();
    if samples > 0 {
        steps.push(samples);
    }
    steps
}

/// Returns the index of the majority answer: the first answer of the largest class. Among classes
/// of equal size the one that began earliest wins. An answer joins the earliest class with a first
/// answer that is the `same`.
#[must_use]
pub fn majority<T>(answers: &[T], same: impl Fn(&T, &T) -> bool) -> Option<usize> {
    let mut classes: Vec<(usize, usize)> = Vec::new();
    for (index, answer) in answers.iter().enumerate() {
        let known = classes
            .iter_mut()
            .find(|(first, _)| answers.get(*first).is_some_and(|first| same(first, answer)));
        match known {
            Some((_, count)) => *count += 1,
            None => classes.push((index, 1)),
        }
    }
    let most = classes.iter().map(|(_, count)| *count).max()?;
    classes
        .iter()
        .find(|(_, count)| *count == most)
        .map(|(first, _)| *first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn choose(n: usize, k: usize) -> f64 {
        (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product()
    }

    /// Counts every way of drawing k of n.
    fn counted(n: usize, right: usize, k: usize) -> f64 {
        let draws: Vec<u32> = (0..1u32 << n).filter(|draw| draw.count_ones() as usize == k).collect();
        let hits = draws.iter().filter(|draw| **draw & ((1 << right) - 1) != 0).count();
        hits as f64 / draws.len() as f64
    }

    #[test]
    fn pass_at_k_matches_counting_every_draw() {
        for n in 1..=8 {
            for right in 0..=n {
                for k in 1..=n {
                    let found = pass_at_k(n, right, k).unwrap();
                    assert!((found - counted(n, right, k)).abs() < 1e-12, "{n} {right} {k}: {found}");
                }
            }
        }
        assert_eq!(pass_at_k(4, 1, 5), None);
    }

    #[test]
    fn steps_are_powers_of_two_and_the_sample_count() {
        assert_eq!(steps(0), [0usize; 0]);
        assert_eq!(steps(1), [1]);
        assert_eq!(steps(8), [1, 2, 4, 8]);
        assert_eq!(steps(12), [1, 2, 4, 8, 12]);
    }

    #[test]
    fn the_largest_class_wins_and_the_earliest_of_equal_ones() {
        let of = |answers: &[&str]| majority(answers, |a, b| a.trim() == b.trim());
        assert_eq!(of(&["5", "6", " 6"]), Some(1));
        assert_eq!(of(&["6", "5", "7", "5"]), Some(1));
        assert_eq!(of(&["6", "5"]), Some(0));
        assert_eq!(of(&[]), None);
    }

    proptest! {
        #[test]
        fn pass_at_k_is_the_closed_form_and_rises_with_k_and_right(n in 1..60usize, a in 0..60usize, b in 1..60usize) {
            let (right, k) = (a % (n + 1), 1 + b % n);
            let found = pass_at_k(n, right, k).unwrap();
            let closed = if n - right < k { 1.0 } else { 1.0 - choose(n - right, k) / choose(n, k) };
            prop_assert!((found - closed).abs() < 1e-9);
            prop_assert!((pass_at_k(n, right, 1).unwrap() - right as f64 / n as f64).abs() < 1e-12, "pass@1 is the mean");
            if k < n {
                prop_assert!(pass_at_k(n, right, k + 1).unwrap() >= found - 1e-12);
            }
            if right < n {
                prop_assert!(pass_at_k(n, right + 1, k).unwrap() >= found - 1e-12);
            }
        }

        #[test]
        fn a_majority_ignores_the_order_of_the_minority(answers in prop::collection::vec(0..4u8, 1..12)) {
            let winner = answers[majority(&answers, |a, b| a == b).unwrap()];
            let count = |value: u8| answers.iter().filter(|a| **a == value).count();
            prop_assert!((0..4).all(|other| count(other) <= count(winner)));
        }
    }
}

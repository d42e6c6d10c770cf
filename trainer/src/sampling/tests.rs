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

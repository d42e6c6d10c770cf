//! Advantages that compare with the whole batch.

use super::*;

#[test]
fn the_astraflow_profile_normalises_over_batch_tokens() {
    let mut config = config(2);
    config.advantage = Advantage::Astraflow;
    let batch = formed(&[mixed(0), mixed(1)], &context(&config));
    let rows = trained(&batch.minibatches[0]);
    let mean: f32 = rows.iter().map(|(_, n, _, a)| a * *n as f32).sum();
    let squares: f32 = rows.iter().map(|(_, n, _, a)| a * a * *n as f32).sum();
    assert!(mean.abs() < 1e-4 && (squares / 17.0 - 1.0).abs() < 1e-3, "{rows:?}");
}

#[test]
fn reinforce_plus_plus_compares_with_the_batch() {
    let mut config = config(2);
    // A = r: 1, 0, 1 with 4, 2, 3 tokens, and a group of 10 tokens that is all right.
    config.advantage = Advantage::ReinforcePlusPlus;
    let bundles = [mixed(0), solvers(1, 5, false)];
    let batch = formed(&bundles, &context(&config));
    let mean = 17.0 / 19.0;
    let std = f64::sqrt(mean * (1.0 - mean));
    for (first, _, _, advantage) in trained(&batch.minibatches[0]) {
        let reward = if first == 5 { 0.0 } else { 1.0 };
        assert!(
            (f64::from(advantage) - (reward - mean) / std).abs() < 1e-5,
            "{first}: {advantage}"
        );
    }
    let share = batch.stats.zero_share();
    assert!(
        (share - 0.5).abs() < 1e-12,
        "a group of equal rewards is one, though its advantages are not 0: {share}"
    );
    assert!(batch.stats.advantage_abs.get().is_some());
    // The mean of the key is subtracted first. The retry is alone, and the solvers are -1/2 and 1/2
    // with 2 and 3 tokens.
    config.advantage = Advantage::ReinforcePlusPlusBaseline;
    let batch = formed(&bundles, &context(&config));
    let mean = 0.5 / 19.0;
    let std = f64::sqrt(5.0 * 0.25 / 19.0 - mean * mean);
    let raw = |first| match first {
        5 => -0.5,
        7 => 0.5,
        _ => 0.0,
    };
    let rows = trained(&batch.minibatches[0]);
    let near = rows
        .iter()
        .filter(|row| (f64::from(row.3) - (raw(row.0) - mean) / std).abs() < 1e-5)
        .count();
    assert_eq!(near, rows.len(), "{rows:?}");
    // If the KL is still to be subtracted, these are rewards.
    config.kl.coef = 0.1;
    config.kl.place = configs::KlPlace::Reward;
    config.advantage = Advantage::ReinforcePlusPlus;
    let batch = formed(&bundles, &context(&config));
    assert_eq!(batch.stats.advantage_abs.get(), None, "the trainer makes them");
    assert!(
        trained(&batch.minibatches[0])
            .iter()
            .all(|row| row.3 == f32::from(u8::from(row.0 != 5)))
    );
}

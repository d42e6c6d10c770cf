use super::*;
use crate::shuffle::{SplitMix, permutation};
use broker::protocol::bundle::{Row, SampleStatus, Segment};
use proptest::prelude::*;

fn sample(member: u16, role: &str, seat: u16, reward: f32) -> Sample {
    let segment = Segment {
        start: 1,
        len: 1,
        temperature: 1.0,
        logprobs_of: broker::protocol::turn::LogProbs::Sampled,
        spans: vec![],
        oldest_kv: broker::ids::WeightVersion::default(),
    };
    Sample {
        member,
        role: role.into(),
        seat,
        subkey: String::new(),
        target: None,
        status: SampleStatus::Completed,
        reward,
        parts: vec![],
        rows: vec![Row {
            ids: vec![1, 2],
            segments: vec![segment],
            logprobs: vec![-1.0],
        }],
    }
}

fn solvers(rewards: &[f32]) -> Vec<Sample> {
    rewards
        .iter()
        .enumerate()
        .map(|(m, r)| sample(m as u16, "solver", 0, *r))
        .collect()
}

fn close(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    for (x, y) in a.iter().zip(b) {
        assert!((x - y).abs() < 1e-6, "{a:?} and {b:?}");
    }
}

#[test]
fn by_hand() {
    let group = solvers(&[1.0, 0.0, 0.0, 1.0]);
    close(
        &of_group(Advantage::Loo, &group).values,
        &[2.0 / 3.0, -2.0 / 3.0, -2.0 / 3.0, 2.0 / 3.0],
    );
    // Mean 1/2, unbiased variance 1/3.
    let z = 0.5 / ((1.0f64 / 3.0).sqrt() + 1e-6);
    close(&of_group(Advantage::Grpo, &group).values, &[z, -z, -z, z]);
}

/// Results of TRL's trainers for groups of rewards (`trainer/fixtures/losses.py`).
#[derive(serde::Deserialize)]
struct Theirs {
    ours: Advantage,
    rewards: Vec<Vec<f32>>,
    values: Vec<Vec<f64>>,
}

/// Groups with one seat per conversation; REINFORCE++'s baseline before its z-score.
#[test]
fn parity_with_trl() {
    let whole: serde_json::Value = serde_json::from_str(include_str!("../../../trainer/fixtures/losses.json")).unwrap();
    let cases: Vec<Theirs> = serde_json::from_value(whole["advantages"].clone()).unwrap();
    let kinds: Vec<Advantage> = cases.iter().map(|case| case.ours).collect();
    assert_eq!(
        kinds,
        [Advantage::Grpo, Advantage::ReinforcePlusPlusBaseline, Advantage::Loo]
    );
    for case in &cases {
        for (rewards, want) in case.rewards.iter().zip(&case.values) {
            let group = solvers(rewards);
            // TRL divides by std + 1e-4, the paper by std alone.
            let other = match case.ours {
                Advantage::Grpo => spread(case.ours, &group) / (spread(case.ours, &group) - 1e-6 + 1e-4),
                _ => 1.0,
            };
            let got: Vec<f64> = of_group(case.ours, &group).values.iter().map(|a| a * other).collect();
            close(&got, want);
        }
    }
}

#[test]
fn what_an_advantage_is_made_of_is_reported() {
    let group = solvers(&[1.0, 0.0, 0.0, 1.0]);
    let loo = comparisons(Advantage::Loo, &group);
    assert_eq!(loo.len(), 4);
    // The other conversations of the first have 0, 0 and 1; std of 1, 0, 0, 1 is sqrt(1/3).
    assert_eq!((loo[0].conversations, loo[0].mean, loo[0].scale), (4, 0.5, 1.0));
    close(
        &[loo[0].baseline, loo[0].std, loo[0].advantage],
        &[1.0 / 3.0, (1.0f64 / 3.0).sqrt(), 2.0 / 3.0],
    );
    let grpo = comparisons(Advantage::Grpo, &group);
    close(&[grpo[1].baseline, grpo[1].scale], &[0.5, (1.0f64 / 3.0).sqrt() + 1e-6]);
    // A single conversation: nothing is subtracted, and there is no NaN.
    let alone = comparisons(Advantage::Loo, &solvers(&[1.0]))[0];
    assert_eq!((alone.conversations, alone.baseline, alone.advantage), (1, 0.0, 0.0));
}

#[test]
fn the_reported_advantages_are_the_trained_ones() {
    let group = [
        sample(1, "verifier", 0, 30.0),
        sample(0, "solver", 1, 3.0),
        sample(0, "solver", 0, 1.0),
        sample(2, "solver", 0, 0.5),
        sample(2, "verifier", 0, -1.0),
        sample(1, "solver", 0, 5.0),
    ];
    for kind in [
        Advantage::Loo,
        Advantage::Grpo,
        Advantage::Astraflow,
        Advantage::ReinforcePlusPlus,
        Advantage::ReinforcePlusPlusBaseline,
    ] {
        let seen: Vec<f64> = comparisons(kind, &group).iter().map(|c| c.advantage).collect();
        assert_eq!(seen, of_group(kind, &group).values, "{kind:?}");
        assert!(seen.iter().any(|value| *value != 0.0), "{kind:?}");
    }
}

#[test]
fn siblings_are_averaged_and_never_compared() {
    // Conversation 0 has two seats with 1 and 3, conversation 1 has one with 5, conversation 2 two
    // with 0 and 2.
    let group = [
        sample(0, "solver", 0, 1.0),
        sample(0, "solver", 1, 3.0),
        sample(1, "solver", 0, 5.0),
        sample(2, "solver", 0, 0.0),
        sample(2, "solver", 1, 2.0),
    ];
    // m = 2, 5, 1: baselines 3, 1.5 and 3.5.
    close(&of_group(Advantage::Loo, &group).values, &[-2.0, 0.0, 3.5, -3.5, -1.5]);
    for kind in [Advantage::Loo, Advantage::Grpo] {
        let before = of_group(kind, &group).values[0] * spread(kind, &group);
        let mut other = group.to_vec();
        other[1].reward = 30.0;
        let after = of_group(kind, &other).values[0] * spread(kind, &other);
        assert!(
            (before - after).abs() < 1e-9,
            "{kind:?}: a sibling's reward moved the baseline"
        );
    }
}

/// The divisor of `grpo`.
fn spread(kind: Advantage, group: &[Sample]) -> f64 {
    match kind {
        Advantage::Grpo => Key::new(group.iter()).std + 1e-6,
        _ => 1.0,
    }
}

#[test]
fn roles_and_subkeys_have_baselines_of_their_own() {
    let mut group = solvers(&[1.0, 0.0]);
    group.push(sample(0, "retry", 0, 9.0));
    let found = of_group(Advantage::Loo, &group);
    close(&found.values, &[1.0, -1.0, 0.0]);
    assert_eq!((found.keys, found.alone, found.equal), (2, 1, 0));
    let mut split = solvers(&[1.0, 0.0, 5.0, 5.0]);
    split[2].subkey = "p1".into();
    split[3].subkey = "p1".into();
    let found = of_group(Advantage::Loo, &split);
    close(&found.values, &[1.0, -1.0, 0.0, 0.0]);
    assert_eq!((found.keys, found.alone, found.equal), (2, 0, 1));
    assert!(!found.is_zero());
}

#[test]
fn tries_at_one_thing_are_compared_with_each_other() {
    let tries = |rewards: &[f32], subkey: &str| -> Vec<Sample> {
        let seat = |(seat, reward): (u16, &f32)| Sample {
            subkey: subkey.into(),
            ..sample(0, "solver", seat, *reward)
        };
        (0..).zip(rewards).map(seat).collect()
    };
    let found = of_group(Advantage::Loo, &tries(&[1.0, 0.0, 0.0], "3+4"));
    close(&found.values, &[1.0, -0.5, -0.5]);
    assert_eq!((found.keys, found.alone, found.equal), (1, 0, 0));
    // One try has no comparison, and sibling seats without a subkey are never compared.
    close(&of_group(Advantage::Loo, &tries(&[1.0], "3+4")).values, &[0.0]);
    close(
        &of_group(Advantage::Loo, &tries(&[1.0, 0.0, 0.0], "")).values,
        &[0.0; 3],
    );
    // A different proposal of the group has its own key.
    let mut both = tries(&[1.0, 0.0], "3+4");
    both.extend(tries(&[1.0, 1.0], "1+1").into_iter().map(|s| Sample { member: 1, ..s }));
    close(&of_group(Advantage::Loo, &both).values, &[1.0, -1.0, 0.0, 0.0]);
}

#[test]
fn astraflow_pools_the_roles_of_an_agent() {
    let mut group = solvers(&[1.0, 0.0]);
    group.push(sample(0, "retry", 0, 1.0));
    let std = (1.0f64 / 3.0).sqrt();
    let z = |r: f64| (r - 2.0 / 3.0) / (std + 1e-5);
    close(
        &of_group(Advantage::Astraflow, &group).values,
        &[z(1.0), z(0.0), z(1.0)],
    );
}

#[test]
fn a_normalised_batch_has_token_mean_0_and_std_1() {
    let mut values = vec![(1.0, 3), (-1.0, 1), (0.5, 6)];
    normalise(Advantage::Astraflow, &mut values);
    let mean: f64 = values.iter().map(|(a, n)| a * *n as f64).sum();
    let squares: f64 = values.iter().map(|(a, n)| a * a * *n as f64).sum();
    assert!(mean.abs() < 1e-9 && (squares / 9.0 - 1.0).abs() < 1e-4, "{values:?}");
}

/// One group of several conversations with 1 to 3 seats each.
fn group() -> impl Strategy<Value = Vec<Sample>> {
    let seats = prop::collection::vec(-4i8..=4, 1..4);
    prop::collection::vec(seats, 1..7).prop_map(|conversations| {
        let seat = |(member, rewards): (usize, Vec<i8>)| {
            let seat = move |(seat, reward): (usize, i8)| {
                sample(member as u16, "solver", seat as u16, f32::from(reward) / 2.0)
            };
            rewards.into_iter().enumerate().map(seat).collect::<Vec<_>>()
        };
        conversations.into_iter().enumerate().flat_map(seat).collect()
    })
}

const KINDS: [Advantage; 4] = [
    Advantage::Loo,
    Advantage::Grpo,
    Advantage::Astraflow,
    Advantage::ReinforcePlusPlusBaseline,
];

proptest! {
    #[test]
    fn arrival_order_changes_no_bit(group in group(), seed: u64) {
        for kind in KINDS {
            let straight = of_group(kind, &group).values;
            let order = permutation(group.len(), seed);
            let shuffled: Vec<Sample> = order.iter().map(|i| group[*i].clone()).collect();
            let found = of_group(kind, &shuffled).values;
            for (at, i) in order.iter().enumerate() {
                prop_assert_eq!(found[at].to_bits(), straight[*i].to_bits());
            }
        }
    }

    #[test]
    fn a_constant_added_to_all_rewards_changes_nothing(group in group(), shift in -8i8..8) {
        for kind in KINDS {
            let moved: Vec<Sample> = group.iter().cloned().map(|mut s| { s.reward += f32::from(shift); s }).collect();
            let (a, b) = (of_group(kind, &group).values, of_group(kind, &moved).values);
            for (x, y) in a.iter().zip(&b) {
                prop_assert!((x - y).abs() < 1e-9, "{:?}: {:?} and {:?}", kind, a, b);
            }
        }
    }

    #[test]
    fn conversation_means_of_advantages_sum_to_zero(group in group()) {
        for kind in [Advantage::Loo, Advantage::Grpo] {
            let mut means = BTreeMap::new();
            for (sample, value) in group.iter().zip(of_group(kind, &group).values) {
                let (sum, count) = means.entry(sample.member).or_insert((0.0, 0.0));
                *sum += value;
                *count += 1.0;
            }
            let total: f64 = means.values().map(|(sum, count)| sum / count).sum();
            prop_assert!(total.abs() < 1e-7, "{:?}: {total}", kind);
        }
    }

    #[test]
    fn equal_rewards_are_exactly_zero(reward: f32, n in 1usize..9) {
        prop_assume!(reward.is_finite());
        for kind in KINDS {
            let found = of_group(kind, &solvers(&vec![reward; n]));
            prop_assert!(found.is_zero());
            prop_assert_eq!((found.alone, found.equal), if n == 1 { (1, 0) } else { (0, 1) });
        }
    }
}

/// A bandit with a known gradient in closed form: `dE[r]/dlogit_k = p_k (r_k - E[r])`.
struct Bandit {
    chances: Vec<f64>,
    rewards: Vec<f64>,
}

impl Bandit {
    fn gradient(&self) -> Vec<f64> {
        let mean: f64 = self.chances.iter().zip(&self.rewards).map(|(p, r)| p * r).sum();
        self.chances
            .iter()
            .zip(&self.rewards)
            .map(|(p, r)| p * (r - mean))
            .collect()
    }

    fn draw(&self, random: &mut SplitMix) -> usize {
        let mut left = random.unit();
        let hit = |p: &f64| {
            left -= p;
            left < 0.0
        };
        self.chances.iter().position(hit).unwrap_or(self.chances.len() - 1)
    }

    /// Mean of the policy gradient over many groups of `n`, in standard errors from the truth, the
    /// worst component.
    fn worst_error(&self, n: usize, groups: usize, advantages: impl Fn(&[Sample]) -> Vec<f64>) -> f64 {
        let mut random = SplitMix::new(7);
        let arms = self.chances.len();
        let (mut sums, mut squares) = (vec![0.0; arms], vec![0.0; arms]);
        for _ in 0..groups {
            let drawn: Vec<usize> = (0..n).map(|_| self.draw(&mut random)).collect();
            let rewards: Vec<f32> = drawn.iter().map(|a| self.rewards[*a] as f32).collect();
            let advantages = advantages(&solvers(&rewards));
            for k in 0..arms {
                let score = |(a, value): (&usize, &f64)| value * (f64::from(u8::from(*a == k)) - self.chances[k]);
                let gradient = drawn.iter().zip(&advantages).map(score).sum::<f64>() / n as f64;
                sums[k] += gradient;
                squares[k] += gradient * gradient;
            }
        }
        let count = groups as f64;
        let error = |(k, truth): (usize, f64)| {
            let mean = sums[k] / count;
            let variance = squares[k] / count - mean * mean;
            (mean - truth).abs() / (variance / count).sqrt()
        };
        self.gradient().into_iter().enumerate().map(error).fold(0.0, f64::max)
    }
}

#[test]
fn leave_one_out_is_unbiased_on_a_bandit() {
    let bandit = Bandit {
        chances: vec![0.5, 0.3, 0.2],
        rewards: vec![1.0, 0.0, 2.5],
    };
    let loo = |group: &[Sample]| of_group(Advantage::Loo, group).values;
    let error = bandit.worst_error(4, 20_000, loo);
    assert!(error <= 3.0, "leave-one-out is {error:.1} standard errors off");
    // The same test detects a baseline that holds the sample's own reward: it shrinks the gradient
    // by (n - 1) / n.
    let with_own = |group: &[Sample]| {
        let mean = group.iter().map(|s| f64::from(s.reward)).sum::<f64>() / group.len() as f64;
        group.iter().map(|s| f64::from(s.reward) - mean).collect()
    };
    let error = bandit.worst_error(4, 20_000, with_own);
    assert!(error > 3.0, "the test would not see a biased baseline: {error:.1}");
}

use super::*;
use broker::protocol::train::Kl;

const A: [f64; 8] = [1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0];
const L: [f64; 8] = [0.02, 0.30, -0.40, 0.10, -0.05, -0.25, 0.50, -0.15];

/// Tokens with these log-ratios and advantages, each with another weight.
fn members(log_ratios: &[f64], advantages: &[f64], answers: &[u32]) -> Vec<Member> {
    let all = log_ratios.iter().zip(advantages).zip(answers).enumerate();
    all.map(|(i, ((l, a), answer))| {
        let old = -1.0 - 0.1 * i as f64;
        Member {
            token: Token {
                logprob: old + l,
                old,
                behaviour: old - 0.05 * i as f64,
                reference: old + 0.2,
                advantage: *a,
                entropy: 1.5,
            },
            weight: 0.1 + 0.02 * i as f64,
            answer: *answer,
            span: 0,
            offset: i,
        }
    })
    .collect()
}

fn policy(surrogate: Surrogate) -> Loss {
    Loss::Policy(Policy {
        surrogate,
        kl: Kl::K2,
        kl_coef: 0.1,
        entropy_coef: 0.05,
        behaviour_cap: None,
    })
}

fn m2po(mode: M2poMode, budget: f32) -> Surrogate {
    Surrogate::M2po {
        mode,
        budget,
        scope: M2poScope::Minibatch,
    }
}

fn total(loss: &Loss, members: &[Member]) -> f64 {
    shares(loss, members).0.iter().map(|share| share.value).sum()
}

/// The derivatives of the whole loss by one token's log-prob and entropy, by finite differences.
fn slope(loss: &Loss, members: &[Member], at: usize) -> (f64, f64) {
    let moved = |by: f64, entropy: f64| {
        let mut moved = members.to_vec();
        moved[at].token.logprob += by;
        moved[at].token.entropy += entropy;
        total(loss, &moved)
    };
    let step = 1e-6;
    (
        (moved(step, 0.0) - moved(-step, 0.0)) / (2.0 * step),
        (moved(0.0, step) - moved(0.0, -step)) / (2.0 * step),
    )
}

fn assert_slopes(loss: &Loss, members: &[Member], leave: &[usize]) {
    let (shares, _) = shares(loss, members);
    for (at, share) in shares.iter().enumerate().filter(|(at, _)| !leave.contains(at)) {
        let (by_logprob, by_entropy) = slope(loss, members, at);
        assert!(
            (by_logprob - share.slope.d_logprob).abs() < 1e-7 && (by_entropy - share.slope.d_entropy).abs() < 1e-7,
            "{loss:?} token {at}: {by_logprob} {by_entropy} {share:?}"
        );
    }
}

#[test]
fn slopes_of_answers_equal_finite_differences() {
    let loss = policy(Surrogate::Gspo { low: 0.1, high: 0.1 });
    // Answers of three tokens (clipped), one (clipped), two and two; they need not be adjacent.
    let advantages = [1.0, -2.0, 1.0, 0.5, -1.0, 1.0, 0.5, -1.0];
    let log_ratios = [0.5, -0.3, 0.2, 0.01, -0.02, 0.3, -0.05, 0.05];
    let members = members(&log_ratios, &advantages, &[0, 1, 0, 2, 3, 0, 2, 3]);
    assert_slopes(&loss, &members, &[]);
    let clipped: Vec<bool> = shares(&loss, &members).0.iter().map(|share| share.clipped).collect();
    assert_eq!(clipped, [true, true, true, false, false, true, false, false]);
}

#[test]
fn answers_of_one_token_are_the_clipped_policy_gradient() {
    let answers: Vec<u32> = (0..8).collect();
    let members = members(&L, &A, &answers);
    let gspo = policy(Surrogate::Gspo { low: 0.2, high: 0.28 });
    let plain = policy(Surrogate::Clipped {
        low: 0.2,
        high: 0.28,
        dual: None,
    });
    for (one, other) in shares(&gspo, &members).0.iter().zip(shares(&plain, &members).0) {
        assert!((one.value - other.value).abs() < 1e-12 && one.clipped == other.clipped);
        assert!((one.slope.d_logprob - other.slope.d_logprob).abs() < 1e-12);
    }
}

#[test]
fn with_sequence_weights_the_loss_is_the_mean_over_answers() {
    // Two answers of 3 and 5 tokens; u = 1/|s|, D = 2.
    let answers = [0, 0, 0, 1, 1, 1, 1, 1];
    let advantages = answers.map(|answer| if answer == 0 { 0.7 } else { -0.4 });
    let mut members = members(&L, &advantages, &answers);
    for member in &mut members {
        member.weight = if member.answer == 0 { 1.0 / 6.0 } else { 1.0 / 10.0 };
    }
    let loss = Loss::Policy(Policy {
        surrogate: Surrogate::Gspo { low: 0.2, high: 0.2 },
        ..Policy::clipped(0.0, 0.0)
    });
    let ratio = |range: std::ops::Range<usize>| (L[range.clone()].iter().sum::<f64>() / range.len() as f64).exp();
    let expected = -(0.7 * ratio(0..3) - 0.4 * ratio(3..8)) / 2.0;
    assert!((total(&loss, &members) - expected).abs() < 1e-12);
}

#[test]
fn m2po_slopes_equal_finite_differences_with_fixed_statistics() {
    // The bound moves with the token that sets it: token 7 (clip), 3 (cap). Statistics have no
    // gradient.
    for (mode, leave) in [(M2poMode::Clip, 7), (M2poMode::Cap, 3), (M2poMode::Mask, 99)] {
        let members = members(&L, &A, &[0; 8]);
        assert_slopes(&policy(m2po(mode, 0.01)), &members, &[leave]);
    }
}

#[test]
fn the_golden_case_as_a_loss() {
    let mut members = members(&L, &A, &[0; 8]);
    members.iter_mut().for_each(|member| member.weight = 1.0 / 8.0);
    let loss = Loss::Policy(Policy {
        surrogate: m2po(M2poMode::Clip, 0.01),
        ..Policy::clipped(0.0, 0.0)
    });
    let (shares, moment) = shares(&loss, &members);
    let value: f64 = shares.iter().map(|share| share.value).sum();
    assert!((value - 0.045_480_0).abs() < 1e-6, "{value}");
    let still: Vec<usize> = (0..8).filter(|i| shares[*i].slope.d_logprob == 0.0).collect();
    assert_eq!(still, [1, 5]);
    assert_eq!((moment.bounded, moment.kept), (6.0, 4.0));
}

#[test]
fn what_a_mask_leaves_weighs_as_much_as_all_did() {
    let mut members = members(&L, &A, &[0; 8]);
    members.iter_mut().for_each(|member| member.weight = 1.0 / 8.0);
    let loss = Loss::Policy(Policy {
        surrogate: m2po(M2poMode::Mask, 0.01),
        ..Policy::clipped(0.0, 0.0)
    });
    // AReaL: the four largest leave the loss and its denominator.
    let kept = [0, 3, 4, 7];
    let expected = kept.iter().map(|i: &usize| -A[*i] * L[*i].exp()).sum::<f64>() / 4.0;
    assert!((total(&loss, &members) - expected).abs() < 1e-12);
    // Decoupled: the distance is that of the batch's start to the sampler, 0.05 i, so the last ones
    // leave.
    let decoupled = Loss::Policy(Policy {
        surrogate: m2po(M2poMode::Mask, 0.01),
        behaviour_cap: Some(5.0),
        ..Policy::clipped(0.0, 0.0)
    });
    let clipped: Vec<bool> = shares(&decoupled, &members).0.iter().map(|s| s.clipped).collect();
    assert_eq!(clipped, [false, false, false, false, true, true, true, true]);
}

#[test]
fn absurd_log_probs_stay_finite() {
    for mode in [M2poMode::Clip, M2poMode::Cap, M2poMode::Mask] {
        let mut members = members(&L, &A, &[0; 8]);
        members[2].token.logprob = f64::NEG_INFINITY;
        members[6].token.logprob = 1e300;
        let loss = Loss::Policy(Policy {
            surrogate: m2po(mode, 0.01),
            ..Policy::clipped(0.0, 0.0)
        });
        let (shares, moment) = shares(&loss, &members);
        assert!(moment.sum.is_finite() && moment.kept_sum.is_finite(), "{mode:?}");
        let finite = |share: &Share| share.value.is_finite() && share.slope.d_logprob.is_finite();
        assert!(shares.iter().all(finite), "{mode:?} {shares:?}");
    }
}

#[test]
fn nothing_has_no_loss() {
    for surrogate in [m2po(M2poMode::Mask, 0.01), Surrogate::Gspo { low: 0.1, high: 0.1 }] {
        assert_eq!(shares(&policy(surrogate), &[]), (Vec::new(), Moment::default()));
    }
}

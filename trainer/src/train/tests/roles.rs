//! The statistics of a role do not depend on the other roles.

use broker::protocol::train::{RoleLoss, Surrogate};

use super::*;

fn measured(batch: TrainBatch, loss: Loss, micro_batch_tokens: usize) -> LossStats {
    let mut trainer = trainer(
        1,
        TrainerOptions {
            micro_batch_tokens,
            ..defaults()
        },
    );
    loss_of(
        trainer
            .execute(TrainCommand::ForwardBackward { seq: 0, batch, loss })
            .unwrap(),
    )
}

fn values(one: &RoleLoss) -> [f64; 11] {
    [
        one.tokens,
        one.ratio,
        one.clipped,
        one.entropy,
        one.behaviour_kl,
        one.reference_kl,
        one.largest_ratio,
        one.on_policy_gap,
        one.off_policy_gap,
        one.on_policy_tokens,
        one.off_policy_tokens,
    ]
}

fn close(a: &RoleLoss, b: &RoleLoss) {
    for (a, b) in values(a).into_iter().zip(values(b)) {
        assert!((a - b).abs() < 1e-4 * a.abs().max(1.0), "{a} {b}");
    }
}

#[test]
fn each_role_is_measured_as_if_it_were_alone() {
    let gspo = Loss::Policy(Policy {
        surrogate: Surrogate::Gspo { low: 0.2, high: 0.2 },
        ..Policy::clipped(0.0, 0.0)
    });
    for loss in [POLICY, gspo] {
        let mut whole = batch(0);
        for (place, span) in whole.spans.iter_mut().enumerate() {
            span.on_policy = place.is_multiple_of(3);
        }
        let all = measured(whole.clone(), loss, 1000);
        assert_eq!(all.by_role.len(), 2);
        assert!(all.by_role.iter().all(|role| role.clipped > 0.0), "{all:?}");
        for number in 0..2u16 {
            let mut alone = whole.clone();
            for span in alone.spans.iter_mut().filter(|span| span.role != number) {
                span.mask.fill(false);
            }
            let alone = measured(alone, loss, 1000);
            close(&all.by_role[usize::from(number)], alone.clone().role(number));
        }
        let mut sum = all.by_role[0];
        sum.add(&all.by_role[1]);
        assert_eq!((sum.tokens, sum.clipped), (all.tokens, all.clipped));
        assert_eq!(sum.on_policy_gap, all.on_policy_gap);
        assert!(sum.on_policy_tokens > 0.0 && sum.off_policy_tokens > 0.0, "{all:?}");
        assert_eq!(sum.on_policy_tokens + sum.off_policy_tokens, all.tokens);
        assert!((sum.ratio - all.ratio).abs() < 1e-9 * all.ratio);
        let split = measured(whole, loss, 13);
        for (a, b) in split.by_role.iter().zip(&all.by_role) {
            close(a, b);
        }
    }
}

#[test]
fn known_answers_have_entropy_and_no_ratios() {
    let stats = measured(batch(0), Loss::CrossEntropy, 1000);
    for role in &stats.by_role {
        assert!(
            role.entropy > 0.0 && role.ratio == 0.0 && role.largest_ratio == 0.0,
            "{role:?}"
        );
        assert_eq!((role.on_policy_tokens, role.off_policy_tokens), (0.0, 0.0));
    }
}

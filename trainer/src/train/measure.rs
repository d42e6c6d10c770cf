//! Statistics of a loss call, token by token.

use broker::protocol::train::{LossStats, RoleLoss, Span};

use crate::loss::joint::Share;
use crate::loss::m2po::Moment;
use crate::loss::{Token, k3, ratio};

/// Adds one token. `sampled` is true if the batch holds the sampler's log-probs, so that ratios
/// exist.
pub(super) fn measure(stats: &mut LossStats, span: &Span, token: &Token, share: &Share, sampled: bool) {
    let one = of_token(span, token, share, sampled);
    stats.loss += share.value;
    stats.tokens += one.tokens;
    stats.ratio += one.ratio;
    stats.clipped += one.clipped;
    stats.entropy += one.entropy;
    stats.behaviour_kl += one.behaviour_kl;
    stats.reference_kl += one.reference_kl;
    stats.on_policy_gap = stats.on_policy_gap.max(one.on_policy_gap);
    stats.off_policy_gap = stats.off_policy_gap.max(one.off_policy_gap);
    stats.role(span.role).add(&one);
}

fn of_token(span: &Span, token: &Token, share: &Share, sampled: bool) -> RoleLoss {
    let mut one = RoleLoss {
        tokens: 1.0,
        entropy: token.entropy,
        ..RoleLoss::default()
    };
    if !sampled {
        return one;
    }
    one.ratio = ratio(token.logprob, token.old);
    one.largest_ratio = one.ratio;
    one.clipped = f64::from(u8::from(share.clipped));
    one.behaviour_kl = k3(token.logprob, token.behaviour).0;
    one.reference_kl = share.reference_kl;
    let gap = (ratio(token.logprob, token.behaviour) - 1.0).abs();
    if span.on_policy {
        (one.on_policy_gap, one.on_policy_tokens) = (gap, 1.0);
    } else {
        (one.off_policy_gap, one.off_policy_tokens) = (gap, 1.0);
    }
    one
}

pub(super) fn add_moment(stats: &mut LossStats, moment: &Moment) {
    stats.bounded += moment.bounded;
    stats.second_moment += moment.sum;
    stats.kept += moment.kept;
    stats.second_moment_kept += moment.kept_sum;
}

//! What a loss call measured, token by token.

use broker::protocol::train::{LossStats, Span};

use crate::loss::joint::Share;
use crate::loss::m2po::Moment;
use crate::loss::{Token, k3, ratio};

/// Adds one token. `sampled`: by a policy whose log-probs the batch holds, so that there are ratios.
pub(super) fn measure(stats: &mut LossStats, span: &Span, token: &Token, share: &Share, sampled: bool) {
    stats.loss += share.value;
    stats.tokens += 1.0;
    stats.entropy += token.entropy;
    if !sampled {
        return;
    }
    stats.ratio += ratio(token.logprob, token.old);
    stats.clipped += f64::from(u8::from(share.clipped));
    stats.behaviour_kl += k3(token.logprob, token.behaviour).0;
    stats.reference_kl += share.reference_kl;
    let gap = (ratio(token.logprob, token.behaviour) - 1.0).abs();
    let widest = if span.on_policy {
        &mut stats.on_policy_gap
    } else {
        &mut stats.off_policy_gap
    };
    *widest = widest.max(gap);
}

pub(super) fn add_moment(stats: &mut LossStats, moment: &Moment) {
    stats.bounded += moment.bounded;
    stats.second_moment += moment.sum;
    stats.kept += moment.kept;
    stats.second_moment_kept += moment.kept_sum;
}

//! Rules for an agent's loss, advantage and KL, each alone and together.

use super::below::Below;
use crate::{Advantage, KlPlace, KlReference, LossConfig, LossKind, M2poMode, Ratio, TrainConfig, ZeroAdvantage};

/// Checks loss, advantage, KL, average and entropy of an agent that trains.
pub(super) fn check(train: &TrainConfig, below: &mut Below) {
    imitation(train, below);
    numbers(train, below);
    skipping(train, below);
    many_tokens(train, below);
    without_effect(train, below);
    reward_kl(train, below);
}

fn numbers(train: &TrainConfig, below: &mut Below) {
    let loss = &train.loss;
    below.when(
        !(loss.clip_low > 0.0 && loss.clip_low <= 1.0),
        "loss.clip_low",
        format!(
            "is {}: the ratio is clipped to 1 - clip_low, so write a number above 0 and at most 1, for example 0.2",
            loss.clip_low
        ),
    );
    below.positive(loss.clip_high, "loss.clip_high");
    below.positive(loss.weight_cap, "loss.weight_cap");
    below.positive(loss.tau, "loss.tau");
    below.not_negative(loss.beta, "loss.beta");
    let dual = loss.dual_clip.unwrap_or(2.0);
    below.when(
        !(dual.is_finite() && dual > 1.0),
        "loss.dual_clip",
        format!(
            "is {dual}: it bounds the loss of tokens with a negative advantage, so write a number above 1, for example 3.0"
        ),
    );
    below.not_negative(train.kl.coef, "kl.coef");
    let decay = train.ema.map_or(0.0, |ema| ema.decay);
    below.when(
        !(0.0..1.0).contains(&decay),
        "ema.decay",
        format!("is {decay}: write a number from 0 to below 1, for example 0.999"),
    );
    below.compared(
        train.kl.reference == KlReference::Ema && train.ema.is_none(),
        "kl.ref",
        &["kl", "ema"],
        "is \"ema\", but no average is kept: write ema = { decay = 0.999 } too, or ref = \"initial\"",
    );
    below.compared(
        train.kl.reference == KlReference::Ema && train.kl.coef == 0.0,
        "kl.ref",
        &["kl", "kl.coef"],
        "is \"ema\", but kl.coef is 0, so there is no KL: write a coef, for example 0.01, or remove ref",
    );
    below.not_negative(train.entropy, "entropy");
    below.not_negative(train.entropy_final.unwrap_or(0.0), "entropy_final");
}

/// Checks cross-entropy. It has no rewards and no samples of the policy.
fn imitation(train: &TrainConfig, below: &mut Below) {
    let imitates = train.loss.kind == LossKind::CrossEntropy;
    below.compared(
        imitates && train.zero_advantage != ZeroAdvantage::Keep,
        "zero_advantage",
        &["loss", "loss.kind"],
        "drops groups of equal rewards, but loss.kind is \"cross_entropy\", which has no advantages: write \"keep\"",
    );
    below.compared(
        imitates && (train.kl.coef != 0.0 || train.entropy != 0.0 || train.entropy_final.unwrap_or(0.0) != 0.0),
        "loss.kind",
        &["loss", "kl", "kl.coef", "entropy", "entropy_final"],
        "is \"cross_entropy\", which has neither KL nor entropy: set kl.coef and entropy to 0, or write another kind",
    );
}

/// Checks that groups are dropped only if their gradient is 0.
fn skipping(train: &TrainConfig, below: &mut Below) {
    let loss = &train.loss;
    below.compared(
        train.zero_advantage == ZeroAdvantage::Skip && loss.kind == LossKind::Dro && loss.beta != 0.0,
        "zero_advantage",
        &["loss", "loss.kind", "loss.beta"],
        "is \"skip\", but loss.kind is \"dro\", which also acts on groups without advantage: write \"keep\", or set loss.beta to 0",
    );
    below.compared(
        train.zero_advantage == ZeroAdvantage::Skip && (train.kl.coef != 0.0 || train.entropy != 0.0 || train.entropy_final.unwrap_or(0.0) != 0.0),
        "zero_advantage",
        &["kl", "kl.coef", "entropy"],
        "is \"skip\", but KL or entropy is on, so groups without advantage still have a gradient: write \"keep\", or set kl.coef and entropy to 0",
    );
    below.compared(
        train.zero_advantage == ZeroAdvantage::Skip && loss.kind == LossKind::M2po && loss.mode == M2poMode::Mask,
        "zero_advantage",
        &["loss", "loss.kind", "loss.mode"],
        "is \"skip\", but loss.mode of \"m2po\" is \"mask\", which also counts tokens without advantage: write \"keep\"",
    );
    let of_batch = match train.advantage {
        Advantage::ReinforcePlusPlus => train.zero_advantage != ZeroAdvantage::Keep,
        Advantage::ReinforcePlusPlusBaseline => train.zero_advantage == ZeroAdvantage::Skip,
        Advantage::Loo | Advantage::Grpo | Advantage::Astraflow => false,
    };
    below.compared(
        of_batch,
        "zero_advantage",
        &["advantage"],
        "drops groups of equal rewards, but advantage is REINFORCE++, which compares with the whole batch, so such groups have a gradient: write \"keep\"",
    );
}

/// Checks losses that look at many tokens at once.
fn many_tokens(train: &TrainConfig, below: &mut Below) {
    let loss = &train.loss;
    let decoupled = loss.ratio == Ratio::Decoupled;
    below.compared(
        decoupled && loss.kind == LossKind::Gspo,
        "loss.ratio",
        &["loss", "loss.kind"],
        "is \"decoupled\", but loss.kind is \"gspo\", which has one ratio per answer and no weights per token: write \"behaviour\"",
    );
    below.compared(
        decoupled && loss.kind == LossKind::M2po && loss.mode != M2poMode::Mask,
        "loss.ratio",
        &["loss", "loss.kind", "loss.mode"],
        "is \"decoupled\", but loss.kind is \"m2po\", which bounds the distance to the weights that sampled: write \"behaviour\", or loss.mode = \"mask\"",
    );
    below.compared(
        decoupled
            && loss.kind == LossKind::M2po
            && loss.mode == M2poMode::Mask
            && train.minibatches.saturating_mul(train.epochs) > 1,
        "loss.ratio",
        &["loss", "loss.kind", "loss.mode", "minibatches", "epochs"],
        "is \"decoupled\" with the mask of \"m2po\", which bounds the distance from the sampler to the batch's start but not later steps: write minibatches = 1 and epochs = 1, or ratio = \"behaviour\"",
    );
    let usual = LossConfig::default();
    below.compared(
        loss.kind != LossKind::M2po && (loss.tau, loss.mode, loss.scope) != (usual.tau, usual.mode, usual.scope),
        "loss.kind",
        &["loss", "loss.tau", "loss.mode", "loss.scope"],
        "is not \"m2po\", but tau, mode and scope are only for \"m2po\": remove them, or write kind = \"m2po\"",
    );
    below.compared(
        loss.dual_clip.is_some() && loss.kind != LossKind::Grpo,
        "loss.dual_clip",
        &["loss", "loss.kind"],
        "is only for loss.kind = \"grpo\": remove it",
    );
}

/// Checks keys that have no effect with the other settings.
fn without_effect(train: &TrainConfig, below: &mut Below) {
    let (loss, usual) = (&train.loss, LossConfig::default());
    below.compared(
        loss.weight_cap != usual.weight_cap && loss.ratio != Ratio::Decoupled,
        "loss.weight_cap",
        &["loss", "loss.ratio"],
        "works only with loss.ratio = \"decoupled\" (truncated importance sampling): write that too, or remove it",
    );
    below.compared(
        loss.beta != usual.beta && loss.kind != LossKind::Dro,
        "loss.beta",
        &["loss", "loss.kind"],
        "is only for loss.kind = \"dro\": remove it, or write kl.coef for a KL",
    );
    let clips = match loss.kind {
        LossKind::Grpo | LossKind::Cispo | LossKind::Gspo => true,
        LossKind::ImportanceSampling | LossKind::Dro | LossKind::M2po | LossKind::CrossEntropy => false,
    };
    let bounds = [
        ("loss.clip_low", loss.clip_low, usual.clip_low),
        ("loss.clip_high", loss.clip_high, usual.clip_high),
    ];
    for (key, bound, usual) in bounds {
        below.compared(
            !clips && bound != usual,
            key,
            &["loss", "loss.kind"],
            "is only for loss.kind = \"grpo\", \"cispo\" and \"gspo\": remove it",
        );
    }
}

/// Checks a KL in the reward. Advantages must be computed after it.
fn reward_kl(train: &TrainConfig, below: &mut Below) {
    let in_reward = train.kl.place == KlPlace::Reward;
    let takes = matches!(
        train.advantage,
        Advantage::ReinforcePlusPlus | Advantage::ReinforcePlusPlusBaseline
    );
    below.compared(
        in_reward && !takes,
        "kl.place",
        &["kl", "advantage"],
        "is \"reward\", which changes advantages token by token: write advantage = \"reinforce_plus_plus\" (or \"reinforce_plus_plus_baseline\"), or place = \"loss\"",
    );
    below.compared(
        in_reward && train.kl.coef == 0.0,
        "kl.place",
        &["kl", "kl.coef"],
        "is \"reward\", but kl.coef is 0, so there is no KL: write a coef, for example 0.01, or remove place",
    );
    below.compared(
        in_reward && train.loss.kind == LossKind::CrossEntropy,
        "kl.place",
        &["kl", "loss", "loss.kind"],
        "is \"reward\", but loss.kind is \"cross_entropy\", which has no advantages: remove place",
    );
    below.compared(
        in_reward && train.kl.coef != 0.0 && train.loss.kind == LossKind::Gspo,
        "kl.place",
        &["kl", "loss", "loss.kind"],
        "is \"reward\", but loss.kind is \"gspo\", which needs one advantage per answer: write place = \"loss\"",
    );
}

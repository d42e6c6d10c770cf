//! What an agent's loss, advantage and KL may say wrongly, each alone and together.

use super::below::Below;
use crate::{Advantage, KlPlace, KlReference, LossConfig, LossKind, M2poMode, Ratio, TrainConfig, ZeroAdvantage};

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
            "is {}: the ratio is clipped to 1 - clip_low, so write a number above 0 and at most 1, such as 0.2",
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
            "is {dual}: it bounds the loss of tokens with a negative advantage, so write a number above 1, such as 3.0"
        ),
    );
    below.not_negative(train.kl.coef, "kl.coef");
    let decay = train.ema.map_or(0.0, |ema| ema.decay);
    below.when(
        !(0.0..1.0).contains(&decay),
        "ema.decay",
        format!("is {decay}: write a number from 0 to below 1, such as 0.999"),
    );
    below.compared(
        train.kl.reference == KlReference::Ema && train.ema.is_none(),
        "kl.ref",
        &["kl", "ema"],
        "is \"ema\" and no average is kept: write ema = { decay = 0.999 } too, or ref = \"initial\"",
    );
    below.compared(
        train.kl.reference == KlReference::Ema && train.kl.coef == 0.0,
        "kl.ref",
        &["kl", "kl.coef"],
        "is \"ema\" while kl.coef is 0, so there is no KL anywhere: write a coef such as 0.01, or leave ref out",
    );
    below.not_negative(train.entropy, "entropy");
    below.not_negative(train.entropy_final.unwrap_or(0.0), "entropy_final");
}

/// Cross-entropy on known answers has neither rewards nor samples of its own.
fn imitation(train: &TrainConfig, below: &mut Below) {
    let imitates = train.loss.kind == LossKind::CrossEntropy;
    below.compared(
        imitates && train.zero_advantage != ZeroAdvantage::Keep,
        "zero_advantage",
        &["loss", "loss.kind"],
        "leaves groups of equal rewards out, while loss.kind is \"cross_entropy\", which has no advantages: write \"keep\"",
    );
    below.compared(
        imitates && (train.kl.coef != 0.0 || train.entropy != 0.0 || train.entropy_final.unwrap_or(0.0) != 0.0),
        "loss.kind",
        &["loss", "kl", "kl.coef", "entropy", "entropy_final"],
        "is \"cross_entropy\", which has neither KL nor entropy: set kl.coef and entropy to 0, or write another kind",
    );
}

/// Groups may be left out where their gradient is nothing.
fn skipping(train: &TrainConfig, below: &mut Below) {
    let loss = &train.loss;
    below.compared(
        train.zero_advantage == ZeroAdvantage::Skip && loss.kind == LossKind::Dro && loss.beta != 0.0,
        "zero_advantage",
        &["loss", "loss.kind", "loss.beta"],
        "is \"skip\" while loss.kind is \"dro\": its pull acts on groups without advantage too; write \"keep\", or set loss.beta to 0",
    );
    below.compared(
        train.zero_advantage == ZeroAdvantage::Skip && (train.kl.coef != 0.0 || train.entropy != 0.0 || train.entropy_final.unwrap_or(0.0) != 0.0),
        "zero_advantage",
        &["kl", "kl.coef", "entropy"],
        "is \"skip\" while KL or entropy is on: groups without advantage still have a gradient then; write \"keep\", or set kl.coef and entropy to 0",
    );
    below.compared(
        train.zero_advantage == ZeroAdvantage::Skip && loss.kind == LossKind::M2po && loss.mode == M2poMode::Mask,
        "zero_advantage",
        &["loss", "loss.kind", "loss.mode"],
        "is \"skip\" while loss.mode of \"m2po\" is \"mask\": its budget is over the tokens without advantage too; write \"keep\"",
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
        "leaves groups of equal rewards out, while advantage is REINFORCE++, which compares with the whole batch: such groups push too; write \"keep\"",
    );
}

/// Losses that look at many tokens at once.
fn many_tokens(train: &TrainConfig, below: &mut Below) {
    let loss = &train.loss;
    let decoupled = loss.ratio == Ratio::Decoupled;
    below.compared(
        decoupled && loss.kind == LossKind::Gspo,
        "loss.ratio",
        &["loss", "loss.kind"],
        "is \"decoupled\" while loss.kind is \"gspo\": one ratio of a whole answer has no weight for single tokens; write \"behaviour\"",
    );
    below.compared(
        decoupled && loss.kind == LossKind::M2po && loss.mode != M2poMode::Mask,
        "loss.ratio",
        &["loss", "loss.kind", "loss.mode"],
        "is \"decoupled\" while loss.kind is \"m2po\": its budget bounds the distance to the weights that sampled; write \"behaviour\", or loss.mode = \"mask\"",
    );
    below.compared(
        decoupled
            && loss.kind == LossKind::M2po
            && loss.mode == M2poMode::Mask
            && train.minibatches.saturating_mul(train.epochs) > 1,
        "loss.ratio",
        &["loss", "loss.kind", "loss.mode", "minibatches", "epochs"],
        "is \"decoupled\" with the mask of \"m2po\", which bounds how far the batch's start was from the sampler and not the steps after it: write minibatches = 1 and epochs = 1, or ratio = \"behaviour\"",
    );
    let usual = LossConfig::default();
    below.compared(
        loss.kind != LossKind::M2po && (loss.tau, loss.mode, loss.scope) != (usual.tau, usual.mode, usual.scope),
        "loss.kind",
        &["loss", "loss.tau", "loss.mode", "loss.scope"],
        "is not \"m2po\", which alone has tau, mode and scope: leave them out, or write kind = \"m2po\"",
    );
    below.compared(
        loss.dual_clip.is_some() && loss.kind != LossKind::Grpo,
        "loss.dual_clip",
        &["loss", "loss.kind"],
        "is only of loss.kind = \"grpo\": leave it out",
    );
}

/// What acts with another setting alone, and would do nothing without a word.
fn without_effect(train: &TrainConfig, below: &mut Below) {
    let (loss, usual) = (&train.loss, LossConfig::default());
    below.compared(
        loss.weight_cap != usual.weight_cap && loss.ratio != Ratio::Decoupled,
        "loss.weight_cap",
        &["loss", "loss.ratio"],
        "caps a weight that tokens have with loss.ratio = \"decoupled\" alone (truncated importance sampling): write that too, or leave it out",
    );
    below.compared(
        loss.beta != usual.beta && loss.kind != LossKind::Dro,
        "loss.beta",
        &["loss", "loss.kind"],
        "is only of loss.kind = \"dro\": leave it out, or write kl.coef if a KL is meant",
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
            "is only of loss.kind = \"grpo\", \"cispo\" and \"gspo\": leave it out",
        );
    }
}

/// A KL in the reward needs advantages that are made after it.
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
        "is \"reward\" while kl.coef is 0, so there is no KL anywhere: write a coef such as 0.01, or leave place out",
    );
    below.compared(
        in_reward && train.loss.kind == LossKind::CrossEntropy,
        "kl.place",
        &["kl", "loss", "loss.kind"],
        "is \"reward\" while loss.kind is \"cross_entropy\", which has no advantages: leave place out",
    );
    below.compared(
        in_reward && train.kl.coef != 0.0 && train.loss.kind == LossKind::Gspo,
        "kl.place",
        &["kl", "loss", "loss.kind"],
        "is \"reward\" while loss.kind is \"gspo\": an answer has one ratio and needs one advantage; write place = \"loss\"",
    );
}

//! Builds a trainer from a prepared policy.

use configs::{KlReference, TrainConfig};
use trainer::collective::Collective;
use trainer::model::Weights;
use trainer::train::{EmaOptions, Trainer, TrainerOptions};

use crate::policy::Prepared;

/// Builds the trainer of a prepared policy, or one rank of it.
pub(super) fn trainer(prepared: &mut Prepared, group: Option<Box<dyn Collective>>) -> anyhow::Result<Trainer> {
    let options = options(prepared);
    let (shape, weights) = (prepared.shape.clone(), prepared.trained()?);
    let base = prepared.base.as_ref().map(Weights::share);
    Ok(match (group, base) {
        (Some(group), base) => Trainer::in_group(group, shape, base, weights, options)?,
        (None, Some(base)) => Trainer::with_base(shape, base, weights, options)?,
        (None, None) => Trainer::new(shape, weights, options)?,
    })
}

/// Returns the options of a prepared policy's trainer.
pub(super) fn options(prepared: &Prepared) -> TrainerOptions {
    let train = &prepared.settings.train;
    TrainerOptions {
        device: prepared.device,
        micro_batch_tokens: train.micro_batch_tokens,
        keep_reference: train.kl.coef > 0.0,
        ema: average(train),
        checkpoint_activations: train.checkpoint_activations,
        shard: train.shard,
        offload: train.offload,
        keep_checkpoints: train.keep_checkpoints,
        tokenizer_folder: Some(prepared.folder.clone()),
        dtype: prepared.settings.dtype,
        base_name: prepared.folder.display().to_string(),
        ..TrainerOptions::default()
    }
}

fn average(train: &TrainConfig) -> Option<EmaOptions> {
    train.ema.map(|ema| EmaOptions {
        decay: ema.decay,
        is_reference: train.kl.coef > 0.0 && train.kl.reference == KlReference::Ema,
    })
}

//! The model of a fake: every token's context is computed from its first token.

use std::path::Path;
use std::sync::Mutex;

use trainer::device::Device;
use trainer::model::{Decoder, ModelShape, Parts, RowBatch, Weights, peft};

/// A model that answers with logits.
pub(in crate::engine::foreign) struct Model {
    pub(in crate::engine::foreign) shape: ModelShape,
    decoder: Mutex<Decoder>,
}

impl Model {
    pub(in crate::engine::foreign) fn open(folder: &Path) -> Result<Self, String> {
        let shape = ModelShape::load(folder).map_err(|error| error.to_string())?;
        let weights = Weights::load(&shape, folder).map_err(|error| error.to_string())?;
        Self::bound(shape, (&weights).into())
    }

    /// Opens the base with an adapter, without the adapter's change of the head.
    pub(in crate::engine::foreign) fn with_adapter(base: &Path, adapter: &Path) -> Result<Self, String> {
        let shape = ModelShape::load(base).map_err(|error| error.to_string())?;
        let weights = Weights::load(&shape, base).map_err(|error| error.to_string())?;
        let (_, adapter) = peft::load(adapter, &shape).map_err(|error| error.to_string())?;
        Self::bound(shape, Parts::over(Some(&weights), &adapter))
    }

    fn bound(shape: ModelShape, parts: Parts<'_>) -> Result<Self, String> {
        let decoder = Decoder::new(&shape, parts).map_err(|error| error.to_string())?;
        Ok(Self {
            shape,
            decoder: Mutex::new(decoder),
        })
    }

    /// Returns the logits of every token after `ids`.
    pub(in crate::engine::foreign) fn logits(&self, ids: &[u32]) -> Vec<f32> {
        let decoder = self.decoder.lock().unwrap();
        let batch = RowBatch::new(&self.shape, &[ids], Device::Cpu).unwrap();
        let hidden = decoder.hidden(&batch).unwrap();
        let last = hidden.f_get(ids.len() as i64 - 1).unwrap();
        let logits = decoder.head_weight().f_mv(&last).unwrap();
        Vec::try_from(&logits).unwrap()
    }

    /// Returns log-softmax(logits / temperature) after `ids`.
    pub(in crate::engine::foreign) fn logprobs(&self, ids: &[u32], temperature: f32) -> Vec<f32> {
        log_softmax(&self.logits(ids), temperature)
    }
}

pub(super) fn log_softmax(logits: &[f32], temperature: f32) -> Vec<f32> {
    let scaled: Vec<f64> = logits.iter().map(|x| f64::from(*x) / f64::from(temperature)).collect();
    let most = scaled.iter().copied().fold(f64::MIN, f64::max);
    let sum: f64 = scaled.iter().map(|x| (x - most).exp()).sum();
    scaled.iter().map(|x| (x - most - sum.ln()) as f32).collect()
}

//! Installs new weights between two decode steps.

use configs::Swap;
use tch::{Kind, Tensor};

use super::{Engine, EngineError};
use crate::model::{ModelError, Parts, Piece, RowBatch, RowKv};
use crate::weights::Published;

impl Engine {
    /// Installs new weights as [`EngineOptions::swap`](super::EngineOptions::swap) says. Returns
    /// `false` for weights that are not newer than the served ones, and drops them.
    ///
    /// # Errors
    /// [`EngineError::Model`] when the weights have another shape, device or kind, or when the
    /// cache cannot be recomputed.
    pub fn swap(&mut self, weights: Published) -> Result<bool, EngineError> {
        let newest = self.next.as_ref().map_or(self.version(), Published::version);
        if weights.version() <= newest {
            return Ok(false);
        }
        self.fits(&weights)?;
        broker::fail::point("weights.arrived");
        let _guard = tch::no_grad_guard();
        match self.options.swap {
            _ if self.rows.is_empty() && self.filling.is_empty() => self.install(weights)?,
            Swap::InPlace => self.install(weights)?,
            Swap::Retract => {
                self.install(weights)?;
                self.recompute()?;
            }
            Swap::Drain => self.next = Some(weights),
        }
        Ok(true)
    }

    /// Sets whether new requests must use one version only. While pinned, a request never begins
    /// with keys and values computed by earlier weights. Active generations continue unchanged.
    pub fn pin(&mut self, pinned: bool) {
        self.pinned = pinned;
        if pinned {
            let version = self.version();
            self.prefix_cache.keep_of(version);
        }
    }

    /// Returns true if requests begin only with keys and values of the current weights.
    pub(super) fn of_one_version(&self) -> bool {
        self.options.deterministic || self.pinned
    }

    fn fits(&self, weights: &Published) -> Result<(), EngineError> {
        let (old, new) = (self.served.weights()?, weights.weights()?);
        let same = old.layout() == new.layout() && old.device() == new.device() && old.kind() == new.kind();
        if same {
            Ok(())
        } else {
            Err(ModelError::shape("new weights of another shape, device or kind").into())
        }
    }

    /// Installs the weights that wait, if no generation is active.
    pub(super) fn install_waiting(&mut self) -> Result<(), EngineError> {
        match self.next.take_if(|_| self.rows.is_empty() && self.filling.is_empty()) {
            Some(next) => self.install(next),
            None => Ok(()),
        }
    }

    pub(super) fn install(&mut self, weights: Published) -> Result<(), EngineError> {
        let parts = Parts::over(self.base.as_ref(), weights.weights()?);
        self.graphs.clear();
        let next = self.decoder.rebound(parts)?;
        let before = std::mem::replace(&mut self.decoder, next);
        // A frozen base stays in its order as long as a decoder uses it. The order of a whole model
        // is freed before the next one is made.
        let before = self.base.is_some().then_some(before);
        if self.options.prepack {
            self.decoder.put_in_order()?;
        }
        drop(before);
        self.served = weights;
        self.next = None;
        if self.options.swap != Swap::InPlace {
            self.forget_computed();
        } else if self.of_one_version() {
            // Kept rows would bring the bits of earlier weights into new requests.
            self.prefix_cache.clear();
        }
        Ok(())
    }

    /// Recomputes the cache of all rows with the current weights.
    fn recompute(&mut self) -> Result<(), EngineError> {
        // From here on each row is complete in its own slot.
        self.cache.prefixes.clear();
        self.rows.iter_mut().for_each(|row| row.shared = None);
        self.make_room(0)?;
        if self.options.deterministic {
            self.recompute_rows()?;
        } else {
            self.recompute_batches()?;
        }
        let version = self.version();
        self.rows.iter_mut().for_each(|row| row.oldest_kv = version);
        Ok(())
    }

    /// Recomputes each row alone, in the same pieces as a prompt.
    fn recompute_rows(&mut self) -> Result<(), EngineError> {
        let (device, kind) = (self.decoder.device(), self.cache.kind());
        for (slot, row) in self.rows.iter().enumerate() {
            let ids = row.cached_ids();
            let mut kv = RowKv::in_buckets(self.decoder.shape(), ids.len(), device, kind)?;
            for piece in ids.chunks(self.options.prefill_tokens) {
                let _ = self.decoder.extend_fixed(&mut [Piece {
                    kv: &mut kv,
                    ids: piece,
                }])?;
                self.pulse.mark();
            }
            self.cache.fill(slot, &kv)?;
        }
        Ok(())
    }

    fn recompute_batches(&mut self) -> Result<(), EngineError> {
        let mut first = 0;
        while first < self.rows.len() {
            let (mut ids, mut tokens) = (Vec::new(), 0);
            for row in &self.rows[first..] {
                tokens += row.cached();
                if tokens > self.options.prefill_tokens && !ids.is_empty() {
                    break;
                }
                ids.push(row.cached_ids());
            }
            let batch = RowBatch::new(self.shape(), &ids, self.decoder.device())?;
            let (_, kept) = self.decoder.prefill(&batch, true)?;
            let all = Tensor::f_arange(ids.len() as i64, (Kind::Int64, self.decoder.device()))?;
            self.cache.admit(first, &kept, &all)?;
            first += ids.len();
            self.pulse.mark();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use broker::ids::WeightVersion;

    use super::super::EngineOptions;
    use super::*;
    use crate::model::{Init, LoraShape, Module, Weights, test_shape};

    const OPTIONS: EngineOptions = EngineOptions {
        slots: 4,
        ..super::super::tests::OPTIONS
    };

    #[test]
    fn a_swap_keeps_the_order_of_a_base_and_renews_a_whole_models() {
        let shape = test_shape();
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.1,
        };
        let lora = LoraShape {
            rank: 2,
            alpha: 4.0,
            targets: Module::ALL.into_iter().collect(),
        };
        let version = |step| WeightVersion { lineage: 1, step };
        let adapter = |step| Published::new(Weights::adapter(&shape, &lora, step).unwrap(), version(step));
        let whole = |step| Published::new(Weights::random(&shape, init, step).unwrap(), version(step));
        let base = Weights::random(&shape, init, 1).unwrap();
        let mut over = Engine::with_base(&shape, base, adapter(1), OPTIONS).unwrap();
        let mut alone = Engine::new(&shape, whole(1), OPTIONS).unwrap();
        let watched = |engine: &Engine| Some(engine.decoder.first_ordered()?.watched());
        let (Some(of_base), Some(of_whole)) = (watched(&over), watched(&alone)) else {
            return;
        };
        assert!(over.swap(adapter(2)).unwrap() && alone.swap(whole(2)).unwrap());
        assert!(of_base.upgrade().is_some() && of_whole.upgrade().is_none());
    }

    #[test]
    fn unasked_nothing_is_kept_twice() {
        let shape = test_shape();
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.1,
        };
        let version = |step| WeightVersion { lineage: 1, step };
        let whole = |step| Published::new(Weights::random(&shape, init, step).unwrap(), version(step));
        let options = EngineOptions {
            prepack: false,
            ..OPTIONS
        };
        let mut engine = Engine::new(&shape, whole(1), options).unwrap();
        assert!(engine.decoder.first_ordered().is_none());
        assert!(engine.swap(whole(2)).unwrap());
        assert!(engine.decoder.first_ordered().is_none());
    }
}

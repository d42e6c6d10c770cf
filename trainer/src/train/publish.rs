//! Publishes the trained weights under a version.

use broker::ids::WeightVersion;
use broker::protocol::train::TrainReply;

use super::error::Refusal;
use super::stop::Stop;
use super::trainer::Trainer;
use crate::model::{Decoder, ModelError, Weights};

impl Trainer {
    /// Hands the weights to the sinks. All ranks do it, or none.
    pub(super) fn publish(&mut self, version: WeightVersion) -> Result<TrainReply, Stop> {
        let reference = self.prepare_publish(version);
        let reference = self.ranks.agree(reference)?;
        if reference.is_some() {
            self.reference = reference;
        }
        self.version = Some(version);
        self.published = true;
        Ok(TrainReply::Published)
    }

    /// Does what can fail. Returns the new reference policy, if there is one.
    fn prepare_publish(&mut self, version: WeightVersion) -> Result<Option<(Weights, Decoder)>, Stop> {
        let failed = |error: ModelError| Stop::Failed(error.to_string());
        // A step with finite gradients can still produce such weights. No engine can sample from
        // them, and no checkpoint may keep them.
        if let Some(tensor) = self.weights.first_not_finite().map_err(failed)? {
            let tensor = tensor.to_owned();
            return Err(Refusal::NotFinite { version, tensor }.into());
        }
        if version.step == 0
            && let Some(ema) = &mut self.ema
        {
            ema.weights.copy_from(&self.weights).map_err(failed)?;
        }
        let reference = if version.step == 0 && self.options.keep_reference {
            Some(self.copy_as_reference().map_err(failed)?)
        } else {
            None
        };
        for sink in &mut self.sinks {
            sink.publish(&self.weights, version)
                .map_err(|error| Stop::Failed(error.to_string()))?;
        }
        Ok(reference)
    }
}

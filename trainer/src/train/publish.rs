//! Publishes the trained weights under a version.

use broker::ids::WeightVersion;
use broker::protocol::train::TrainReply;

use super::error::Refusal;
use super::layout::Computing;
use super::reference::Reference;
use super::stop::Stop;
use super::trainer::Trainer;
use crate::model::{ModelError, Weights};

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

    /// Does what can fail. Returns the new reference policy, if there is one. The ranks agree
    /// before each exchange: one that gave up alone would leave the others in it.
    fn prepare_publish(&mut self, version: WeightVersion) -> Result<Option<Reference>, Stop> {
        let failed = |error: ModelError| Stop::Failed(error.to_string());
        let copied = self.weights_on_first();
        let copied = self.ranks.agree(copied)?;
        let split = matches!(self.computing, Computing::Window { .. });
        // With split weights only rank 0 has something to publish.
        let weights = match &copied {
            None if split => None,
            None => Some(&self.weights),
            copied => copied.as_ref(),
        };
        // A step with finite gradients can still produce such weights. No engine can sample from
        // them, and no checkpoint may keep them.
        let tensor = weights.map_or(Ok(None), Weights::first_not_finite);
        let checked = tensor.map_err(failed).and_then(|tensor| match tensor {
            Some(tensor) => Err(Refusal::NotFinite {
                version,
                tensor: tensor.to_owned(),
            }
            .into()),
            None => Ok(()),
        });
        self.ranks.agree(checked)?;
        if version.step == 0 {
            let restarted = self.owned.restart_average();
            self.ranks.agree(restarted.map_err(|error| failed(error.into())))?;
        }
        let reference = if version.step == 0 && self.options.keep_reference {
            Some(self.copy_as_reference()?)
        } else {
            None
        };
        let weights = copied.as_ref().unwrap_or(&self.weights);
        for sink in &mut self.sinks {
            sink.publish(weights, version)
                .map_err(|error| Stop::Failed(error.to_string()))?;
        }
        Ok(reference)
    }
}

//! Publishes the trained weights under a version.

use broker::ids::WeightVersion;
use broker::protocol::train::TrainReply;

use super::error::Refusal;
use super::reference::Reference;
use super::stop::Stop;
use super::trainer::Trainer;
use crate::model::{ModelError, Weights};

impl Trainer {
    /// Hands the weights to the sinks. All ranks do it, or none.
    pub(super) fn publish(&mut self, version: WeightVersion) -> Result<TrainReply, Stop> {
        let reference = self.publish_first(version)?;
        if reference.is_some() {
            self.reference = reference;
        }
        self.version = Some(version);
        self.published = true;
        Ok(TrainReply::Published)
    }

    /// Does what can fail. Returns the new reference policy, if there is one. The ranks agree
    /// before each exchange: one that gave up alone would leave the others in it.
    fn publish_first(&mut self, version: WeightVersion) -> Result<Option<Reference>, Stop> {
        let failed = |error: ModelError| Stop::Failed(error.to_string());
        let copied = self.on_first(|pieces| {
            let copied = pieces.weights().map_err(failed)?;
            check_finite(copied.as_ref().unwrap_or(&self.weights), version)?;
            Ok(copied)
        });
        let copied = self.ranks.agree(copied)?.flatten();
        if version.step == 0 {
            let restarted = self.owned.restart_average();
            self.ranks.agree(restarted.map_err(|error| failed(error.into())))?;
        }
        let reference = if version.step == 0 && self.options.keep_reference {
            Some(self.ranks.agree(self.copy_as_reference())?)
        } else {
            None
        };
        let mut sinks = std::mem::take(&mut self.sinks);
        let weights = copied.as_ref().unwrap_or(&self.weights);
        let sent = self.on_first(|_| {
            let sent = sinks.iter_mut().try_for_each(|sink| sink.publish(weights, version));
            sent.map_err(|error| Stop::Failed(error.to_string()))
        });
        self.sinks = sinks;
        self.ranks.agree(sent)?;
        Ok(reference)
    }
}

/// Rejects weights that no engine can sample from and that no checkpoint may keep. A step with
/// finite gradients can still produce them.
fn check_finite(weights: &Weights, version: WeightVersion) -> Result<(), Stop> {
    let tensor = weights.first_not_finite();
    match tensor.map_err(|error| Stop::Failed(error.to_string()))? {
        Some(tensor) => Err(Refusal::NotFinite {
            version,
            tensor: tensor.to_owned(),
        }
        .into()),
        None => Ok(()),
    }
}

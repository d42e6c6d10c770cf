//! Publishes the trained weights under a version.

use broker::codec;
use broker::ids::WeightVersion;
use broker::protocol::train::TrainReply;

use super::compute_weights::ComputeWeights;
use super::error::Refusal;
use super::pieces::Buffer;
use super::reference::Reference;
use super::stop::Stop;
use super::trainer::Trainer;
use crate::model::{ModelError, ParamSpec, is_finite};

impl Trainer {
    /// Hands the weights to the sinks. All ranks do it, or none.
    pub(super) fn publish(&mut self, version: WeightVersion) -> Result<TrainReply, Stop> {
        let reference = self.publish_first(version)?;
        if reference.is_some() {
            self.set_reference(reference);
        }
        self.version = Some(version);
        self.published = true;
        Ok(TrainReply::Published)
    }

    /// Does what can fail. Returns the new reference policy, if there is one. The ranks agree
    /// before each exchange: one that gave up alone would leave the others in it.
    fn publish_first(&mut self, version: WeightVersion) -> Result<Option<Reference>, Stop> {
        self.check_finite(version)?;
        if version.step == 0 {
            let restarted = self.owned.restart_average().map_err(ModelError::from);
            self.ranks.agree(restarted.map_err(failed))?;
        }
        let reference = if version.step == 0 && self.options.keep_reference {
            Some(self.ranks.agree(self.copy_as_reference())?)
        } else {
            None
        };
        let mut sinks = std::mem::take(&mut self.sinks);
        let sent = self.on_first(|pieces| {
            let weights = pieces.stored(Buffer::Computing);
            let sent = sinks.iter_mut().try_for_each(|sink| sink.publish(&weights, version));
            sent.map_err(|error| Stop::Failed(error.to_string()))
        });
        self.sinks = sinks;
        self.ranks.agree(sent)?;
        Ok(reference)
    }

    /// Rejects weights that no engine can sample from and that no checkpoint may keep. A step with
    /// finite gradients can still produce them. Each rank checks the values that it has.
    fn check_finite(&self, version: WeightVersion) -> Result<(), Stop> {
        let own = self.first_not_finite().map_err(|error| error.to_string());
        let decode = |bytes: &[u8]| codec::decode::<Option<String>>(bytes);
        let found = self.ranks.gather(own, codec::encode::<Option<String>>, decode)?;
        let is_found = |spec: &&ParamSpec| found.iter().flatten().any(|name| *name == spec.name);
        match self.layout.params().iter().find(is_found) {
            Some(spec) => Err(Refusal::NotFinite {
                version,
                tensor: spec.name.clone(),
            }
            .into()),
            None => Ok(()),
        }
    }

    /// The first parameter with a value of this rank that is not finite, if any.
    fn first_not_finite(&self) -> Result<Option<String>, ModelError> {
        let ComputeWeights::Window { own, .. } = &self.computing else {
            return Ok(self.weights.first_not_finite()?.map(str::to_owned));
        };
        for spec in self.layout.params() {
            let held = self.parts.owners(&spec.range());
            for held in held.iter().filter(|held| held.rank == self.ranks.rank()) {
                let values = own.f_narrow(0, held.place, held.range.end - held.range.start)?;
                if !is_finite(&values)? {
                    return Ok(Some(spec.name.clone()));
                }
            }
        }
        Ok(None)
    }
}

fn failed(error: ModelError) -> Stop {
    Stop::Failed(error.to_string())
}

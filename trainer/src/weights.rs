//! Passes weights from the trainer to engines. Every publish is a copy, so a trainer and an engine
//! never share storage.
//!
//! A [`WeightSink`] receives a trainer's weights with a version. [`MemorySink`] serves an engine of
//! the same process. It copies into an unused buffer and hands that over. The engine swaps it in
//! between two decode steps, and the replaced buffer returns for the next publish. Two or three
//! buffers circulate; none is allocated after that. [`disk::DiskSink`] writes folders, for engines
//! that read them.

pub mod disk;

use std::sync::{Arc, Mutex, PoisonError};

use broker::ids::WeightVersion;
use configs::Dtype;
use tch::{Device, Kind};

use crate::model::{ModelError, ParamSource, Weights, kind_of};

/// A destination of published weights.
pub trait WeightSink: Send {
    /// Copies the current weights and sends them on. Versions rise from call to call. Reads one
    /// stretch of the weights after another: ranks may hold parts of them.
    ///
    /// # Errors
    /// [`SinkError`]. The trainer continues, and the next publish replaces the lost one.
    fn publish(&mut self, weights: &dyn ParamSource, version: WeightVersion) -> Result<(), SinkError>;
}

/// Why weights were not published.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error("copying weights {version}: {source}")]
    Copy { version: WeightVersion, source: ModelError },
    #[error(
        "writing weights {version} into {folder} for the engines: {source}; is there room, and may this process write there?"
    )]
    Write {
        version: WeightVersion,
        folder: String,
        source: ModelError,
    },
    #[error("weights {version} were not taken: the engine is gone")]
    Closed { version: WeightVersion },
    #[error("weights {version} are older than {newest}, which were published before")]
    Stale {
        version: WeightVersion,
        newest: WeightVersion,
    },
}

/// A model to serve: its own buffer and its version. When dropped, it returns the buffer to its
/// sink.
#[derive(Debug)]
pub struct Published {
    version: WeightVersion,
    /// Present until the drop.
    weights: Option<Weights>,
    home: Option<Pool>,
}

type Pool = Arc<Mutex<Vec<Weights>>>;

impl Published {
    /// Wraps weights that do not come from a sink: from a folder, or random ones.
    #[must_use]
    pub fn new(weights: Weights, version: WeightVersion) -> Self {
        Self {
            version,
            weights: Some(weights),
            home: None,
        }
    }

    #[must_use]
    pub fn version(&self) -> WeightVersion {
        self.version
    }

    /// The weights.
    ///
    /// # Errors
    /// None in practice: the weights are present until the drop.
    pub fn weights(&self) -> Result<&Weights, ModelError> {
        self.weights
            .as_ref()
            .ok_or_else(|| ModelError::shape("the weights were returned already"))
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if let (Some(weights), Some(home)) = (self.weights.take(), &self.home) {
            let mut pool = home.lock().unwrap_or_else(PoisonError::into_inner);
            pool.push(weights);
        }
    }
}

/// Passes a model to its engine's thread. Returns `false` if the engine is gone.
pub type Deliver = Box<dyn FnMut(Published) -> bool + Send>;

/// Publishes to an engine of this process.
pub struct MemorySink {
    device: Device,
    kind: Kind,
    pool: Pool,
    deliver: Deliver,
    newest: Option<WeightVersion>,
}

impl MemorySink {
    /// Copies go to `device` as `kind`. `deliver` sends them to the engine's thread, for example
    /// into its command channel. An engine that finds several waiting takes the newest and drops
    /// the others.
    #[must_use]
    pub fn new(device: Device, kind: Kind, deliver: Deliver) -> Self {
        Self {
            device,
            kind,
            pool: Pool::default(),
            deliver,
            newest: None,
        }
    }

    /// A sink for an engine that computes in `dtype` on `device`.
    #[must_use]
    pub fn of(device: Device, dtype: Dtype, deliver: Deliver) -> Self {
        Self::new(device, kind_of(dtype), deliver)
    }

    fn buffer(&self, like: &dyn ParamSource) -> Result<Weights, ModelError> {
        let free = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let fresh = || Weights::of_layout(Arc::clone(like.layout()), self.device, self.kind);
        free.map_or_else(fresh, Ok)
    }

    /// Returns a published copy without sending it: an engine's first weights.
    ///
    /// # Errors
    /// [`SinkError::Copy`], [`SinkError::Stale`].
    pub fn copy(&mut self, weights: &dyn ParamSource, version: WeightVersion) -> Result<Published, SinkError> {
        if let Some(newest) = self.newest.filter(|newest| *newest > version) {
            return Err(SinkError::Stale { version, newest });
        }
        let copied = self
            .buffer(weights)
            .and_then(|mut buffer| buffer.copy_from(weights).map(|()| buffer));
        let buffer = copied.map_err(|source| SinkError::Copy { version, source })?;
        self.newest = Some(version);
        Ok(Published {
            version,
            weights: Some(buffer),
            home: Some(Arc::clone(&self.pool)),
        })
    }
}

impl WeightSink for MemorySink {
    fn publish(&mut self, weights: &dyn ParamSource, version: WeightVersion) -> Result<(), SinkError> {
        let published = self.copy(weights, version)?;
        if (self.deliver)(published) {
            Ok(())
        } else {
            Err(SinkError::Closed { version })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Init;
    use crate::model::test_shape as tiny;
    use std::sync::mpsc;

    fn version(step: u64) -> WeightVersion {
        WeightVersion { lineage: 1, step }
    }

    fn sink() -> (MemorySink, mpsc::Receiver<Published>) {
        let (send, receive) = mpsc::channel();
        let deliver = Box::new(move |published| send.send(published).is_ok());
        (MemorySink::new(Device::Cpu, Kind::Float, deliver), receive)
    }

    #[test]
    fn copies_are_apart_from_the_trainer_and_buffers_come_back() {
        let (mut sink, receive) = sink();
        let trained = Weights::random(
            &tiny(),
            Init {
                embedding_std: 1.0,
                matrix_std: 0.2,
            },
            1,
        )
        .unwrap();
        let digest = trained.digest().unwrap();
        sink.publish(&trained, version(1)).unwrap();
        let first = receive.recv().unwrap();
        let place = first.weights().unwrap().flat().data_ptr();
        let _ = trained.flat().shallow_clone().fill_(0.0);
        assert_eq!(first.weights().unwrap().digest().unwrap(), digest);
        sink.publish(&trained, version(2)).unwrap();
        let second = receive.recv().unwrap();
        assert_ne!(second.weights().unwrap().flat().data_ptr(), place);
        drop(first);
        sink.publish(&trained, version(3)).unwrap();
        assert_eq!(receive.recv().unwrap().weights().unwrap().flat().data_ptr(), place);
    }

    #[test]
    fn versions_never_fall_and_a_gone_engine_is_reported() {
        let (mut sink, receive) = sink();
        let weights = Weights::zeros(&tiny(), Device::Cpu, Kind::Float).unwrap();
        sink.publish(&weights, version(2)).unwrap();
        assert!(matches!(
            sink.publish(&weights, version(1)),
            Err(SinkError::Stale { .. })
        ));
        drop(receive);
        assert!(matches!(
            sink.publish(&weights, version(3)),
            Err(SinkError::Closed { .. })
        ));
    }
}

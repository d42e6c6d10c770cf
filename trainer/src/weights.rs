//! Passes weights from the trainer to engines. Every publish is a copy, so a trainer and an engine
//! never share storage.
//!
//! A [`WeightSink`] receives a trainer's weights with a version. [`MemorySink`] serves engines of
//! the same process. It copies into an unused buffer and hands that over. The engine swaps it in
//! between two decode steps, and the replaced buffer returns for the next publish. Two or three
//! buffers of each engine circulate; none is allocated after that. [`disk::DiskSink`] writes
//! folders, for engines that read them.

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

/// Publishes to engines of this process that share a device and a dtype.
pub struct MemorySink {
    device: Device,
    kind: Kind,
    pool: Pool,
    engines: Vec<Deliver>,
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
            engines: vec![deliver],
            newest: None,
        }
    }

    /// Adds an engine. The trainer's weights are still read once, because ranks that split them
    /// exchange all of them for each reading.
    #[must_use]
    pub fn and(mut self, deliver: Deliver) -> Self {
        self.engines.push(deliver);
        self
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
        let mut copies = vec![self.copy(weights, version)?];
        while copies.len() < self.engines.len() {
            let first = copies[0].weights();
            let first = first.map_err(|source| SinkError::Copy { version, source })?;
            let next = self.copy(first, version)?;
            copies.push(next);
        }
        let mut all = true;
        for (deliver, published) in self.engines.iter_mut().zip(copies) {
            all &= deliver(published);
        }
        if all {
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

    /// Weights that count the values read of them.
    struct Counted(Weights, std::cell::Cell<i64>);

    impl ParamSource for Counted {
        fn layout(&self) -> &Arc<crate::model::Layout> {
            self.0.layout()
        }

        fn kind(&self) -> Kind {
            self.0.kind()
        }

        fn copy(&self, range: &std::ops::Range<i64>, target: &tch::Tensor) -> Result<(), ModelError> {
            self.1.set(self.1.get() + range.end - range.start);
            self.0.copy(range, target)
        }
    }

    #[test]
    fn several_engines_get_copies_of_one_reading() {
        let (mut sink, first) = sink();
        let (send, second) = mpsc::channel();
        sink = sink.and(Box::new(move |published| send.send(published).is_ok()));
        let source = Counted(
            Weights::zeros(&tiny(), Device::Cpu, Kind::Float).unwrap(),
            std::cell::Cell::new(0),
        );
        let _ = source.0.flat().shallow_clone().fill_(3.0);
        sink.publish(&source, version(1)).unwrap();
        assert_eq!(source.1.get() as usize, source.layout().numel());
        let [one, other] = [first.recv().unwrap(), second.recv().unwrap()];
        assert_eq!((one.version(), other.version()), (version(1), version(1)));
        let [one, other] = [&one, &other].map(|published| published.weights().unwrap());
        assert_ne!(one.flat().data_ptr(), other.flat().data_ptr());
        assert!(one.flat().equal(source.0.flat()) && other.flat().equal(source.0.flat()));
        drop(first);
        let closed = sink.publish(&source, version(2));
        assert!(matches!(closed, Err(SinkError::Closed { .. })));
        assert_eq!(second.recv().unwrap().version(), version(2), "the engine that lives");
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

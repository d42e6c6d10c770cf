//! Where published weights go.

use std::sync::{Arc, Mutex, PoisonError};

use broker::ids::WeightVersion;

use crate::model::Weights;

/// Takes the weights of each published version, before the publish is replied to. The embedded kind hands them over in
/// memory; other kinds write a path or send them.
pub trait WeightSink: Send {
    /// `weights` have storage of their own, f32 on the CPU.
    ///
    /// # Errors
    /// Why they could not be taken, in words; the publish fails without effect and may be sent again.
    fn publish(&mut self, version: WeightVersion, weights: Arc<PublishedWeights>) -> Result<(), String>;
}

/// Published weights that several threads may copy from.
#[derive(Debug)]
pub struct PublishedWeights(Mutex<Weights>);

impl PublishedWeights {
    #[must_use]
    pub fn new(weights: Weights) -> Self {
        Self(Mutex::new(weights))
    }

    /// Reads the weights; others wait in the meantime.
    pub fn read<T>(&self, read: impl FnOnce(&Weights) -> T) -> T {
        read(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Keeps the newest published weights for others in the same process.
#[derive(Debug, Default, Clone)]
pub struct MemorySink {
    newest: Arc<Mutex<Option<(WeightVersion, Arc<PublishedWeights>)>>>,
}

impl MemorySink {
    /// The newest version and its weights, if any was published.
    #[must_use]
    pub fn newest(&self) -> Option<(WeightVersion, Arc<PublishedWeights>)> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl WeightSink for MemorySink {
    fn publish(&mut self, version: WeightVersion, weights: Arc<PublishedWeights>) -> Result<(), String> {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some((version, weights));
        Ok(())
    }
}

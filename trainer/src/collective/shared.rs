//! One group with several owners in a process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tch::Tensor;

use super::error::CollectiveError;
use super::{Collective, Patience};

/// A group that several owners use in turn.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Box<dyn Collective>>>);

impl Shared {
    #[must_use]
    pub fn new(group: Box<dyn Collective>) -> Self {
        Self(Arc::new(Mutex::new(group)))
    }

    fn with<T>(&self, call: impl FnOnce(&dyn Collective) -> T) -> T {
        call(&**self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.world_size())
    }
}

impl Collective for Shared {
    fn rank(&self) -> usize {
        self.with(|group| group.rank())
    }

    fn world_size(&self) -> usize {
        self.with(|group| group.world_size())
    }

    fn timeout(&self) -> Option<Duration> {
        self.with(|group| group.timeout())
    }

    fn all_reduce(&self, sum: &mut Tensor) -> Result<(), CollectiveError> {
        self.with(|group| group.all_reduce(sum))
    }

    fn reduce_scatter(&self, part: &mut Tensor, whole: &Tensor) -> Result<(), CollectiveError> {
        self.with(|group| group.reduce_scatter(part, whole))
    }

    fn all_gather(&self, whole: &mut Tensor, part: &Tensor) -> Result<(), CollectiveError> {
        self.with(|group| group.all_gather(whole, part))
    }

    fn broadcast(&self, value: &mut Tensor, root: usize, patience: Patience) -> Result<(), CollectiveError> {
        self.with(|group| group.broadcast(value, root, patience))
    }

    fn barrier(&self) -> Result<(), CollectiveError> {
        self.with(|group| group.barrier())
    }
}

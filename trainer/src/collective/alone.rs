//! A group of one rank.

use std::time::Duration;

use tch::Tensor;

use super::error::{CollectiveError, Operation};
use super::{Collective, Patience};

/// The only rank: sums are its own numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Collective for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn world_size(&self) -> usize {
        1
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    fn all_reduce(&self, _: &mut Tensor) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn reduce_scatter(&self, part: &mut Tensor, whole: &Tensor) -> Result<(), CollectiveError> {
        part.f_copy_(whole)
            .map_err(|error| CollectiveError::of_call(self, Operation::ReduceScatter, &error))
    }

    fn all_gather(&self, whole: &mut Tensor, part: &Tensor) -> Result<(), CollectiveError> {
        whole
            .f_copy_(part)
            .map_err(|error| CollectiveError::of_call(self, Operation::AllGather, &error))
    }

    fn broadcast(&self, _: &mut Tensor, _: usize, _: Patience) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn barrier(&self) -> Result<(), CollectiveError> {
        Ok(())
    }
}

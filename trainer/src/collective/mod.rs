//! Several processes that compute one training step: sums and exchanges of tensors in step.
//!
//! All ranks of a group make the same calls in the same order. A group with a lost rank is of no
//! use: every rank gets an error, or its process ends, and all must start again.

mod alone;
mod bytes;
mod c10d;
mod error;
mod shared;

use std::time::Duration;

use tch::Tensor;

pub use alone::Alone;
pub use bytes::{broadcast_bytes, gather_bytes};
pub use c10d::{C10d, Meeting, Store};
pub use error::{CollectiveError, Operation};
pub use shared::Shared;

/// How long a rank waits for the others in an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// The group's timeout.
    Step,
    /// Three times the group's timeout: the root has no command or works alone, and gives signs of
    /// life. Only tensors in host memory can wait like this.
    Idle,
}

/// This process's place among the ranks of one trainer. Tensors are dense, and have the same kind
/// and size on all ranks.
pub trait Collective: Send {
    /// From 0.
    fn rank(&self) -> usize;

    fn world_size(&self) -> usize;

    /// The time that an operation waits for other ranks; `None` without others.
    fn timeout(&self) -> Option<Duration>;

    /// Adds the ranks' tensors, in place. All ranks get the same bits.
    ///
    /// # Errors
    /// [`CollectiveError`]; the group is of no use afterwards. The same holds for all operations.
    /// Operations on a GPU's tensors return before they are done. If they fail later, NCCL's
    /// watchdog ends the process.
    fn all_reduce(&self, sum: &mut Tensor) -> Result<(), CollectiveError>;

    /// Adds the ranks' `whole` tensors (`[ranks * n]`); rank r gets part r of the sum (`[n]`).
    /// `part` may be a view of this rank's part of `whole`.
    ///
    /// # Errors
    /// See [`Self::all_reduce`].
    fn reduce_scatter(&self, part: &mut Tensor, whole: &Tensor) -> Result<(), CollectiveError>;

    /// Puts the ranks' parts (`[n]`) one after another into `whole` (`[ranks * n]`). `part` may be
    /// a view of this rank's part of `whole`.
    ///
    /// # Errors
    /// See [`Self::all_reduce`].
    fn all_gather(&self, whole: &mut Tensor, part: &Tensor) -> Result<(), CollectiveError>;

    /// Gives the root's tensor to all ranks.
    ///
    /// # Errors
    /// See [`Self::all_reduce`].
    fn broadcast(&self, value: &mut Tensor, root: usize, patience: Patience) -> Result<(), CollectiveError>;

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// See [`Self::all_reduce`].
    fn barrier(&self) -> Result<(), CollectiveError>;
}

#[cfg(test)]
pub(crate) mod tests;

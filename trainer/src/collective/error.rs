//! Why a group of ranks ended.

use std::time::Duration;

use tch::TchError;

use super::Collective;
pub use crate::shim::group::Operation;

/// Why an operation failed. The group is of no use afterwards.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CollectiveError {
    /// Some rank never came, or came twice.
    #[error(
        "rank {rank} of {world_size} did not meet the others within {waited:?}: {reason}; start all ranks with the \
         same configuration"
    )]
    Join {
        rank: usize,
        world_size: usize,
        waited: Duration,
        reason: String,
    },
    /// The ranks would send the tensors of GPUs by different ways, and wait for each other.
    #[error(
        "ranks {nccl:?} send the tensors of their GPUs through NCCL, and ranks {host:?} through host memory: set \
         DYAD_NCCL=0 on all hosts or on none, and start all ranks with the same devices"
    )]
    Ways { nccl: Vec<usize>, host: Vec<usize> },
    /// Another rank has ended, or its machine cannot be reached.
    #[error(
        "{operation} on rank {rank} of {world_size} failed: {reason}; another rank has ended: read its log, then \
         start all ranks again"
    )]
    Peer {
        operation: Operation,
        rank: usize,
        world_size: usize,
        reason: String,
    },
    /// Another rank lives and does not answer.
    #[error(
        "{operation} on rank {rank} of {world_size} waited {waited:?} for another rank, which hangs or is too slow: \
         end all ranks and start them again ({reason})"
    )]
    TimedOut {
        operation: Operation,
        rank: usize,
        world_size: usize,
        waited: Duration,
        reason: String,
    },
    /// A rank lives, and its work makes no progress.
    #[error(
        "rank {rank} of {world_size} made no progress for {waited:?} while it read files: its disk hangs or is too \
         slow; mend it, or raise engine.stuck_after, then start all ranks again"
    )]
    Stuck {
        rank: usize,
        world_size: usize,
        waited: Duration,
    },
    /// This rank passed a tensor that no operation takes, or memory is short.
    #[error("{operation} on rank {rank} of {world_size} was not begun: {reason}; start all ranks again")]
    Call {
        operation: Operation,
        rank: usize,
        world_size: usize,
        reason: String,
    },
}

impl CollectiveError {
    /// The error for a call that failed on this rank before its operation began.
    pub(crate) fn of_call(group: &dyn Collective, operation: Operation, error: &TchError) -> Self {
        Self::Call {
            operation,
            rank: group.rank(),
            world_size: group.world_size(),
            reason: error.to_string(),
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::Broadcast => "broadcast",
            Self::Barrier => "barrier",
        })
    }
}

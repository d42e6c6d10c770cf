//! The inputs of a group's run, the generations it requests, and refused results.

use std::sync::Arc;

use broker::ids::TurnKey;
use broker::protocol::failure::{Failure, FailureCode};
use broker::protocol::task::Task;

use crate::sample::Malformed;
use crate::workflow::{Ask, Workflow};

/// Returns the failure of a conversation that ends because its group can no longer train.
#[must_use]
pub fn abandoned() -> Failure {
    Failure::new(
        FailureCode::Abandoned,
        "too many other conversations of its group failed",
    )
}

/// The inputs of a group's run.
#[derive(Clone)]
pub struct RunSpec {
    pub workflow: Arc<dyn Workflow>,
    pub task: Arc<Task>,
    /// The task's resolved id; seeds follow from it.
    pub task_id: String,
    pub run_seed: u64,
    pub group_size: u16,
    /// Tries for one generation before its conversation counts as failed; at least 1.
    pub retries: u32,
    /// The number of conversations that must be valid for the group to train. When it is out of
    /// reach, the rest is abandoned.
    pub min_valid: usize,
}

/// A generation to request.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub key: TurnKey,
    pub ask: Ask,
    /// Prompt and output ids of this seat's previous turn; empty at its first turn.
    pub held: Vec<u32>,
    /// The number of them, at their end, that are the previous turn's output.
    pub sampled: u32,
    /// Seed of this generation's random numbers.
    pub seed: u64,
}

/// The reason why a result changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("turn {0:?} is not wanted now: it is taken, its conversation has ended, or it was never asked for")]
    Unwanted(TurnKey),
    #[error("the generation is broken: {0}")]
    Malformed(#[from] Malformed),
}

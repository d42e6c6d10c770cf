//! Failures of jobs, from the errors of an engine.

use broker::protocol::failure::Failure;
use trainer::engine::{EngineError, RequestFault};

use crate::engine::{EngineFailure, Finished, GenerationJob};

pub(super) fn failed(job: GenerationJob, failure: &EngineFailure) -> Finished {
    Finished {
        job,
        result: Err(failure.clone()),
    }
}

/// Returns the failure for an error: a bad request stays bad; other errors may be temporary.
pub(super) fn failure_of(error: &EngineError) -> EngineFailure {
    match error {
        EngineError::BadRequest { source, .. } => fault_of(source),
        EngineError::NotFinite { version, .. } => EngineFailure {
            cause: Failure::not_finite(*version, error),
            retry: true,
        },
        other => EngineFailure {
            cause: Failure::engine(other),
            retry: true,
        },
    }
}

pub(super) fn fault_of(fault: &RequestFault) -> EngineFailure {
    let cause = match fault {
        RequestFault::TooLong { .. } | RequestFault::BeyondCache { .. } => Failure::context(fault),
        _ => Failure::request(fault),
    };
    EngineFailure { cause, retry: false }
}

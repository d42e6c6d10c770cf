//! The end of a command that has no reply.

use super::error::Refusal;
use crate::collective::CollectiveError;
use crate::model::ModelError;

/// Why a command ended without a reply.
pub(super) enum Stop {
    Refused(Refusal),
    /// Nothing changed.
    Failed(String),
    /// Something may have changed.
    Broken(String),
    /// Another rank is lost.
    Ended(CollectiveError),
}

impl<R: Into<Refusal>> From<R> for Stop {
    fn from(reason: R) -> Self {
        Self::Refused(reason.into())
    }
}

impl From<ModelError> for Stop {
    fn from(error: ModelError) -> Self {
        Self::Broken(error.to_string())
    }
}

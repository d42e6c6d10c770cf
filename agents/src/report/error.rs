//! The error of reports, audits and repairs.

use std::path::PathBuf;

use broker::AgentName;

use crate::ledger::LedgerError;
use crate::run_folder::FolderError;

/// The reason why a report, an audit or a repair failed.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(
        "the ledger of agent {agent}, {path}: a damaged one is moved away with its -wal and -shm, then `dyad audit --repair {agent}` \
         rebuilds it from the other agents'"
    )]
    OfAgent {
        agent: AgentName,
        path: PathBuf,
        source: LedgerError,
    },
    #[error("cannot {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("a ledger cannot be made: {0}")]
    Repair(String),
}

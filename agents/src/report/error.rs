//! Why a report cannot be made.

use std::path::PathBuf;

use crate::ledger::LedgerError;
use crate::run_folder::FolderError;

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("cannot {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("a ledger cannot be made: {0}")]
    Repair(String),
}

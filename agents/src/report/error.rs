//! The error of reports, audits and repairs.

use std::path::PathBuf;

use crate::ledger::LedgerError;
use crate::run_folder::FolderError;

/// The reason why a report, an audit or a repair failed.
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

//! Errors of the ledger, with their fixes.

use std::path::PathBuf;
use std::sync::Arc;

use broker::ids::GroupId;

/// The failure of a call on the ledger. Clones are cheap: one failed commit answers many callers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    #[error(
        "the ledger {path} is in use by process {holder}: an agent has one process; stop that one, or give this run another folder"
    )]
    InUse { path: PathBuf, holder: String },
    #[error("cannot open the ledger {path}: {reason}")]
    Open { path: PathBuf, reason: String },
    #[error(
        "the ledger {path} is damaged ({detail}): it is the run's custody of tasks, so it is not repaired by guessing; \
         restore it from a copy, or start a new run"
    )]
    Damaged { path: PathBuf, detail: String },
    #[error("{path} is the ledger of {found}, not of {wanted}: check --run and --name")]
    Foreign {
        path: PathBuf,
        found: String,
        wanted: String,
    },
    #[error("the ledger {path} has schema {found}, this build has {known}: run the release that wrote it")]
    Schema { path: PathBuf, found: i64, known: i64 },
    #[error(
        "{path}, the run's ledger, has samples that another release wrote (schema {found}, this build reads {known}): \
         finish the run with that release, or begin a new one"
    )]
    Release { path: PathBuf, found: u16, known: u16 },
    /// A newer owner opened the ledger or began a lineage: the caller must stop and write nothing
    /// more.
    #[error("a newer owner has the ledger (ours {ours}, newest {newest}): this one must stop")]
    Fenced { ours: i64, newest: i64 },
    #[error("the ledger could not be {doing}")]
    Storage {
        doing: &'static str,
        source: Arc<rusqlite::Error>,
    },
    /// In the surviving lineage each sample takes effect once.
    #[error("sample {member}/{role}/{seat} of group {group} already has a verdict in this lineage or an ancestor")]
    Decided {
        group: GroupId,
        member: u16,
        role: String,
        seat: u16,
    },
    #[error("step {step} cannot be recorded: lineage {lineage} stands at step {at}")]
    Step { lineage: u32, step: u64, at: u64 },
    #[error(
        "lineage {0} is not in the ledger: it is not the ledger that the checkpoint was written with; if that one is lost, \
         stop the run, move this file away and rebuild it with `dyad audit --repair AGENT`"
    )]
    UnknownLineage(u32),
    #[error("group {0} has no row in the ledger")]
    UnknownGroup(GroupId),
    #[error("the payload of group {0} is gone: no retained checkpoint needs it any more")]
    NoPayload(GroupId),
    #[error("the ledger holds {what} that this build cannot read: {reason}")]
    Content { what: String, reason: String },
    #[error("the ledger's writer has ended")]
    Closed,
}

impl LedgerError {
    /// Returns true if the same call may succeed later: the disk was full, the file locked.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Storage { .. })
    }

    /// Returns true if the disk, or the user's share of it, has no room.
    #[must_use]
    pub fn is_full_disk(&self) -> bool {
        let code = match self {
            Self::Storage { source, .. } => source.sqlite_error_code(),
            _ => None,
        };
        code == Some(rusqlite::ErrorCode::DiskFull)
    }

    /// Returns a stable name for metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "in_use",
            Self::Open { .. } => "open",
            Self::Damaged { .. } => "damaged",
            Self::Foreign { .. } => "foreign",
            Self::Schema { .. } => "schema",
            Self::Release { .. } => "release",
            Self::Fenced { .. } => "fenced",
            Self::Storage { .. } => "storage",
            Self::Decided { .. } => "decided",
            Self::Step { .. } => "step",
            Self::UnknownLineage(_) => "unknown_lineage",
            Self::UnknownGroup(_) => "unknown_group",
            Self::NoPayload(_) => "no_payload",
            Self::Content { .. } => "content",
            Self::Closed => "closed",
        }
    }
}

/// Names the step that failed: `.doing("read")`.
pub(super) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, LedgerError>;
}

impl<T> Doing<T> for Result<T, rusqlite::Error> {
    fn doing(self, doing: &'static str) -> Result<T, LedgerError> {
        self.map_err(|source| LedgerError::Storage {
            doing,
            source: Arc::new(source),
        })
    }
}

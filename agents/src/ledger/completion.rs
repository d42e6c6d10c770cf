//! Reads from the ledgers if a run is complete: a process may exit with success before that.

use broker::AgentName;
use broker::protocol::control::{RunPhase, RunState};

use super::meta::ENDED;
use super::{Inspector, Ledger, LedgerError};
use crate::run_folder::RunFolder;

/// Returns true if the agent has written its last checkpoint. False if its ledger is missing, or is
/// on another host.
#[must_use]
pub fn agent(folder: &RunFolder, name: &AgentName) -> bool {
    let ledger = Inspector::find(&folder.ledger(name));
    ledger.is_ok_and(|ledger| ledger.is_some_and(|ledger| ledger.has_ended().unwrap_or(false)))
}

/// Lets a run that has closed go on: the agent's ledger says again that the run is going, and the
/// agent has not ended.
///
/// # Errors
/// The ledger cannot be written.
pub fn reopen(folder: &RunFolder, name: &AgentName) -> Result<(), LedgerError> {
    let path = folder.ledger(name);
    if Inspector::find(&path)?.is_none() {
        return Ok(());
    }
    let mut ledger = Ledger::open(&path, folder.run(), name)?;
    let state = ledger.state()?;
    if state.phase == RunPhase::Closed || state.phase == RunPhase::Draining {
        ledger.adopt(RunState {
            seq: state.seq + 1,
            phase: RunPhase::Running,
        })?;
    }
    ledger.clear_note(ENDED)
}

/// Returns true if all of these agents have written their last checkpoint.
#[must_use]
pub fn all(folder: &RunFolder, names: &[AgentName]) -> bool {
    names.iter().all(|name| agent(folder, name))
}

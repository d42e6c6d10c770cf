//! Reads from the ledgers if a run is complete: a process may exit with success before that.

use broker::AgentName;

use super::Inspector;
use super::meta::ENDED;
use crate::run_folder::RunFolder;

/// Returns true if the agent has written its last checkpoint. False if its ledger is missing, or is
/// on another host.
#[must_use]
pub fn agent(folder: &RunFolder, name: &AgentName) -> bool {
    let path = folder.ledger(name);
    let note = || Inspector::open(&path).and_then(|ledger| ledger.note(ENDED));
    path.is_file() && note().is_ok_and(|note| note.is_some())
}

/// Returns true if all of these agents have written their last checkpoint.
#[must_use]
pub fn all(folder: &RunFolder, names: &[AgentName]) -> bool {
    names.iter().all(|name| agent(folder, name))
}

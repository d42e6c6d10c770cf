//! Whether a run is over, as its ledgers say: what a process's good end alone does not tell.

use broker::AgentName;

use super::Inspector;
use super::meta::ENDED;
use crate::run_folder::RunFolder;

/// Whether the agent has written its last checkpoint. `false` where its ledger is not there, or on another host.
#[must_use]
pub fn agent(folder: &RunFolder, name: &AgentName) -> bool {
    let path = folder.ledger(name);
    let note = || Inspector::open(&path).and_then(|ledger| ledger.note(ENDED));
    path.is_file() && note().is_ok_and(|note| note.is_some())
}

/// Whether all of these agents have.
#[must_use]
pub fn all(folder: &RunFolder, names: &[AgentName]) -> bool {
    names.iter().all(|name| agent(folder, name))
}

//! Whether a run is over, as its ledgers say: what a process's good end alone does not tell.

use broker::AgentName;

use crate::folder::RunFolder;
use crate::ledger::Inspector;

/// The note by which an agent says that it has nothing left to do.
pub const NOTE: &str = "ended";

/// Whether the agent has written its last checkpoint. `false` where its ledger is not there, or on another host.
#[must_use]
pub fn agent(folder: &RunFolder, name: &AgentName) -> bool {
    let path = folder.ledger(name);
    let note = || Inspector::open(&path).and_then(|ledger| ledger.note(NOTE));
    path.is_file() && note().is_ok_and(|note| note.is_some())
}

/// Whether all of these agents have.
#[must_use]
pub fn all(folder: &RunFolder, names: &[AgentName]) -> bool {
    names.iter().all(|name| agent(folder, name))
}

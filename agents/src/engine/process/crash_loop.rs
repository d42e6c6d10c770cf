//! Ends the agent when its engine processes die repeatedly with the same work.
//!
//! Its groups then gain a strike ([`crate::run_folder::crash_marks`]). A task that kills its engine
//! ends in the dead letters, like one that kills its agent, and its neighbours are spared.

use crate::run_folder::telemetry;

/// The number of engines that may be lost with a job.
pub(crate) const LOSSES: u32 = 3;

/// Ends the process, like [`crate::engine::stuck`].
pub(crate) fn end(owner: &str, jobs: usize) -> ! {
    tracing::error!(
        whose = owner,
        jobs,
        "an engine process was lost {LOSSES} times with the same work: this process ends and should be restarted, and the groups it was \
         working on are tried alone; see the engine's log for the cause"
    );
    eprintln!(
        "error: {owner}: an engine process was lost {LOSSES} times with the same {jobs} requests: the process ends"
    );
    telemetry::end_for_a_bug();
}

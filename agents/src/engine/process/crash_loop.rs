//! Engine processes that are lost again and again with the same work: the agent ends, so that its groups have a strike
//! (`strikes.rs`). A task that kills its engine goes to the dead letters in the end, as one that kills its agent does, and none of its
//! neighbours with it.

use crate::run_folder::telemetry;

/// Engines that a job may be lost with.
pub(crate) const LOSSES: u32 = 3;

/// Ends the process, as [`super::stuck`] does.
pub(crate) fn end(whose: &str, jobs: usize) -> ! {
    tracing::error!(
        whose,
        jobs,
        "an engine process was lost {LOSSES} times with the same work: this process ends and is to be started again, and what it was \
         working on is tried alone; the engine's log says what it died of"
    );
    eprintln!(
        "error: {whose}: an engine process was lost {LOSSES} times with the same {jobs} requests: the process ends"
    );
    telemetry::end_for_a_bug();
}

//! Watches the compute threads, and ends the process when one has work but makes no step for too
//! long. The supervisor then starts the process again.
//!
//! A CUDA call that never returns, or a deadlock, cannot be ended from within. The heartbeat runs
//! on other threads and would continue for ever. Ending the process loses nothing: its requests are
//! not acknowledged and come again. Its groups gain a strike ([`crate::run_folder::crash_marks`]),
//! so a request that hangs every engine ends in the dead letters.
//!
//! Time is counted in looks, not by a clock: a halted process has not looked, and starts to count
//! again.

use std::time::Duration;

use broker::AgentName;
use tokio::time::Instant;
use trainer::pulse::{Look, Pulse};

use crate::base::log_scope;
use crate::run_folder::telemetry;

/// Looks without progress after which a thread counts as stuck.
const LOOKS: u32 = 10;

/// The state of a thread, as observed at intervals.
#[derive(Debug, Default)]
struct Watch {
    /// Its marks at the last look, if it had work then.
    seen: Option<u64>,
    /// Successive looks at which it had work and had not moved.
    still: u32,
}

impl Watch {
    /// Returns true if the thread is stuck. `late`: much more time has passed since the last look
    /// than planned, so this process did not run.
    fn look(&mut self, now: Look, late: bool) -> bool {
        let idle = now.work == 0;
        let moved = self.seen != Some(now.marks);
        self.still = if idle || moved || late { 0 } else { self.still + 1 };
        self.seen = (!idle).then_some(now.marks);
        self.still >= LOOKS
    }
}

/// Ends the process when the thread (`engine 0`, `trainer`) has work and makes no step for
/// `stuck_after`. Never if that is zero. Must be called in a runtime.
pub fn watch(agent: AgentName, thread: String, pulse: Pulse, stuck_after: Duration) {
    if stuck_after.is_zero() {
        return;
    }
    let interval = stuck_after / LOOKS;
    log_scope::spawn(async move {
        let mut watch = Watch::default();
        loop {
            let began = Instant::now();
            tokio::time::sleep(interval).await;
            let now = pulse.look();
            if watch.look(now, began.elapsed() > 2 * interval) {
                end(&agent, &thread, stuck_after, now.work);
            }
        }
    });
}

fn end(agent: &AgentName, thread: &str, stuck_after: Duration, requests: u64) {
    let seconds = stuck_after.as_secs_f64();
    tracing::error!(
        %agent,
        thread,
        seconds,
        requests,
        "a thread has work but made no step for engine.stuck_after: it is stuck, the process ends and should be restarted; \
         if its steps really take so long, raise engine.stuck_after"
    );
    eprintln!(
        "error: agent {agent}: {thread} made no step for {seconds} s with {requests} requests: it is stuck, the process ends"
    );
    telemetry::end_for_a_bug();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until the thread is stuck, at most once per item.
    fn stuck_after(watch: &mut Watch, looks: impl IntoIterator<Item = (u64, u64, bool)>) -> Option<usize> {
        let mut looks = looks.into_iter();
        looks.position(|(marks, work, late)| watch.look(Look { marks, work }, late))
    }

    #[test]
    fn a_thread_with_work_and_no_step_is_stuck_after_ten_looks() {
        let mut watch = Watch::default();
        assert_eq!(stuck_after(&mut watch, vec![(7, 3, false); 99]), Some(10));
    }

    #[test]
    fn a_thread_that_moves_or_has_no_work_is_never_stuck() {
        let slow = (0..200).map(|look| (look / 9, 1, false));
        assert_eq!(stuck_after(&mut Watch::default(), slow), None);
        assert_eq!(stuck_after(&mut Watch::default(), vec![(7, 0, false); 99]), None);
        // Work that has just arrived has not waited yet.
        let idle_before = [
            vec![(7, 0, false); 99],
            vec![(7, 1, false); 10],
            vec![(8, 0, false); 99],
        ]
        .concat();
        assert_eq!(stuck_after(&mut Watch::default(), idle_before), None);
    }

    #[test]
    fn a_halted_process_starts_to_count_again() {
        let mut watch = Watch::default();
        assert_eq!(stuck_after(&mut watch, vec![(7, 1, false); 10]), None);
        assert_eq!(stuck_after(&mut watch, [(7, 1, true)]), None);
        assert_eq!(stuck_after(&mut watch, vec![(7, 1, false); 99]), Some(9));
    }
}

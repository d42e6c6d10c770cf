//! Watches the threads that compute: one that has work and makes no step for too long will never make one, and the process ends, so
//! that whoever supervises starts it anew.
//!
//! A call into CUDA that never returns, or a deadlock, cannot be ended from within. The heart beats on other threads and would go on
//! for ever. Nothing is lost with the process: what it was asked for is not acked and comes again. Its groups have a strike then
//! (`strikes.rs`), so a request that hangs every engine ends in the dead letters.
//!
//! Time is counted in looks, not by a clock: a process that was halted has not looked, and begins to count anew.

use std::time::Duration;

use broker::AgentName;
use tokio::time::Instant;
use trainer::pulse::{Look, Pulse};

use crate::run_folder::telemetry;

/// Looks in which nothing moves, until a thread is taken for stuck.
const LOOKS: u32 = 10;

/// What is known of a thread from looking at it now and then.
#[derive(Debug, Default)]
struct Watch {
    /// Its marks at the last look, if it had work then.
    seen: Option<u64>,
    /// Looks in succession at which it had work and had not moved.
    still: u32,
}

impl Watch {
    /// Whether it is stuck. `late`: much more time has passed since the last look than should have, so this process did not run.
    fn look(&mut self, now: Look, late: bool) -> bool {
        let idle = now.work == 0;
        let moved = self.seen != Some(now.marks);
        self.still = if idle || moved || late { 0 } else { self.still + 1 };
        self.seen = (!idle).then_some(now.marks);
        self.still >= LOOKS
    }
}

/// Ends the process when the thread (`engine 0`, `trainer`) has work and makes no step for so long; never if that is zero. Must be
/// called in a runtime.
pub fn watch(agent: AgentName, thread: String, pulse: Pulse, stuck_after: Duration) {
    if stuck_after.is_zero() {
        return;
    }
    let interval = stuck_after / LOOKS;
    tokio::spawn(async move {
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
        "a thread has work and has made no step for engine.stuck_after: it is stuck, the process ends and is to be started again; \
         if its steps do take so long, raise engine.stuck_after"
    );
    eprintln!(
        "error: agent {agent}: {thread} made no step for {seconds} s with {requests} requests: it is stuck, the process ends"
    );
    telemetry::end_for_a_bug();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until it is stuck, of so many at most.
    fn stuck_after(watch: &mut Watch, looks: impl IntoIterator<Item = (u64, u64, bool)>) -> Option<usize> {
        let mut looks = looks.into_iter();
        looks.position(|(marks, work, late)| watch.look(Look { marks, work }, late))
    }

    #[test]
    fn who_has_work_and_makes_no_step_is_stuck_after_ten_whole_intervals() {
        let mut watch = Watch::default();
        assert_eq!(stuck_after(&mut watch, vec![(7, 3, false); 99]), Some(10));
    }

    #[test]
    fn who_moves_or_has_no_work_is_never_stuck() {
        let slow = (0..200).map(|look| (look / 9, 1, false));
        assert_eq!(stuck_after(&mut Watch::default(), slow), None);
        assert_eq!(stuck_after(&mut Watch::default(), vec![(7, 0, false); 99]), None);
        // Work that has just come has not waited yet.
        let idle_before = [
            vec![(7, 0, false); 99],
            vec![(7, 1, false); 10],
            vec![(8, 0, false); 99],
        ]
        .concat();
        assert_eq!(stuck_after(&mut Watch::default(), idle_before), None);
    }

    #[test]
    fn a_process_that_was_halted_has_all_its_time_again() {
        let mut watch = Watch::default();
        assert_eq!(stuck_after(&mut watch, vec![(7, 1, false); 10]), None);
        assert_eq!(stuck_after(&mut watch, [(7, 1, true)]), None);
        assert_eq!(stuck_after(&mut watch, vec![(7, 1, false); 99]), Some(9));
    }
}

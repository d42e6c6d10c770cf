//! The times at which the coordinator's periodic work is due.

use std::time::Duration;

use tokio::time::Instant;

/// Between two heartbeats.
const BEAT_EVERY: Duration = Duration::from_millis(400);
/// Between two lines of totals in the metrics.
const TOTALS_EVERY: Duration = Duration::from_secs(1);
/// Between two log lines about weights that a round waits for.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Times and numbers of heartbeats, renewed leases and reports.
pub(crate) struct Clock {
    started: Instant,
    beats: u64,
    last_beat: Option<Instant>,
    last_totals: Option<Instant>,
    last_lease: Instant,
    /// Since when a round waits for the weights of a past alone, or since the last report of it.
    waits_since: Option<Instant>,
}

impl Clock {
    #[must_use]
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            started: now,
            beats: 0,
            last_beat: None,
            last_totals: None,
            last_lease: now,
            waits_since: None,
        }
    }

    /// The time that the coordinator has been running.
    #[must_use]
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    #[must_use]
    pub(crate) fn beat_is_due(&self) -> bool {
        self.last_beat.is_none_or(|at| at.elapsed() >= BEAT_EVERY)
    }

    /// Returns true once per second: a line of totals is then to be written.
    pub(crate) fn take_totals_turn(&mut self) -> bool {
        let due = self.last_totals.is_none_or(|at| at.elapsed() >= TOTALS_EVERY);
        if due {
            self.last_totals = Some(Instant::now());
        }
        due
    }

    /// The number of the heartbeat that is sent now.
    pub(crate) fn next_beat(&mut self) -> u64 {
        self.beats += 1;
        self.last_beat = Some(Instant::now());
        self.beats
    }

    /// Returns true once every third of `lease`: leases are then to be renewed.
    pub(crate) fn take_lease_turn(&mut self, lease: Duration) -> bool {
        let due = self.last_lease.elapsed() >= lease / 3;
        if due {
            self.last_lease = Instant::now();
        }
        due
    }

    /// Returns true if a wait is to be reported now. `waits`: a round waits for weights alone.
    pub(crate) fn take_report_turn(&mut self, waits: bool) -> bool {
        if !waits {
            self.waits_since = None;
            return false;
        }
        let now = Instant::now();
        let due = now.duration_since(*self.waits_since.get_or_insert(now)) >= REPORT_EVERY;
        if due {
            self.waits_since = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn periodic_work_is_due_once_per_period() {
        let mut clock = Clock::new(Instant::now());
        assert!(clock.beat_is_due(), "the first heartbeat is due at once");
        assert_eq!(clock.next_beat(), 1);
        assert!(!clock.beat_is_due());
        assert!(clock.take_totals_turn() && !clock.take_totals_turn());
        let lease = Duration::from_secs(30);
        assert!(!clock.take_lease_turn(lease));
        tokio::time::advance(lease / 3).await;
        assert!(clock.beat_is_due() && clock.take_totals_turn());
        assert!(clock.take_lease_turn(lease) && !clock.take_lease_turn(lease));
        assert_eq!(clock.age(), lease / 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_reported_when_it_lasts() {
        let mut clock = Clock::new(Instant::now());
        assert!(!clock.take_report_turn(true));
        tokio::time::advance(REPORT_EVERY).await;
        assert!(!clock.take_report_turn(false), "the wait is over");
        assert!(!clock.take_report_turn(true), "a new wait begins");
        tokio::time::advance(REPORT_EVERY).await;
        assert!(clock.take_report_turn(true) && !clock.take_report_turn(true));
    }
}

//! How long an engine has done nothing.

use std::time::{Duration, Instant};

use crate::observe::table::{Level, Total};

/// Watches the numbers that an engine moves, and shows the time since one of them moved.
pub(crate) struct IdleTime {
    shown: Level,
    /// Sampled tokens by role: they grow with each answer.
    answered: Vec<Total>,
    seen: (Option<u64>, f64),
    since: Instant,
}

impl IdleTime {
    pub(super) fn new(shown: Level, answered: Vec<Total>) -> Self {
        Self {
            shown,
            answered,
            seen: (None, 0.0),
            since: Instant::now(),
        }
    }

    /// Looks at the numbers. `marks` are those of an engine in this process.
    pub(super) fn look(&mut self, marks: Option<u64>) {
        let idle = self.idle(marks, Instant::now());
        self.shown.set(idle.as_secs_f64());
    }

    fn idle(&mut self, marks: Option<u64>, now: Instant) -> Duration {
        let tokens = self.answered.iter().map(Total::get).sum();
        if self.seen != (marks, tokens) {
            self.seen = (marks, tokens);
            self.since = now;
        }
        now.saturating_duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_answers_end_the_idle_time() {
        let answered = Total::default();
        let mut idle = IdleTime::new(Level::default(), vec![answered.clone()]);
        let start = idle.since;
        let mut at = |marks, seconds| idle.idle(marks, start + Duration::from_secs(seconds)).as_secs();
        assert_eq!((at(Some(1), 1), at(Some(1), 4), at(Some(2), 5)), (0, 3, 0));
        assert_eq!(at(Some(2), 9), 4);
        answered.inc_by(3.0);
        assert_eq!((at(Some(2), 10), at(Some(2), 12)), (0, 2));
    }
}

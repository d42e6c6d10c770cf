//! Programs that fail again and again and never answer: a run with one earns nothing, so it stops.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A program is broken after this many failures without an answer of any copy, over at least this
/// time: a service that it needs may start later than the run.
const FAILURES: u32 = 5;
const TIME: Duration = Duration::from_secs(10);

/// The first broken program of a process. Clones share it.
#[derive(Clone, Default)]
pub(super) struct BrokenProgram(Arc<Mutex<Option<String>>>);

impl BrokenProgram {
    /// Returns the reason, and forgets it: the program is tried again.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, reason: String) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(reason);
    }
}

/// Counts the failures of all copies of one program.
#[derive(Clone)]
pub(super) struct Health {
    record: Arc<Mutex<Record>>,
    broken: BrokenProgram,
}

#[derive(Default)]
struct Record {
    answered: bool,
    failures: u32,
    first: Option<Instant>,
}

impl Health {
    /// The health of a program that has not been asked yet; reports to `broken`.
    pub(super) fn new(broken: BrokenProgram) -> Self {
        Self {
            record: Arc::default(),
            broken,
        }
    }

    /// A copy has answered: the program works, whatever happens later.
    pub(super) fn answered(&self) {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).answered = true;
    }

    /// A copy has ended, or has not answered.
    pub(super) fn failed(&self, reason: &str) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failures) = record.fail(Instant::now()) {
            self.broken.set(format!(
                "a program failed {failures} times and never answered: {reason}"
            ));
        }
    }
}

impl Record {
    /// Counts a failure. Returns their number once the program is broken, and counts from 0 again.
    fn fail(&mut self, now: Instant) -> Option<u32> {
        self.failures += 1;
        let since = now - *self.first.get_or_insert(now);
        if self.answered || self.failures < FAILURES || since < TIME {
            return None;
        }
        Some(std::mem::take(self).failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers that were reported, for failures at these seconds.
    fn reported(record: &mut Record, seconds: &[u64]) -> Vec<u32> {
        let start = Instant::now();
        let seconds = seconds.iter();
        seconds
            .filter_map(|at| record.fail(start + Duration::from_secs(*at)))
            .collect()
    }

    #[test]
    fn many_failures_over_some_time_are_reported_and_counted_again() {
        assert_eq!(reported(&mut Record::default(), &[0, 0, 0, 0, 0, 9]), [0u32; 0]);
        assert_eq!(reported(&mut Record::default(), &[0, 20, 40, 60]), [0u32; 0]);
        assert_eq!(reported(&mut Record::default(), &[0, 1, 2, 3, 9, 10, 11, 12]), [6]);
    }

    #[test]
    fn program_that_answered_once_is_never_reported() {
        let mut record = Record {
            answered: true,
            ..Record::default()
        };
        assert_eq!(reported(&mut record, &[0, 10, 20, 30, 40, 50]), [0u32; 0]);
    }

    #[test]
    fn copies_count_together_and_the_first_reason_stays() {
        let broken = BrokenProgram::default();
        let health = Health::new(broken.clone());
        health.record.lock().unwrap().first = Instant::now().checked_sub(TIME);
        for reason in ["1", "2", "3", "4", "5", "6"] {
            health.clone().failed(reason);
        }
        let why = broken.take().unwrap();
        assert_eq!(why, "a program failed 5 times and never answered: 5");
        assert_eq!(broken.take(), None);
    }
}

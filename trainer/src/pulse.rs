//! Signs of life from a computing thread for a watching thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Two counters that one thread moves and another reads; neither waits. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    marks: AtomicU64,
    work: AtomicU64,
}

/// The values of a pulse at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The number of steps made so far.
    pub marks: u64,
    /// The amount of work handed to the thread and not done.
    pub work: u64,
}

impl Pulse {
    /// Counts a step, however small.
    pub fn mark(&self) {
        self.0.marks.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts work that the caller is about to hand to the thread.
    pub fn take(&self, work: usize) {
        self.0.work.fetch_add(work as u64, Ordering::Relaxed);
    }

    /// Counts work as done.
    pub fn done(&self, work: usize) {
        self.0.work.fetch_sub(work as u64, Ordering::Relaxed);
        self.mark();
    }

    #[must_use]
    pub fn look(&self) -> Look {
        Look {
            marks: self.0.marks.load(Ordering::Relaxed),
            work: self.0.work.load(Ordering::Relaxed),
        }
    }
}

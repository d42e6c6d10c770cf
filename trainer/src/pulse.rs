//! Signs of life that a computing thread leaves for whoever watches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Two counters of one thread: what it moves, another reads, and neither waits. Clones are the same counters.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    marks: AtomicU64,
    work: AtomicU64,
}

/// A pulse as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Steps made so far.
    pub marks: u64,
    /// What was handed to the thread and is not done.
    pub work: u64,
}

impl Pulse {
    /// A step was made, however small.
    pub fn mark(&self) {
        self.0.marks.fetch_add(1, Ordering::Relaxed);
    }

    /// So much is about to be handed to the thread.
    pub fn take(&self, work: usize) {
        self.0.work.fetch_add(work as u64, Ordering::Relaxed);
    }

    /// So much of it is done.
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

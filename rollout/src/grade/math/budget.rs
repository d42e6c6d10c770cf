//! Bounds the cost of a comparison. It counts steps instead of seconds, so that every machine gives
//! the same verdict.

use std::cell::Cell;

pub(super) use crate::grade::answer::LONGEST_ANSWER as LONGEST;

/// Steps of one comparison. A step visits or evaluates a node of a formula, or compares a pair of
/// answers. It takes about a hundred nanoseconds; operations on long fractions count as many steps.
pub(super) const MOST_STEPS: usize = 1 << 18;

/// The steps that are left.
#[derive(Debug)]
pub(super) struct Budget(Cell<usize>);

impl Budget {
    pub(super) fn new() -> Self {
        Self(Cell::new(MOST_STEPS))
    }

    /// Takes steps. Returns false if too few were left, and then none are left.
    pub(super) fn spend(&self, steps: usize) -> bool {
        let left = self.0.get().checked_sub(steps);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Returns the number of steps taken, at most `MOST_STEPS`.
    #[cfg(test)]
    pub(super) fn spent(&self) -> usize {
        MOST_STEPS - self.0.get()
    }
}

#[cfg(test)]
mod tests;

//! Handles for threads that watch an engine: its pulse, and how full its cache and its steps are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Engine, Generation, Pulse};

/// Bounds of the number of rows that a step computes together.
pub const ROW_BOUNDS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// Numbers that the engine's thread sets after each step. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct EngineUsage(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    cache: AtomicU64,
    steps: [AtomicU64; ROW_BOUNDS.len() + 1],
    rows: AtomicU64,
}

/// The decode steps of an engine so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepCounts {
    /// By the first of [`ROW_BOUNDS`] that holds their rows; the last has more rows.
    pub steps: [u64; ROW_BOUNDS.len() + 1],
    /// The rows of all steps.
    pub rows: u64,
}

impl StepCounts {
    /// Returns the steps of two engines.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for (all, more) in self.steps.iter_mut().zip(other.steps) {
            *all += more;
        }
        self.rows += other.rows;
        self
    }
}

impl EngineUsage {
    /// Returns the share of the cache that held keys and values after the last step, from 0 to 1.
    #[must_use]
    pub fn cache(&self) -> f64 {
        f64::from_bits(self.0.cache.load(Ordering::Relaxed))
    }

    /// Returns the decode steps so far.
    #[must_use]
    pub fn steps(&self) -> StepCounts {
        StepCounts {
            steps: self.0.steps.each_ref().map(|steps| steps.load(Ordering::Relaxed)),
            rows: self.0.rows.load(Ordering::Relaxed),
        }
    }

    pub(super) fn count_step(&self, rows: usize) {
        let bound = ROW_BOUNDS.iter().position(|bound| rows as f64 <= *bound);
        self.0.steps[bound.unwrap_or(ROW_BOUNDS.len())].fetch_add(1, Ordering::Relaxed);
        self.0.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

impl Engine {
    /// The counter that moves with each step, including the steps of a wave.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Makes the engine's steps move this counter.
    pub(crate) fn mark_on(&mut self, pulse: Pulse) {
        self.pulse = pulse;
    }

    /// Returns the handle that follows this engine.
    #[must_use]
    pub fn usage(&self) -> EngineUsage {
        self.usage.clone()
    }

    /// Sets the share of the cache to that of now.
    pub(super) fn show_cache(&self) {
        let held: usize = self.rows.iter().map(Generation::in_slot).sum();
        let ratio = held as f64 / self.cache.places().max(1) as f64;
        self.usage.0.cache.store(ratio.to_bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_their_rows() {
        let usage = EngineUsage::default();
        for rows in [1, 3, 4, 128, 129] {
            usage.count_step(rows);
        }
        let counts = usage.steps();
        assert_eq!(counts.steps, [1, 0, 2, 0, 0, 0, 0, 1, 1]);
        assert_eq!((counts.rows, counts.and(counts).steps[2]), (265, 4));
    }
}

//! Positions in the run's own task source that have a group: a low-water mark, and those above it.

use std::collections::BTreeSet;

/// The first order of published tasks: behind all of the run's own source, and ignored here.
pub const PUBLISHED: u64 = 1 << 62;

/// A set of whole numbers that is mostly an interval from 0.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// All numbers below it are in the set.
    low: u64,
    above: BTreeSet<u64>,
}

impl Orders {
    pub(super) fn insert(&mut self, order: u64) {
        if (self.low..PUBLISHED).contains(&order) {
            self.above.insert(order);
        }
        while self.above.remove(&self.low) {
            self.low += 1;
        }
    }

    /// Returns the lowest number that is not in the set.
    pub(super) fn next(&self) -> u64 {
        self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_gap_is_found_whatever_the_order() {
        let mut orders = Orders::default();
        assert_eq!(orders.next(), 0);
        for (order, next) in [(1, 0), (0, 2), (0, 2), (PUBLISHED, 2), (4, 2), (2, 3), (3, 5)] {
            orders.insert(order);
            assert_eq!(orders.next(), next, "after {order}");
        }
        assert!(orders.above.is_empty(), "a long run of published tasks takes no memory");
    }
}

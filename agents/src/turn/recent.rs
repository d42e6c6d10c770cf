//! A memory of what was made lately, bounded by entries and by bytes: the oldest entry goes first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// How much is remembered at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub entries: usize,
    /// Sum of what [`Recent::put`] is told of each entry.
    pub bytes: usize,
}

#[derive(Debug)]
pub struct Recent<K, V> {
    bounds: Bounds,
    values: HashMap<K, (V, usize)>,
    order: VecDeque<K>,
    bytes: usize,
}

impl<K: Hash + Eq + Clone, V> Recent<K, V> {
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            values: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
        }
    }

    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|(value, _)| value)
    }

    /// Remembers a value of so many bytes; one that is larger than all that may be remembered is forgotten at once.
    pub fn put(&mut self, key: K, value: V, bytes: usize) {
        match self.values.insert(key.clone(), (value, bytes)) {
            Some((_, before)) => self.bytes -= before,
            None => self.order.push_back(key),
        }
        self.bytes += bytes;
        while self.order.len() > self.bounds.entries || self.bytes > self.bounds.bytes {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            if let Some((_, bytes)) = self.values.remove(&oldest) {
                self.bytes -= bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(entries: usize, bytes: usize) -> Recent<i32, i32> {
        Recent::new(Bounds { entries, bytes })
    }

    fn known(recent: &Recent<i32, i32>) -> Vec<i32> {
        (0..10).filter(|key| recent.get(key).is_some()).collect()
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let mut recent = recent(2, 100);
        for key in [1, 2, 2, 3] {
            recent.put(key, key * 10, 1);
        }
        assert_eq!(known(&recent), [2, 3]);
        assert_eq!(recent.get(&3), Some(&30));
    }

    #[test]
    fn large_values_push_out_more() {
        let mut recent = recent(100, 10);
        for key in 0..5 {
            recent.put(key, key, 2);
        }
        assert_eq!(known(&recent), [0, 1, 2, 3, 4]);
        recent.put(5, 5, 5);
        assert_eq!(known(&recent), [3, 4, 5], "9 of 10 bytes");
        recent.put(4, 4, 1);
        recent.put(6, 6, 2);
        assert_eq!(
            known(&recent),
            [3, 4, 5, 6],
            "an entry that shrank counts as what it is"
        );
        recent.put(7, 7, 11);
        assert_eq!(known(&recent), Vec::<i32>::new(), "larger than everything");
        recent.put(8, 8, 10);
        assert_eq!(known(&recent), [8]);
    }
}

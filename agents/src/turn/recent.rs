//! A memory of recent values, bounded by entries and by bytes: the oldest entry is evicted first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Limits of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub entries: usize,
    /// The largest sum of the `bytes` passed to [`Recent::put`].
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

    /// Stores a value that counts for `bytes` bytes. A value larger than the byte limit is evicted
    /// at once.
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
    fn the_oldest_entry_is_evicted() {
        let mut recent = recent(2, 100);
        for key in [1, 2, 2, 3] {
            recent.put(key, key * 10, 1);
        }
        assert_eq!(known(&recent), [2, 3]);
        assert_eq!(recent.get(&3), Some(&30));
    }

    #[test]
    fn large_values_evict_more_entries() {
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
            "an entry that shrank counts with its new size"
        );
        recent.put(7, 7, 11);
        assert_eq!(known(&recent), Vec::<i32>::new(), "larger than everything");
        recent.put(8, 8, 10);
        assert_eq!(known(&recent), [8]);
    }
}

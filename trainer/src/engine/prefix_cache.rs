//! Keys and values of what was said, kept for requests that begin with it: the next turn of a conversation computes only what
//! is new (as RadixAttention does: Zheng et al., "SGLang", arXiv:2312.07104; here a list of rows, each whole).
//!
//! What was used longest ago goes first when the budget is spent.

use broker::ids::WeightVersion;

use crate::model::RowKv;

/// Shorter beginnings are computed with the others: it is one row at a time here.
const WORTH: usize = 32;

#[derive(Debug)]
struct Entry {
    ids: Vec<u32>,
    kv: RowKv,
    oldest: WeightVersion,
    used: u64,
}

/// Rows that have ended.
#[derive(Debug)]
pub(super) struct PrefixCache {
    entries: Vec<Entry>,
    tokens: usize,
    budget: usize,
    clock: u64,
}

/// Something that a prompt begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    entry: usize,
    /// Tokens of the prompt that need not be computed: at least one is left.
    pub(super) length: usize,
}

impl PrefixCache {
    /// Keeps rows of `budget` tokens in all.
    pub(super) fn new(budget: usize) -> Self {
        Self {
            entries: Vec::new(),
            tokens: 0,
            budget,
            clock: 0,
        }
    }

    /// Whether a row of so many tokens would be kept.
    pub(super) fn takes(&self, tokens: usize) -> bool {
        (WORTH..=self.budget).contains(&tokens)
    }

    /// The longest beginning of a prompt that is here, if it saves work.
    pub(super) fn find(&self, prompt: &[u32]) -> Option<Hit> {
        let most = prompt.len().saturating_sub(1);
        let mut best: Option<Hit> = None;
        for (entry, Entry { ids, .. }) in self.entries.iter().enumerate() {
            let least = best.map_or(WORTH, |hit| hit.length + 1);
            // Most rows differ in their first tokens, or end too early.
            if ids.len() < least || most < least || ids[least - 1] != prompt[least - 1] {
                continue;
            }
            let length = ids.iter().zip(&prompt[..most]).take_while(|(a, b)| a == b).count();
            if length >= least {
                best = Some(Hit { entry, length });
            }
        }
        best
    }

    /// Tokens of a prompt that would have to be computed.
    pub(super) fn cost(&self, prompt: &[u32]) -> usize {
        prompt.len() - self.find(prompt).map_or(0, |hit| hit.length)
    }

    /// Keys and values to begin with, and the oldest weights that computed any of them. Of the cache as it was when the hit was
    /// found.
    pub(super) fn take(&mut self, hit: Hit) -> Option<(&RowKv, WeightVersion)> {
        self.clock += 1;
        let entry = self.entries.get_mut(hit.entry)?;
        entry.used = self.clock;
        Some((&entry.kv, entry.oldest))
    }

    /// Forgets what has to go for a row that will be put here. What it begins with itself is kept no longer.
    pub(super) fn make_room(&mut self, ids: &[u32]) {
        self.drop_where(|entry| ids.starts_with(&entry.ids));
        while self.tokens + ids.len() > self.budget {
            let Some(least) = self.entries.iter().map(|entry| entry.used).min() else {
                return;
            };
            self.drop_where(|entry| entry.used == least);
        }
    }

    /// Keeps a row, if it is within the budget.
    pub(super) fn put(&mut self, ids: Vec<u32>, kv: RowKv, oldest: WeightVersion) {
        if !self.takes(ids.len()) {
            return;
        }
        self.make_room(&ids);
        self.clock += 1;
        self.tokens += ids.len();
        self.entries.push(Entry {
            ids,
            kv,
            oldest,
            used: self.clock,
        });
    }

    /// Forgets all in which other weights than these have a part.
    pub(super) fn keep_of(&mut self, version: WeightVersion) {
        self.drop_where(|entry| entry.oldest != version);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.tokens = 0;
    }

    fn drop_where(&mut self, gone: impl Fn(&Entry) -> bool) {
        self.entries.retain(|entry| !gone(entry));
        self.tokens = self.entries.iter().map(|entry| entry.ids.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::test_shape;
    use tch::{Device, Kind};

    fn cache(budget: usize, rows: &[Vec<u32>]) -> PrefixCache {
        let mut cache = PrefixCache::new(budget);
        rows.iter().for_each(|row| put(&mut cache, row));
        cache
    }

    fn put(cache: &mut PrefixCache, ids: &[u32]) {
        let kv = RowKv::new(&test_shape(), ids.len(), Device::Cpu, Kind::Float).unwrap();
        cache.put(ids.to_vec(), kv, WeightVersion { lineage: 1, step: 1 });
    }

    fn row(first: u32, len: u32) -> Vec<u32> {
        (0..len).map(|i| (first + i * i) % 40).collect()
    }

    fn length(cache: &PrefixCache, prompt: &[u32]) -> Option<usize> {
        cache.find(prompt).map(|hit| hit.length)
    }

    #[test]
    fn the_longest_beginning_is_found() {
        let long = row(1, 100);
        let cache = cache(1000, &[row(2, 90), long[..40].to_vec(), long[..60].to_vec()]);
        assert_eq!(length(&cache, &long), Some(60));
        assert_eq!(length(&cache, &long[..60]), Some(59), "one token is left to compute");
        assert_eq!(length(&cache, &long[..50]), Some(49), "a part of a row serves too");
        assert_eq!(length(&cache, &[&row(2, 70)[..], &[7, 7]].concat()), Some(70));
        assert_eq!(length(&cache, &long[..WORTH]), None, "not worth it");
        assert_eq!(length(&cache, &row(3, 80)), None);
        assert_eq!(length(&cache, &[]), None);
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut cache = cache(150, &[row(1, 50), row(2, 50), row(3, 50)]);
        let hit = cache.find(&row(1, 60)).unwrap();
        assert!(cache.take(hit).is_some());
        put(&mut cache, &row(4, 60));
        assert_eq!(length(&cache, &row(2, 60)), None);
        assert_eq!(length(&cache, &row(3, 60)), None);
        assert_eq!(length(&cache, &row(1, 60)), Some(50));
        assert_eq!(length(&cache, &row(4, 70)), Some(60));
    }

    #[test]
    fn a_conversation_is_kept_once_as_it_grows() {
        let long = row(1, 100);
        let mut cache = cache(150, &[row(5, 40)]);
        for end in [40, 60, 80, 100] {
            put(&mut cache, &long[..end]);
        }
        assert_eq!((cache.entries.len(), cache.tokens), (2, 140));
        put(&mut cache, &row(6, 151));
        assert_eq!(
            cache.entries.len(),
            2,
            "larger than the budget: nothing is given up for it"
        );
    }
}

//! Keys and values of ended turns, kept for requests that begin with them. The next turn of a
//! conversation then computes only its new tokens. RadixAttention does the same with a tree (Zheng
//! et al., "SGLang", arXiv:2312.07104); this cache is a list of whole rows.
//!
//! When the budget is spent, the least recently used row is evicted first.

use broker::ids::WeightVersion;
use tch::{Device, Kind};

use crate::model::RowKv;

/// The shortest prefix that is reused on a CPU. Prompts without a hit are computed in batches;
/// prompts with one are computed row by row.
const WORTH: usize = 32;
/// Multiplications that a GPU makes while a dozen kernels start: a row by itself takes as many in
/// each layer. An estimate: 100 microseconds, at 400 TFLOP/s in bf16 or 50 in f32 (an H100).
const PER_LAYER: [(Kind, usize); 2] = [(Kind::BFloat16, 20_000_000_000), (Kind::Float, 2_500_000_000)];

/// The shortest prefix that is worth reusing, for a model of this size.
pub(super) fn worth((device, kind): (Device, Kind), layers: usize, parameters: usize) -> usize {
    let known = PER_LAYER.iter().find(|(other, _)| *other == kind);
    match (device, known) {
        (Device::Cpu, _) | (_, None) => WORTH,
        (_, Some((_, per_layer))) => (layers * per_layer / parameters.max(1)).max(WORTH),
    }
}

#[derive(Debug)]
struct Entry {
    ids: Vec<u32>,
    kv: RowKv,
    oldest: WeightVersion,
    used: u64,
}

/// Rows of ended generations.
#[derive(Debug)]
pub(super) struct PrefixCache {
    entries: Vec<Entry>,
    tokens: usize,
    budget: usize,
    /// The shortest prefix that is reused.
    worth: usize,
    clock: u64,
}

/// A cached row that a prompt begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    entry: usize,
    /// The number of prompt tokens that need no computation. At least one prompt token remains.
    pub(super) length: usize,
}

impl PrefixCache {
    /// Creates a cache with room for `budget` tokens. See [`worth`].
    pub(super) fn new(budget: usize, worth: usize) -> Self {
        Self {
            entries: Vec::new(),
            tokens: 0,
            budget,
            worth,
            clock: 0,
        }
    }

    /// Returns true if the cache would keep a row of `tokens` tokens.
    pub(super) fn takes(&self, tokens: usize) -> bool {
        (self.worth..=self.budget).contains(&tokens)
    }

    /// Finds the longest cached prefix of a prompt, if it saves work.
    pub(super) fn find(&self, prompt: &[u32]) -> Option<Hit> {
        let most = prompt.len().saturating_sub(1);
        let mut best: Option<Hit> = None;
        for (entry, Entry { ids, .. }) in self.entries.iter().enumerate() {
            let least = best.map_or(self.worth, |hit| hit.length + 1);
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

    /// The number of prompt tokens that must be computed.
    pub(super) fn cost(&self, prompt: &[u32]) -> usize {
        prompt.len() - self.find(prompt).map_or(0, |hit| hit.length)
    }

    /// Returns the keys and values of a hit, and the oldest weights that computed any of them. The
    /// cache must not have changed since the hit was found.
    pub(super) fn take(&mut self, hit: Hit) -> Option<(&RowKv, WeightVersion)> {
        self.clock += 1;
        let entry = self.entries.get_mut(hit.entry)?;
        entry.used = self.clock;
        Some((&entry.kv, entry.oldest))
    }

    /// Evicts rows until a row with these ids fits. Rows that are prefixes of it are evicted too.
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

    /// Evicts every row in which other weights than `version` computed any part.
    pub(super) fn keep_of(&mut self, version: WeightVersion) {
        self.drop_where(|entry| entry.oldest != version);
    }

    /// Evicts every row.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.tokens = 0;
    }

    /// Evicts every row and keeps none from now on. Changes nothing if no row is kept. Returns the
    /// number of tokens evicted.
    pub(super) fn give_up(&mut self) -> usize {
        let tokens = self.tokens;
        if tokens > 0 {
            self.clear();
            self.budget = 0;
        }
        tokens
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

    fn cache(budget: usize, rows: &[Vec<u32>]) -> PrefixCache {
        let mut cache = PrefixCache::new(budget, WORTH);
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
    fn a_gpu_reuses_long_prefixes_only_and_shorter_ones_of_large_models() {
        let gpu = |kind, layers, parameters| worth((Device::Cuda(0), kind), layers, parameters);
        let half = Kind::BFloat16;
        assert_eq!((gpu(half, 28, 596_000_000), gpu(half, 36, 8_190_000_000)), (939, 87));
        assert_eq!(
            (gpu(Kind::Float, 28, 596_000_000), gpu(half, 1, usize::MAX)),
            (117, WORTH)
        );
        assert_eq!(worth((Device::Cpu, Kind::Float), 28, 1), WORTH);
    }

    #[test]
    fn an_empty_cache_gives_up_nothing() {
        let mut cache = cache(1000, &[]);
        assert_eq!(cache.give_up(), 0);
        put(&mut cache, &row(1, 100));
        assert_eq!(cache.give_up(), 100);
        put(&mut cache, &row(1, 100));
        assert_eq!(length(&cache, &row(1, 100)), None, "no row is kept from then on");
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

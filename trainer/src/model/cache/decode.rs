//! Generation: computes prompts once, then one token per row with the cache.

use tch::Tensor;

use super::attention::Way;
use super::kv_cache::KvCache;
use super::prefixes::Shared;
use super::row_kv::Prefilled;
use super::step_plan::StepPlan;
use crate::model::error::Result;
use crate::model::forward::{Decoder, RopeRows, RowBatch, to_device};

impl Decoder {
    /// Computes prompts. Returns the logits after the last token of each, `[rows, vocab]` in f32.
    /// With `keep`, also returns the keys and values to fill slots from.
    pub(crate) fn prefill(&self, prompts: &RowBatch, keep: bool) -> Result<(Tensor, Prefilled)> {
        let mut kept = Prefilled::new();
        let states = self.run(prompts, |k, v| {
            if keep {
                kept.push([k.shallow_clone(), v.shallow_clone()]);
            }
            Ok(())
        })?;
        let last = states.f_index_select(0, &prompts.last()?)?;
        Ok((self.next_logits(&last)?, kept))
    }

    /// Appends `ids[i]` to row `i` and returns the logits after it, `[rows, vocab]` in f32. Row `i`
    /// has `lengths[i]` tokens: first those of `shared[i]`, then those in its slot. The cache must
    /// have room for one more.
    pub(crate) fn decode(
        &self,
        ids: &[i64],
        lengths: &[i64],
        shared: &[Option<Shared>],
        cache: &KvCache,
    ) -> Result<Tensor> {
        self.decode_by(Way::of(self.device()), ids, lengths, shared, cache)
    }

    fn decode_by(
        &self,
        way: Way,
        ids: &[i64],
        lengths: &[i64],
        shared: &[Option<Shared>],
        cache: &KvCache,
    ) -> Result<Tensor> {
        let device = self.device();
        let (ids, positions) = (to_device(ids, device)?, to_device(lengths, device)?);
        let end = lengths.iter().max().map_or(0, |&n| n as usize) + 1;
        let rope = self.rope.rows(&positions, end)?;
        let before = shared
            .iter()
            .map(|shared| shared.map_or(0, |shared| shared.length as i64));
        let own: Vec<i64> = lengths.iter().zip(before).map(|(all, before)| all - before).collect();
        self.step(&ids, &rope, &StepPlan::new(&own, shared, cache, way)?, cache)
    }

    /// Appends a token to each row of a plan and returns the logits after it. Waits for nothing on
    /// a GPU, so the kernels of a ragged plan can be recorded.
    pub(super) fn step(&self, ids: &Tensor, rope: &RopeRows, plan: &StepPlan, cache: &KvCache) -> Result<Tensor> {
        let mut x = Tensor::f_embedding(&self.embedding, ids, -1, false, false)?;
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&self.shape, &x, rope, |heads| plan.attend(cache, index, &heads))?;
        }
        self.next_logits(&x)
    }
}

#[cfg(test)]
mod tests {
    use super::super::buckets::Reading;
    use super::*;
    use crate::model::shape::{ModelShape, tiny};
    use crate::model::weights::{Init, Weights};
    use tch::{Device, Kind};

    fn weights(shape: &ModelShape) -> Weights {
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.2,
        };
        Weights::random(shape, init, 11).unwrap()
    }

    /// The largest distance of log-probs over the last `steps`, between decoding with the cache and
    /// the whole row at once.
    fn gap(shape: &ModelShape, rows: &[Vec<u32>], steps: usize, reading: Reading, buckets: usize) -> f64 {
        let weights = weights(shape);
        let decoder = Decoder::new(shape, &weights).unwrap();
        let starts: Vec<&[u32]> = rows.iter().map(|row| &row[..row.len() - steps]).collect();
        let (mut logits, kept) = decoder
            .prefill(&RowBatch::new(shape, &starts, Device::Cpu).unwrap(), true)
            .unwrap();
        let mut cache = KvCache::new(shape, Device::Cpu, Kind::Float).unwrap();
        cache.reading = reading;
        cache.buckets = rows
            .chunks(rows.len().div_ceil(buckets.max(1)))
            .map(<[_]>::len)
            .collect();
        let mut lengths: Vec<i64> = starts.iter().map(|row| row.len() as i64).collect();
        cache
            .reserve(rows.len(), starts.iter().map(|row| row.len()).max().unwrap(), 0)
            .unwrap();
        cache
            .admit(0, &kept, &Tensor::arange(rows.len() as i64, (Kind::Int64, Device::Cpu)))
            .unwrap();
        let mut worst = 0f64;
        for _ in 0..steps {
            let so_far: Vec<&[u32]> = rows.iter().zip(&lengths).map(|(row, &n)| &row[..n as usize]).collect();
            let batch = RowBatch::new(shape, &so_far, Device::Cpu).unwrap();
            let hidden = decoder.hidden(&batch).unwrap().index_select(0, &batch.last().unwrap());
            let wanted = decoder.logits(&hidden).unwrap().log_softmax(-1, Kind::Float);
            // In f32, the rounding of a log-prob of -30 is 30 times that of one near 1.
            let gap = (logits.log_softmax(-1, Kind::Float) - &wanted).abs() / wanted.abs().clamp_min(1.0);
            worst = worst.max(gap.max().double_value(&[]));
            let ids: Vec<i64> = rows
                .iter()
                .zip(&lengths)
                .map(|(row, &n)| i64::from(row[n as usize]))
                .collect();
            let longest = lengths.iter().max().copied().unwrap() as usize + 1;
            cache.reserve(rows.len(), longest, rows.len()).unwrap();
            logits = decoder.decode(&ids, &lengths, &vec![None; rows.len()], &cache).unwrap();
            lengths.iter_mut().for_each(|n| *n += 1);
        }
        worst
    }

    fn row(len: usize, salt: usize) -> Vec<u32> {
        (0..len).map(|i| ((i * 7 + salt * 13 + i * i) % 40) as u32).collect()
    }

    const READINGS: [Reading; 3] = [Reading::Own, Reading::BUCKETS, Reading::Ragged];

    #[test]
    fn decoding_is_the_full_forward_however_keys_are_read() {
        decoding_is_the_full_forward(Reading::Own, 0);
        decoding_is_the_full_forward(Reading::Ragged, 0);
        // In one bucket, and in several.
        for buckets in [1, 2, 4] {
            decoding_is_the_full_forward(Reading::BUCKETS, buckets);
        }
    }

    fn decoding_is_the_full_forward(reading: Reading, buckets: usize) {
        let _guard = tch::no_grad_guard();
        for (kv_heads, tied) in [(1, true), (2, false), (4, false)] {
            let shape = ModelShape {
                kv_heads,
                tied,
                max_context: 1024,
                ..tiny()
            };
            let equal: Vec<_> = (0..3).map(|i| row(30, i)).collect();
            let worst = gap(&shape, &equal, 20, reading, buckets);
            assert!(worst < 1e-5, "{reading:?} {buckets}, rows of one length: {worst}");
            // Grows beyond the first 64 places too.
            let ragged: Vec<_> = [90, 40, 62, 75].iter().enumerate().map(|(i, &n)| row(n, i)).collect();
            let worst = gap(&shape, &ragged, 30, reading, buckets);
            assert!(worst < 1e-5, "{reading:?} {buckets}, ragged rows: {worst}");
            // Each row sees its own tokens only, whatever the lengths of others.
            let apart: Vec<_> = [700, 40, 62, 44].iter().enumerate().map(|(i, &n)| row(n, i)).collect();
            let worst = gap(&shape, &apart, 30, reading, buckets);
            assert!(
                worst < 1e-5,
                "{reading:?} {buckets}, one row much longer than the others: {worst}"
            );
        }
    }

    #[test]
    fn a_moved_row_goes_on_as_itself() {
        let _guard = tch::no_grad_guard();
        let shape = tiny();
        let weights = weights(&shape);
        let decoder = Decoder::new(&shape, &weights).unwrap();
        let batch = RowBatch::new(&shape, &[row(5, 0), row(9, 1)], Device::Cpu).unwrap();
        let (_, kept) = decoder.prefill(&batch, true).unwrap();
        let mut cache = KvCache::new(&shape, Device::Cpu, Kind::Float).unwrap();
        cache.reserve(2, 10, 0).unwrap();
        cache.admit(0, &kept, &Tensor::from_slice(&[0i64, 1])).unwrap();
        let wanted = decoder.decode(&[3], &[5], &[None], &cache).unwrap();
        cache.admit(0, &kept, &Tensor::from_slice(&[1i64, 0])).unwrap();
        cache.move_row(1, 0, 5).unwrap();
        let moved = decoder.decode(&[3], &[5], &[None], &cache).unwrap();
        assert_eq!((wanted - moved).abs().max().double_value(&[]), 0.0);
    }

    #[test]
    fn exchanged_rows_go_on_as_themselves() {
        let _guard = tch::no_grad_guard();
        let shape = tiny();
        let weights = weights(&shape);
        let decoder = Decoder::new(&shape, &weights).unwrap();
        let batch = RowBatch::new(&shape, &[row(5, 0), row(90, 1)], Device::Cpu).unwrap();
        let (_, kept) = decoder.prefill(&batch, true).unwrap();
        for reading in READINGS {
            let mut cache = KvCache::new(&shape, Device::Cpu, Kind::Float).unwrap();
            cache.reading = reading;
            cache.reserve(2, 100, 0).unwrap();
            cache.admit(0, &kept, &Tensor::from_slice(&[0i64, 1])).unwrap();
            let wanted = decoder.decode(&[3, 4], &[5, 90], &[None; 2], &cache).unwrap();
            // The slots of rows with shared prompts are empty.
            cache.exchange(0, 1, 0).unwrap();
            // All of the room.
            cache.exchange(0, 1, 128).unwrap();
            let got = decoder.decode(&[4, 3], &[90, 5], &[None; 2], &cache).unwrap();
            let gap = (wanted.flip([0]) - got).abs().max().double_value(&[]);
            assert!(gap < 1e-5, "{reading:?}: {gap}");
        }
    }

    #[test]
    fn buckets_of_other_rows_are_refused() {
        let _guard = tch::no_grad_guard();
        let shape = tiny();
        let weights = weights(&shape);
        let decoder = Decoder::new(&shape, &weights).unwrap();
        let mut cache = KvCache::new(&shape, Device::Cpu, Kind::Float).unwrap();
        (cache.reading, cache.buckets) = (Reading::BUCKETS, vec![2, 2]);
        cache.reserve(3, 100, 0).unwrap();
        assert!(decoder.decode(&[3, 4, 5], &[5, 9, 2], &[None; 3], &cache).is_err());
    }

    /// Log-probs in bf16 against those of the same, rounded weights in f32. A wrong key must differ
    /// by more than rounding.
    #[test]
    fn in_bf16_rows_read_their_own_keys_and_shared_ones() {
        let _guard = tch::no_grad_guard();
        let shape = tiny();
        let half = weights(&shape).copied(Device::Cpu, Kind::BFloat16).unwrap();
        let full = half.copied(Device::Cpu, Kind::Float).unwrap();
        let prompts = [row(50, 0), row(90, 1), row(41, 2)];
        let of = [0i64, 1, 0, 2, 0, 0];
        let lengths = of.map(|prompt| prompts[prompt as usize].len() as i64);
        let ids = [3, 4, 9, 7, 11, 2];
        let logits = |weights: &Weights, reading: Reading, share: bool, cut: i64| {
            let decoder = Decoder::new(&shape, weights).unwrap();
            let batch = RowBatch::new(&shape, &prompts, Device::Cpu).unwrap();
            let (_, kept) = decoder.prefill(&batch, true).unwrap();
            let mut cache = KvCache::new(&shape, Device::Cpu, weights.kind()).unwrap();
            (cache.reading, cache.buckets) = (reading, vec![2, 4]);
            cache.reserve(of.len(), 100, 0).unwrap();
            cache.admit(0, &kept, &Tensor::from_slice(&of)).unwrap();
            let first = share.then(|| cache.prefixes.keep(&kept, 0, 50, 4).unwrap());
            let shared = of.map(|prompt| first.filter(|_| prompt == 0));
            let lengths = lengths.map(|length| length - cut);
            let found = decoder.decode(&ids, &lengths, &shared, &cache).unwrap();
            found.log_softmax(-1, Kind::Float)
        };
        let far = |a: &Tensor, b: &Tensor| (a - b).abs().max().double_value(&[]);
        let wanted = logits(&full, Reading::BUCKETS, false, 0);
        let missed = far(&wanted, &logits(&full, Reading::BUCKETS, false, 1));
        for (reading, share) in READINGS
            .into_iter()
            .flat_map(|reading| [(reading, false), (reading, true)])
        {
            let gap = far(&wanted, &logits(&half, reading, share, 0));
            assert!(
                gap < 0.15 && 2.0 * gap < missed,
                "{reading:?}, shared {share}: {gap}, one key fewer: {missed}"
            );
        }
    }

    /// A GPU's way, here on a CPU: a group's prompt is attended once for all its rows, and compared
    /// with a copy of it in each slot.
    #[test]
    fn a_shared_prompt_is_a_copied_one_by_plain_products_too() {
        let _guard = tch::no_grad_guard();
        let shape = tiny();
        let weights = weights(&shape);
        let decoder = Decoder::new(&shape, &weights).unwrap();
        let prompts = [row(60, 0), row(83, 1), row(9, 2)];
        let batch = RowBatch::new(&shape, &prompts, Device::Cpu).unwrap();
        let (_, kept) = decoder.prefill(&batch, true).unwrap();
        // The second prompt has one row, which shares it with no other row.
        let of = [0usize, 0, 1, 0, 2, 2, 0];
        let cache = || {
            let mut cache = KvCache::new(&shape, Device::Cpu, Kind::Float).unwrap();
            cache.reserve(of.len(), 100, 0).unwrap();
            cache
        };
        let (mut copied, mut once) = (cache(), cache());
        let every = of.map(|prompt| prompt as i64);
        copied.admit(0, &kept, &Tensor::from_slice(&every)).unwrap();
        once.admit(2, &kept, &Tensor::from_slice(&[1i64])).unwrap();
        let first = once.prefixes.keep(&kept, 0, prompts[0].len(), 4).unwrap();
        let third = once.prefixes.keep(&kept, 2, prompts[2].len(), 2).unwrap();
        once.reading = Reading::BUCKETS;
        once.buckets = vec![2, 1, 4];
        let shared = of.map(|prompt| [Some(first), None, Some(third)][prompt]);
        let mut lengths = of.map(|prompt| prompts[prompt].len() as i64);
        let mut worst = 0f64;
        for step in 0..8 {
            let ids: Vec<i64> = (0..of.len() as i64).map(|row| (5 * row + 3 * step + 2) % 40).collect();
            let wanted = decoder.decode(&ids, &lengths, &[None; 7], &copied).unwrap();
            let got = decoder.decode_by(Way::Plain, &ids, &lengths, &shared, &once).unwrap();
            let [wanted, got] = [wanted, got].map(|logits| logits.log_softmax(-1, Kind::Float));
            let gap = (got - &wanted).abs() / wanted.abs().clamp_min(1.0);
            worst = worst.max(gap.max().double_value(&[]));
            lengths.iter_mut().for_each(|n| *n += 1);
        }
        assert!(worst < 1e-5, "{worst}");
    }
}

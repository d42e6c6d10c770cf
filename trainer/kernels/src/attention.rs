//! Attention of one token per row over its own keys, for rows of any lengths.

use half::bf16;
use pulp::{Arch, Simd, WithSimd};

use crate::exp::exp;

/// The heads of a model.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub kv_heads: usize,
    /// Query heads per key head.
    pub group: usize,
    pub head_dim: usize,
}

/// Keys and values of rows, `[rows, kv_heads, room, head_dim]` each.
#[derive(Debug, Clone, Copy)]
pub struct Cache<'a, E> {
    pub keys: &'a [E],
    pub values: &'a [E],
    pub room: usize,
}

/// The type of stored keys and values. Sums are always f32.
pub trait Element: Copy {
    /// The number of keys that all queries of a group process before the next keys.
    fn near(head_dim: usize) -> usize;

    /// The numbers in f32: unchanged, or written to `wide`, which is resized to their length.
    fn widened<'a>(numbers: &'a [Self], wide: &'a mut Vec<f32>) -> &'a [f32];

    /// Computes the work. A generic function would be compiled in the crate of its caller, at that
    /// crate's level of optimisation.
    fn compute(work: Attend<'_, Self>);
}

impl Element for f32 {
    /// They stay in the near caches.
    fn near(_: usize) -> usize {
        128
    }

    #[inline(always)]
    fn widened<'a>(numbers: &'a [Self], _: &'a mut Vec<f32>) -> &'a [f32] {
        numbers
    }

    #[inline(never)]
    fn compute(work: Attend<'_, Self>) {
        work.on(Arch::new());
    }
}

impl Element for bf16 {
    /// In f32 they stay in the nearest cache: 16 KiB, a multiple of [`ABREAST`].
    fn near(head_dim: usize) -> usize {
        (4096 / head_dim.max(1)).next_multiple_of(ABREAST).max(ABREAST)
    }

    #[inline(always)]
    fn widened<'a>(numbers: &'a [Self], wide: &'a mut Vec<f32>) -> &'a [f32] {
        wide.resize(numbers.len(), 0.0);
        for (wide, number) in wide.iter_mut().zip(numbers) {
            *wide = f32::from_bits(u32::from(number.to_bits()) << 16);
        }
        wide
    }

    #[inline(never)]
    fn compute(work: Attend<'_, Self>) {
        work.on(Arch::new());
    }
}

/// Computes `softmax(q K^T / sqrt(head_dim)) V`: row `i` over the first `lengths[i]` of its keys.
/// `q` and `out` are `[rows, kv_heads, group, head_dim]`. `lse` is `[rows, kv_heads, group]` and
/// receives the log-sum-exp of each query's logits. Both outputs are written whole. A row's numbers
/// do not depend on the other rows.
///
/// # Panics
/// If a slice is too short, or a length is 0 or exceeds the room.
pub fn attend<E: Element>(
    shape: Shape,
    q: &[f32],
    cache: Cache<'_, E>,
    lengths: &[usize],
    out: &mut [f32],
    lse: &mut [f32],
) {
    E::compute(Attend {
        shape,
        q,
        cache,
        lengths,
        out,
        lse,
    });
}

/// The arguments of [`attend`].
pub struct Attend<'a, E> {
    shape: Shape,
    q: &'a [f32],
    cache: Cache<'a, E>,
    lengths: &'a [usize],
    out: &'a mut [f32],
    lse: &'a mut [f32],
}

impl<E: Element> Attend<'_, E> {
    fn on(self, arch: Arch) {
        let heads = self.shape.kv_heads * self.shape.group;
        let rows = self.lengths.len();
        assert_eq!(
            (self.q.len(), self.out.len(), self.lse.len()),
            (rows * heads * self.shape.head_dim, self.q.len(), rows * heads),
            "queries, results and rows"
        );
        let room = self.cache.room;
        assert!(
            self.lengths.iter().all(|length| (1..=room).contains(length)),
            "keys of a row: 1 to {room}"
        );
        arch.dispatch(self);
    }
}

impl<E: Element> WithSimd for Attend<'_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Shape {
            kv_heads,
            group,
            head_dim,
        } = self.shape;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let longest = self.lengths.iter().copied().max().unwrap_or(0);
        let (mut scores, mut totals) = (vec![0.0; longest * group], vec![0.0; group]);
        let (near, mut wide) = (E::near(head_dim), Vec::new());
        let queries = self.q.chunks_exact(group * head_dim);
        let results = self.out.chunks_exact_mut(group * head_dim);
        let sums = self.lse.chunks_exact_mut(group);
        for (head, ((q, out), lse)) in queries.zip(results).zip(sums).enumerate() {
            let length = self.lengths[head / kv_heads];
            let start = head * self.cache.room * head_dim;
            let own = start..start + length * head_dim;
            let (keys, values) = (&self.cache.keys[own.clone()], &self.cache.values[own]);
            let scores = &mut scores[..length * group];
            for (block, keys) in keys.chunks(near * head_dim).enumerate() {
                let these = block * near..block * near + keys.len() / head_dim;
                let keys = E::widened(keys, &mut wide);
                for (q, scores) in q.chunks_exact(head_dim).zip(scores.chunks_exact_mut(length)) {
                    score(simd, q, keys, &mut scores[these.clone()], scale);
                }
            }
            for ((scores, lse), total) in scores.chunks_exact_mut(length).zip(lse).zip(&mut totals) {
                let (largest, sum) = weigh(simd, scores);
                *lse = largest + sum.ln();
                *total = sum;
            }
            out.fill(0.0);
            for (block, values) in values.chunks(near * head_dim).enumerate() {
                let these = block * near..block * near + values.len() / head_dim;
                let values = E::widened(values, &mut wide);
                for (scores, out) in scores.chunks_exact(length).zip(out.chunks_exact_mut(head_dim)) {
                    mix(simd, &scores[these.clone()], values, out);
                }
            }
            for (total, out) in totals.iter().zip(out.chunks_exact_mut(head_dim)) {
                let scale = 1.0 / total;
                for out in out {
                    *out *= scale;
                }
            }
        }
    }
}

/// The number of keys that are processed together, so that their sums do not wait for each other.
const ABREAST: usize = 4;

/// Computes `scores[j] = scale * q . keys[j]`.
#[inline(always)]
fn score<S: Simd>(simd: S, q: &[f32], keys: &[f32], scores: &mut [f32], scale: f32) {
    match (q.len() / S::F32_LANES, q.len() % S::F32_LANES) {
        (1, 0) => score_of::<S, 1>(simd, q, keys, scores, scale),
        (2, 0) => score_of::<S, 2>(simd, q, keys, scores, scale),
        (3, 0) => score_of::<S, 3>(simd, q, keys, scores, scale),
        (4, 0) => score_of::<S, 4>(simd, q, keys, scores, scale),
        (5, 0) => score_of::<S, 5>(simd, q, keys, scores, scale),
        (6, 0) => score_of::<S, 6>(simd, q, keys, scores, scale),
        (8, 0) => score_of::<S, 8>(simd, q, keys, scores, scale),
        (12, 0) => score_of::<S, 12>(simd, q, keys, scores, scale),
        (16, 0) => score_of::<S, 16>(simd, q, keys, scores, scale),
        _ => {
            for (score, key) in scores.iter_mut().zip(keys.chunks_exact(q.len())) {
                *score = scale * dot(simd, q, key);
            }
        }
    }
}

/// The same as [`score`], for `W` whole vectors.
#[inline(always)]
fn score_of<S: Simd, const W: usize>(simd: S, q: &[f32], keys: &[f32], scores: &mut [f32], scale: f32) {
    let ((q, _), (keys, _)) = (S::as_simd_f32s(q), S::as_simd_f32s(keys));
    let ([q], (keys, _)) = (q.as_chunks::<W>().0, keys.as_chunks::<W>()) else {
        return;
    };
    let (fours, rest) = scores.as_chunks_mut::<ABREAST>();
    let (before, behind) = keys.split_at(fours.len() * ABREAST);
    for (scores, keys) in fours.iter_mut().zip(before.as_chunks::<ABREAST>().0) {
        let mut sums = [simd.splat_f32s(0.0); ABREAST];
        for i in 0..ABREAST {
            for j in 0..W {
                sums[i] = simd.mul_add_e_f32s(q[j], keys[i][j], sums[i]);
            }
        }
        for i in 0..ABREAST {
            scores[i] = scale * simd.reduce_sum_f32s(sums[i]);
        }
    }
    for (score, key) in rest.iter_mut().zip(behind) {
        let mut sum = simd.splat_f32s(0.0);
        for j in 0..W {
            sum = simd.mul_add_e_f32s(q[j], key[j], sum);
        }
        *score = scale * simd.reduce_sum_f32s(sum);
    }
}

#[inline(always)]
fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, last_a), (b, last_b)) = (S::as_simd_f32s(a), S::as_simd_f32s(b));
    let mut sum = simd.splat_f32s(0.0);
    for (a, b) in a.iter().zip(b) {
        sum = simd.mul_add_e_f32s(*a, *b, sum);
    }
    if !last_a.is_empty() {
        sum = simd.mul_add_e_f32s(simd.partial_load_f32s(last_a), simd.partial_load_f32s(last_b), sum);
    }
    simd.reduce_sum_f32s(sum)
}

/// Turns scores into `exp(score - largest)`. Returns the largest score and the sum.
#[inline(always)]
fn weigh<S: Simd>(simd: S, scores: &mut [f32]) -> (f32, f32) {
    let (vectors, rest) = S::as_simd_f32s(scores);
    let mut most = simd.splat_f32s(f32::NEG_INFINITY);
    for vector in vectors {
        most = simd.max_f32s(most, *vector);
    }
    let mut largest = simd.reduce_max_f32s(most);
    for score in rest {
        largest = largest.max(*score);
    }
    for score in scores.iter_mut() {
        *score = exp(*score - largest);
    }
    let (vectors, rest) = S::as_simd_f32s(scores);
    let mut sums = simd.splat_f32s(0.0);
    for vector in vectors {
        sums = simd.add_f32s(sums, *vector);
    }
    let mut sum = simd.reduce_sum_f32s(sums);
    for score in rest {
        sum += score;
    }
    (largest, sum)
}

/// Computes `out += sum_j weights[j] values[j]`.
#[inline(always)]
fn mix<S: Simd>(simd: S, weights: &[f32], values: &[f32], out: &mut [f32]) {
    let dim = out.len();
    let mut at = 0;
    while at < dim {
        at += match (dim - at) / S::F32_LANES {
            0 => {
                mix_last(simd, weights, values, out, at);
                dim - at
            }
            1 => mix_some::<S, 1>(simd, weights, values, out, at),
            2 | 3 => mix_some::<S, 2>(simd, weights, values, out, at),
            _ => mix_some::<S, ABREAST>(simd, weights, values, out, at),
        };
    }
}

/// The same as [`mix`], for the `W` vectors from element `at` on. Returns the number of elements
/// done.
#[inline(always)]
fn mix_some<S: Simd, const W: usize>(simd: S, weights: &[f32], values: &[f32], out: &mut [f32], at: usize) -> usize {
    let (dim, count) = (out.len(), W * S::F32_LANES);
    let (out, _) = S::as_mut_simd_f32s(&mut out[at..at + count]);
    let ([out], _) = out.as_chunks_mut::<W>() else {
        return count;
    };
    let mut sums = *out;
    for (weight, value) in weights.iter().zip(values.chunks_exact(dim)) {
        let weight = simd.splat_f32s(*weight);
        let (value, _) = S::as_simd_f32s(&value[at..at + count]);
        if let ([value], _) = value.as_chunks::<W>() {
            for i in 0..W {
                sums[i] = simd.mul_add_e_f32s(weight, value[i], sums[i]);
            }
        }
    }
    *out = sums;
    count
}

/// The same as [`mix`], for the elements from `at` on, fewer than a vector has.
#[inline(always)]
fn mix_last<S: Simd>(simd: S, weights: &[f32], values: &[f32], out: &mut [f32], at: usize) {
    let mut sum = simd.partial_load_f32s(&out[at..]);
    for (weight, value) in weights.iter().zip(values.chunks_exact(out.len())) {
        let value = simd.partial_load_f32s(&value[at..]);
        sum = simd.mul_add_e_f32s(simd.splat_f32s(*weight), value, sum);
    }
    simd.partial_store_f32s(&mut out[at..], sum);
}

#[cfg(test)]
mod tests;

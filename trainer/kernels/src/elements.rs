//! The steps between a layer's products, each in one pass: norms, the rotation of heads, the gate.

use pulp::{Arch, Simd, WithSimd};

use crate::exp::exp;

/// RMSNorm (Zhang and Sennrich, 2019) of rows as wide as `weight`:
/// `x / sqrt(mean(x^2) + eps) * weight`.
///
/// # Panics
/// If `out` is not as long as `x`, or they are not whole rows.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert_eq!(
        (x.len(), x.len() % weight.len()),
        (out.len(), 0),
        "rows of {}",
        weight.len()
    );
    Arch::new().dispatch(Norm { x, weight, eps, out });
}

struct Norm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl WithSimd for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.x.chunks_exact(self.weight.len());
        for (x, out) in rows.zip(self.out.chunks_exact_mut(self.weight.len())) {
            let scale = inverse_rms(simd, x, self.eps);
            for ((out, x), weight) in out.iter_mut().zip(x).zip(self.weight) {
                *out = x * scale * weight;
            }
        }
    }
}

#[inline(always)]
fn inverse_rms<S: Simd>(simd: S, x: &[f32], eps: f32) -> f32 {
    let (vectors, rest) = S::as_simd_f32s(x);
    let mut sums = simd.splat_f32s(0.0);
    for vector in vectors {
        sums = simd.mul_add_e_f32s(*vector, *vector, sums);
    }
    let mut sum = simd.reduce_sum_f32s(sums);
    for x in rest {
        sum += x * x;
    }
    1.0 / (sum / x.len() as f32 + eps).sqrt()
}

/// The gate of SwiGLU (Shazeer, arXiv:2002.05202): `silu(a) b`. Rows hold `a` and then `b`,
/// `[rows, 2, width]`; `out` is `[rows, width]`.
///
/// # Panics
/// If `both` is not twice as long as `out`, or they are not whole rows.
pub fn gate(both: &[f32], width: usize, out: &mut [f32]) {
    assert_eq!((both.len(), out.len() % width), (2 * out.len(), 0), "rows of {width}");
    Arch::new().dispatch(Gate { both, width, out });
}

struct Gate<'a> {
    both: &'a [f32],
    width: usize,
    out: &'a mut [f32],
}

impl WithSimd for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let rows = self.both.chunks_exact(2 * self.width);
        for (both, out) in rows.zip(self.out.chunks_exact_mut(self.width)) {
            let (a, b) = both.split_at(self.width);
            for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
                *out = silu(*a) * b;
            }
        }
    }
}

/// `x / (1 + e^-x)`, computed with an exponent of at most 0.
#[inline(always)]
fn silu(x: f32) -> f32 {
    let small = exp(-x.abs());
    let part = if x >= 0.0 { x } else { x * small };
    part / (1.0 + small)
}

/// The parameters that turn a token's projections into heads.
#[derive(Debug, Clone, Copy)]
pub struct Heads<'a> {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Weights of the norms of a query and of a key, and their epsilon, in models with head norms.
    pub norms: Option<([&'a [f32]; 2], f32)>,
    /// One row per token, `[tokens, head_dim]`. Sines are negated in the first half, as
    /// `x cos + roll(x, head_dim / 2) sin` requires.
    pub cos: &'a [f32],
    pub sin: &'a [f32],
}

/// Norms and rotates heads (rotary embedding, Su et al., arXiv:2104.09864). `all` is
/// `[tokens, heads + 2 kv_heads, head_dim]`: queries, keys, then values. `q` is
/// `[tokens, heads, head_dim]`, `k` and `v` are `[tokens, kv_heads, head_dim]`.
///
/// # Panics
/// If a slice has another size, or `head_dim` is odd.
pub fn turn_heads(of: Heads<'_>, all: &[f32], [q, k, v]: [&mut [f32]; 3]) {
    let tokens = all.len() / ((of.heads + 2 * of.kv_heads) * of.head_dim);
    let (queries, keys) = (tokens * of.heads * of.head_dim, tokens * of.kv_heads * of.head_dim);
    assert_eq!(
        (q.len(), k.len(), v.len()),
        (queries, keys, keys),
        "heads of {tokens} tokens"
    );
    assert_eq!(all.len(), queries + 2 * keys, "heads of {tokens} tokens");
    let tables = (of.cos.len(), of.sin.len(), of.head_dim % 2);
    assert_eq!(
        tables,
        (tokens * of.head_dim, tokens * of.head_dim, 0),
        "angles of {tokens} tokens"
    );
    Arch::new().dispatch(Turn { of, all, q, k, v });
}

struct Turn<'a> {
    of: Heads<'a>,
    all: &'a [f32],
    q: &'a mut [f32],
    k: &'a mut [f32],
    v: &'a mut [f32],
}

impl WithSimd for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Heads {
            heads,
            kv_heads,
            head_dim,
            norms,
            cos,
            sin,
        } = self.of;
        let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
        let of_q = norms.map(|([norm, _], eps)| (norm, eps));
        let of_k = norms.map(|([_, norm], eps)| (norm, eps));
        let angles = cos.chunks_exact(head_dim).zip(sin.chunks_exact(head_dim));
        let tokens = self.all.chunks_exact(queries + 2 * keys).zip(angles);
        let results = self.q.chunks_exact_mut(queries).zip(self.k.chunks_exact_mut(keys));
        for (((all, (cos, sin)), (q, k)), v) in tokens.zip(results).zip(self.v.chunks_exact_mut(keys)) {
            let (all_q, rest) = all.split_at(queries);
            let (all_k, all_v) = rest.split_at(keys);
            for (from, to) in all_q.chunks_exact(head_dim).zip(q.chunks_exact_mut(head_dim)) {
                turn(simd, from, of_q, cos, sin, to);
            }
            for (from, to) in all_k.chunks_exact(head_dim).zip(k.chunks_exact_mut(head_dim)) {
                turn(simd, from, of_k, cos, sin, to);
            }
            v.copy_from_slice(all_v);
        }
    }
}

/// One head.
#[inline(always)]
fn turn<S: Simd>(simd: S, from: &[f32], norm: Option<(&[f32], f32)>, cos: &[f32], sin: &[f32], to: &mut [f32]) {
    to.copy_from_slice(from);
    if let Some((weight, eps)) = norm {
        let scale = inverse_rms(simd, from, eps);
        for (to, weight) in to.iter_mut().zip(weight) {
            *to = *to * scale * weight;
        }
    }
    let half = to.len() / 2;
    let (low, high) = to.split_at_mut(half);
    let ((cos_low, cos_high), (sin_low, sin_high)) = (cos.split_at(half), sin.split_at(half));
    let low = low.iter_mut().zip(cos_low).zip(sin_low);
    let high = high.iter_mut().zip(cos_high).zip(sin_high);
    for (((low, cos_low), sin_low), ((high, cos_high), sin_high)) in low.zip(high) {
        let (a, b) = (*low, *high);
        *low = a * cos_low + b * sin_low;
        *high = b * cos_high + a * sin_high;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, salt: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.73 + salt).sin() * 1.7).collect()
    }

    fn near(got: &[f32], wanted: impl IntoIterator<Item = f64>) {
        for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
            assert!((f64::from(*got) - wanted).abs() < 2e-6, "{i}: {got} for {wanted}");
        }
    }

    fn normed(x: &[f32], weight: &[f32], eps: f64) -> Vec<f64> {
        let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + eps).sqrt();
        x.iter()
            .zip(weight)
            .map(|(x, weight)| f64::from(*x) * scale * f64::from(*weight))
            .collect()
    }

    #[test]
    fn norms_are_those_of_f64() {
        for width in [1, 7, 16, 40, 256] {
            let (x, weight) = (values(3 * width, 0.2), values(width, 0.9));
            let mut out = vec![f32::NAN; x.len()];
            rms_norm(&x, &weight, 1e-5, &mut out);
            near(&out, x.chunks_exact(width).flat_map(|x| normed(x, &weight, 1e-5)));
        }
    }

    #[test]
    fn gates_are_those_of_f64() {
        let silu = |x: f32| f64::from(x) / (1.0 + (-f64::from(x)).exp());
        for width in [1, 5, 48] {
            let both = values(4 * width, 0.4);
            let mut out = vec![f32::NAN; 2 * width];
            gate(&both, width, &mut out);
            let halves = both.chunks_exact(2 * width).map(|row| row.split_at(width));
            near(
                &out,
                halves
                    .flat_map(|(a, b)| a.iter().zip(b))
                    .map(|(a, b)| silu(*a) * f64::from(*b)),
            );
        }
        let mut out = [0.0; 2];
        gate(&[90.0, -90.0, 1.0, 1.0], 2, &mut out);
        assert_eq!(out, [90.0, 0.0]);
    }

    #[test]
    fn heads_are_normed_and_turned() {
        let (heads, kv_heads, head_dim, tokens) = (4, 2, 6, 3);
        let all = values(tokens * 8 * head_dim, 0.3);
        let (cos, sin) = (values(tokens * head_dim, 0.5), values(tokens * head_dim, 0.7));
        let norms = [values(head_dim, 0.1), values(head_dim, 0.8)];
        for with in [true, false] {
            let (mut q, mut k, mut v) = (
                vec![0.0; tokens * 4 * 6],
                vec![0.0; tokens * 2 * 6],
                vec![0.0; tokens * 2 * 6],
            );
            let of = Heads {
                heads,
                kv_heads,
                head_dim,
                norms: with.then_some(([&norms[0], &norms[1]], 1e-6)),
                cos: &cos,
                sin: &sin,
            };
            turn_heads(of, &all, [&mut q, &mut k, &mut v]);
            for token in 0..tokens {
                for head in 0..8 {
                    let from = &all[(token * 8 + head) * 6..][..6];
                    let one = vec![1.0; 6];
                    let x: Vec<f64> = match head {
                        _ if !with || head > 5 => from.iter().map(|x| f64::from(*x)).collect(),
                        0..4 => normed(from, &norms[0], 1e-6),
                        4..6 => normed(from, &norms[1], 1e-6),
                        _ => normed(from, &one, 0.0),
                    };
                    let angle = |table: &[f32], i: usize| f64::from(table[token * 6 + i]);
                    let turned = |i: usize| x[i] * angle(&cos, i) + x[(i + 3) % 6] * angle(&sin, i);
                    match head {
                        0..4 => near(&q[(token * 4 + head) * 6..][..6], (0..6).map(turned)),
                        4..6 => near(&k[(token * 2 + head - 4) * 6..][..6], (0..6).map(turned)),
                        _ => assert_eq!(&v[(token * 2 + head - 6) * 6..][..6], from),
                    }
                }
            }
        }
    }
}

use super::*;
use proptest::prelude::*;

fn values(count: usize, salt: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.73 + salt).sin() * 1.7).collect()
}

fn halves(count: usize, salt: f32) -> Vec<bf16> {
    values(count, salt).into_iter().map(bf16::from_f32).collect()
}

/// A query over some keys in f64: the result and the log-sum-exp.
fn exact(q: &[f32], keys: &[f32], values: &[f32]) -> (Vec<f64>, f64) {
    let dim = q.len();
    let logit = |key: &[f32]| {
        let dot: f64 = q.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        dot / (dim as f64).sqrt()
    };
    let logits: Vec<f64> = keys.chunks_exact(dim).map(logit).collect();
    let lse = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
    let mut out = vec![0.0; dim];
    for (logit, value) in logits.iter().zip(values.chunks_exact(dim)) {
        for (out, value) in out.iter_mut().zip(value) {
            *out += (logit - lse).exp() * f64::from(*value);
        }
    }
    (out, lse)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn it_is_that_of_f64_and_each_row_is_by_itself(
        lengths in proptest::collection::vec(prop_oneof![1usize..70, 100usize..300], 1..4),
        kv_heads in 1usize..3,
        group in 1usize..4,
        head_dim in prop_oneof![1usize..40, Just(64), Just(128), Just(96)],
    ) {
        let shape = Shape { kv_heads, group, head_dim };
        let (rows, room) = (lengths.len(), 304);
        let q = values(rows * kv_heads * group * head_dim, 0.3);
        let of_all = rows * kv_heads * room * head_dim;
        let (half_keys, half_kept) = (halves(of_all, 0.4), halves(of_all, 0.6));
        let full = |all: &[bf16]| all.iter().map(|half| half.to_f32()).collect::<Vec<f32>>();
        let (keys, kept) = (full(&half_keys), full(&half_kept));
        let cache = Cache { keys: &keys, values: &kept, room };
        for arch in crate::processors::each() {
        let mut out = vec![f32::NAN; q.len()];
        let mut lse = vec![f32::NAN; rows * kv_heads * group];
        Attend { shape, q: &q, cache, lengths: &lengths, out: &mut out, lse: &mut lse }.on(arch);
        for (query, (q, (out, lse))) in q.chunks_exact(head_dim).zip(out.chunks_exact(head_dim).zip(&lse)).enumerate() {
            let start = query / group * room * head_dim;
            let own = start..start + lengths[query / group / kv_heads] * head_dim;
            let (wanted, wanted_lse) = exact(q, &keys[own.clone()], &kept[own]);
            prop_assert!((f64::from(*lse) - wanted_lse).abs() < 1e-5);
            for (got, wanted) in out.iter().zip(wanted) {
                prop_assert!((f64::from(*got) - wanted).abs() < 1e-5, "{got} for {wanted}");
            }
        }
        let (per_q, per_kv) = (kv_heads * group * head_dim, kv_heads * room * head_dim);
        // The same numbers in half the bytes have the same bits, because they are rounded
        // first.
        let (mut narrow, mut narrow_lse) = (vec![f32::NAN; q.len()], vec![f32::NAN; lse.len()]);
        let cache = Cache { keys: &half_keys, values: &half_kept, room };
        Attend { shape, q: &q, cache, lengths: &lengths, out: &mut narrow, lse: &mut narrow_lse }.on(arch);
        prop_assert_eq!((&narrow, &narrow_lse), (&out, &lse));
        for (row, length) in lengths.iter().enumerate() {
            let cache = Cache { keys: &keys[row * per_kv..], values: &kept[row * per_kv..], room };
            let (mut alone, mut sums) = (vec![f32::NAN; per_q], vec![f32::NAN; kv_heads * group]);
            let (q, lengths) = (&q[row * per_q..][..per_q], &[*length]);
            Attend { shape, q, cache, lengths, out: &mut alone, lse: &mut sums }.on(arch);
            prop_assert_eq!(&alone, &out[row * per_q..][..per_q]);
        }
        }
    }
}

#[test]
fn far_logits_do_not_overflow() {
    let shape = Shape {
        kv_heads: 1,
        group: 1,
        head_dim: 4,
    };
    let (keys, kept) = ([300.0; 8], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let cache = Cache {
        keys: &keys,
        values: &kept,
        room: 2,
    };
    let (mut out, mut lse) = ([0.0; 4], [0.0]);
    attend(shape, &[200.0; 4], cache, &[2], &mut out, &mut lse);
    assert_eq!(out, [3.0, 4.0, 5.0, 6.0]);
    assert!((lse[0] - 120_000.7).abs() < 0.1);
}

#[test]
fn one_key_that_is_not_a_number_is_not_passed_over() {
    let shape = Shape {
        kv_heads: 1,
        group: 1,
        head_dim: 2,
    };
    for length in [1, 4, 5, 40] {
        for broken in [0, length - 1] {
            let (mut keys, kept) = (vec![0.5; 2 * length], vec![1.0; 2 * length]);
            keys[2 * broken] = f32::NAN;
            let cache = Cache {
                keys: &keys,
                values: &kept,
                room: length,
            };
            let (mut out, mut lse) = ([0.0; 2], [0.0]);
            attend(shape, &[1.0; 2], cache, &[length], &mut out, &mut lse);
            assert!(
                out[0].is_nan() && out[1].is_nan() && lse[0].is_nan(),
                "{broken} of {length}: {out:?}"
            );
        }
    }
}

#[test]
#[should_panic(expected = "keys of a row: 1 to 2")]
fn more_keys_than_there_are_is_refused() {
    let shape = Shape {
        kv_heads: 1,
        group: 1,
        head_dim: 2,
    };
    let cache = Cache {
        keys: &[0.0; 4],
        values: &[0.0; 4],
        room: 2,
    };
    attend(shape, &[0.0; 2], cache, &[3], &mut [0.0; 2], &mut [0.0]);
}

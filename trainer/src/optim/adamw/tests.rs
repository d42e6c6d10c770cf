//! AdamW: the textbook, the fused kernel, parts of the buffer.

use super::super::blocks::CPU_BLOCK;
use super::*;

const PARAMS: OptimStep = OptimStep {
    lr: 0.01,
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    weight_decay: 0.1,
    clip_norm: 0.0,
};

/// Crosses a border of blocks, and is not a multiple of any register's width.
const COUNT: usize = CPU_BLOCK as usize + 37;

/// Ends that are not multiples of any width.
const DECAY: [Range<i64>; 3] = [10..1000, 1003..40_001, 50_000..COUNT as i64 - 5];

/// The textbook loop in f64.
fn reference(weights: &mut [f64], grads: &[Vec<f64>], params: &OptimStep) {
    let (mut m, mut v) = (vec![0.0; weights.len()], vec![0.0; weights.len()]);
    for (t, grad) in grads.iter().enumerate() {
        for i in 0..weights.len() {
            if DECAY.iter().any(|range| range.contains(&(i as i64))) {
                weights[i] -= params.lr * params.weight_decay * weights[i];
            }
            m[i] = params.beta1 * m[i] + (1.0 - params.beta1) * grad[i];
            v[i] = params.beta2 * v[i] + (1.0 - params.beta2) * grad[i] * grad[i];
            let m_hat = m[i] / (1.0 - params.beta1.powi(t as i32 + 1));
            let v_hat: f64 = v[i] / (1.0 - params.beta2.powi(t as i32 + 1));
            weights[i] -= params.lr * m_hat / (v_hat.sqrt() + params.eps);
        }
    }
}

fn values(salt: usize) -> Vec<f64> {
    let value = |i: usize| (((i * 31 + salt * 17) % 101) as f64 - 50.0) / 50.0;
    (0..COUNT).map(value).collect()
}

fn single(values: &[f64]) -> Tensor {
    Tensor::from_slice(&values.iter().map(|x| *x as f32).collect::<Vec<_>>())
}

fn read(tensor: &Tensor) -> Vec<f32> {
    tensor.try_into().unwrap()
}

/// Takes four steps with an owner for each part. Returns the weights and the parts' moments,
/// joined.
fn stepped(ranks: usize, fused: bool, scale: f64) -> [Vec<f32>; 3] {
    let weights = single(&values(0));
    let owner = |rank| {
        let mut owner = AdamW::of_shard(&weights, &DECAY, Shard::of(COUNT as i64, rank, ranks)).unwrap();
        owner.set_fused(fused);
        owner
    };
    let mut owners: Vec<AdamW> = (0..ranks).map(owner).collect();
    for salt in 1..5 {
        let grad = single(&values(salt));
        for owner in &mut owners {
            owner.step(&weights, &grad, scale, &PARAMS).unwrap();
        }
    }
    let moment = |of: fn(&AdamW) -> &Tensor| owners.iter().flat_map(|owner| read(of(owner))).collect();
    [
        read(&weights),
        moment(|owner| owner.moments().0),
        moment(|owner| owner.moments().1),
    ]
}

#[test]
fn both_ways_follow_the_textbook_over_block_borders() {
    for scale in [1.0, 0.3] {
        let mut expected = values(0);
        let scaled = |salt| values(salt).iter().map(|g| g * scale).collect();
        reference(&mut expected, &(1..5).map(scaled).collect::<Vec<_>>(), &PARAMS);
        for fused in [false, true] {
            let [weights, ..] = stepped(1, fused, scale);
            for (got, want) in weights.iter().zip(&expected) {
                assert!((f64::from(*got) - want).abs() < 2e-6, "fused {fused}: {got} {want}");
            }
        }
    }
}

/// The linked version of libtorch has the kernel, and the optimizer calls it.
#[test]
fn the_fused_kernel_is_there_and_is_another_way() {
    assert!(fused_adamw::is_there());
    assert_ne!(stepped(1, true, 0.3)[0], stepped(1, false, 0.3)[0], "they round apart");
}

#[test]
fn parts_of_the_buffer_have_the_bits_of_the_whole() {
    tch::set_num_threads(1);
    let whole = stepped(1, false, 0.3);
    for ranks in [2, 3, 5] {
        assert_eq!(stepped(ranks, false, 0.3), whole, "{ranks}");
    }
}

/// Vectors of the fused kernel begin at each stretch, so parts may differ in the last digit.
#[test]
fn parts_of_the_fused_kernel_are_those_of_the_whole() {
    let whole = stepped(1, true, 0.3);
    for (part, whole) in stepped(3, true, 0.3).iter().zip(&whole) {
        let gap = part.iter().zip(whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(gap < 1e-6, "{gap}");
    }
}

#[test]
fn an_empty_part_is_stepped_too() {
    let weights = Tensor::from_slice(&[1f32, 2.0]);
    for fused in [false, true] {
        let mut owner = AdamW::of_shard(&weights, &[], Shard::of(2, 1, 2)).unwrap();
        owner.set_fused(fused);
        owner.step(&weights, &weights, 1.0, &PARAMS).unwrap();
        assert_eq!((read(&weights), owner.steps()), (vec![1.0, 2.0], 1));
    }
}

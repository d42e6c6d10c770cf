//! AdamW: the textbook, the fused kernel, parts of the buffer.

use super::super::blocks::CPU_BLOCK;
use super::super::shard::{Shard, stretches};
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

/// The optimizer of a part of a buffer, and the part's range.
fn owner(range: Range<i64>, decay: &[Range<i64>]) -> (AdamW, Range<i64>) {
    let zeros = || Tensor::zeros([range.end - range.start], (Kind::Float, Device::Cpu));
    let owner = AdamW::new(zeros(), zeros(), stretches(&range, decay), Device::Cpu);
    (owner, range)
}

/// Takes four steps with an owner for each part. Returns the weights and the parts' moments,
/// joined.
fn stepped(ranks: usize, fused: bool, scale: f64) -> [Vec<f32>; 3] {
    let weights = single(&values(0));
    let part = |rank| {
        let (mut owner, range) = owner(Shard::of(COUNT as i64, rank, ranks).range(), &DECAY);
        owner.set_fused(fused);
        (owner, range)
    };
    let mut owners: Vec<(AdamW, Range<i64>)> = (0..ranks).map(part).collect();
    for salt in 1..5 {
        let grad = single(&values(salt));
        for (owner, range) in &mut owners {
            let own = |whole: &Tensor| whole.narrow(0, range.start, range.end - range.start);
            owner.step(&own(&weights), &own(&grad), scale, &PARAMS).unwrap();
        }
    }
    let moment = |of: fn(&AdamW) -> &Tensor| owners.iter().flat_map(|(owner, _)| read(of(owner))).collect();
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
        let (mut owner, _) = owner(2..2, &[]);
        owner.set_fused(fused);
        let none = weights.narrow(0, 0, 0);
        owner.step(&none, &none, 1.0, &PARAMS).unwrap();
        owner.step_staged(&none, &none, 1.0, &PARAMS, |_, _| Ok(())).unwrap();
        assert_eq!((read(&weights), owner.steps()), (vec![1.0, 2.0], 2));
    }
}

#[test]
fn state_in_host_memory_has_the_bits_of_a_step_in_place() {
    tch::set_num_threads(1);
    let whole = stepped(1, false, 0.3);
    for stage in [CPU_BLOCK, 1 << 26] {
        let (mut owner, _) = owner(0..COUNT as i64, &DECAY);
        owner.set_stage(stage);
        let (weights, copy) = (single(&values(0)), single(&values(9)));
        for salt in 1..5 {
            let grad = single(&values(salt));
            let keep = |start: i64, block: &Tensor| copy.f_narrow(0, start, block.size1()?)?.f_copy_(block);
            owner.step_staged(&weights, &grad, 0.3, &PARAMS, keep).unwrap();
        }
        let (first, second) = owner.moments();
        assert_eq!([read(&weights), read(first), read(second)], whole, "{stage}");
        assert_eq!(read(&copy), whole[0], "{stage}");
    }
}

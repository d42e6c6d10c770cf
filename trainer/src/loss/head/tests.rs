use super::*;
use crate::collective::tests::{Member, in_ranks, peak_of};
use crate::loss::{Token, token_loss};
use broker::protocol::train::{Loss, Policy};

struct Case {
    hidden: Tensor,
    matrix: Tensor,
    targets: Vec<i64>,
    temperatures: Vec<f32>,
    weights: Vec<f64>,
}

impl Case {
    /// Returns the input of a head without an adapter, in chunks of few rows.
    fn input(&self) -> HeadInput<'_> {
        HeadInput {
            hidden: &self.hidden,
            matrix: &self.matrix,
            adapter: None,
            targets: &self.targets,
            temperatures: &self.temperatures,
            chunk_elements: 100,
        }
    }
}

/// `[rows, 8]` of standard normal numbers.
fn normal(rows: i64, stream: u64) -> Tensor {
    let values: Vec<f32> = (0..4 * rows as u64)
        .flat_map(|i| crate::rng::normal_pair(7, stream, i))
        .map(|x| x as f32)
        .collect();
    Tensor::from_slice(&values).view([rows, 8])
}

fn case(tokens: i64, vocab: i64) -> Case {
    let n = tokens as usize;
    Case {
        hidden: normal(tokens, 1),
        matrix: normal(vocab, 2) * 0.5,
        targets: (0..tokens).map(|i| (i * 5) % vocab).collect(),
        temperatures: (0..n).map(|i| [1.0, 0.7, 1.6][i % 3]).collect(),
        weights: (0..n).map(|i| 0.1 + 0.05 * (i % 4) as f64).collect(),
    }
}

fn relative(a: &Tensor, b: &Tensor) -> f64 {
    ((a - b).norm() / b.norm()).double_value(&[])
}

/// The loss by autograd through the whole vocabulary, each term in PyTorch's own form.
fn autograd(case: &Case, old: &[f32], reference: &[f32], advantage: &[f32]) -> (Tensor, Tensor) {
    let hidden = case.hidden.copy().set_requires_grad(true);
    let matrix = case.matrix.copy().set_requires_grad(true);
    let logits = hidden.matmul(&matrix.tr()) / Tensor::from_slice(&case.temperatures).unsqueeze(1);
    let logp = logits.log_softmax(-1, Kind::Float);
    let picked = logp
        .gather(1, &Tensor::from_slice(&case.targets).unsqueeze(1), false)
        .squeeze_dim(1);
    let entropy = -(logp.exp() * &logp).sum_dim_intlist(&[-1i64][..], false, Kind::Float);
    let (old, advantage) = (Tensor::from_slice(old), Tensor::from_slice(advantage));
    let ratio = (&picked - old).exp();
    let policy = -(&ratio * &advantage).minimum(&(ratio.clamp(0.8, 1.28) * &advantage));
    let d = Tensor::from_slice(reference) - &picked;
    let loss = policy + 0.3 * (d.exp() - &d - 1.0) - 0.2 * entropy;
    let weights = Tensor::from_slice(&case.weights).to_kind(Kind::Float);
    let total: Tensor = loss * weights;
    total.sum(Kind::Float).backward();
    (hidden.grad(), matrix.grad())
}

#[test]
fn bf16_matrix_gives_the_values_and_gradients_of_its_f32_copy() {
    let narrow = |tensor: &Tensor| tensor.to_kind(Kind::BFloat16);
    let mut case = case(40, 23);
    case.hidden = narrow(&case.hidden).to_kind(Kind::Float);
    let run = |matrix: Tensor| {
        let case = Case {
            hidden: case.hidden.shallow_clone(),
            matrix,
            targets: case.targets.clone(),
            temperatures: case.temperatures.clone(),
            weights: case.weights.clone(),
        };
        let mut d_matrix = Tensor::zeros_like(&case.matrix.to_kind(Kind::Float));
        let slope = |i: usize, _: f32, _: f32| Slope {
            d_logprob: case.weights[i],
            d_entropy: 0.1 * case.weights[i],
        };
        let d_hidden = gradients(&case.input(), HeadGrad::Matrix(&mut d_matrix), slope).unwrap();
        (values(&case.input()).unwrap(), d_hidden, d_matrix)
    };
    let matrix = narrow(&case.matrix);
    let (values, d_hidden, d_matrix) = run(matrix.shallow_clone());
    let (wide_values, wide_hidden, wide_matrix) = run(matrix.to_kind(Kind::Float));
    for (found, right) in values.logprobs.iter().zip(&wide_values.logprobs) {
        assert!((found - right).abs() < 1e-5, "{found} {right}");
    }
    // The logits' gradient keeps 16 bits of its mantissa.
    assert!(relative(&d_hidden, &wide_hidden) < 2e-5);
    assert!(relative(&d_matrix, &wide_matrix) < 2e-5);
}

#[test]
fn gradients_equal_autograd_with_every_term_and_temperature() {
    let case = case(40, 23);
    let input = case.input();
    let now = values(&input).unwrap();
    let shift = |i: usize, by: f32| now.logprobs[i] + by * ((i % 5) as f32 - 2.0);
    let old: Vec<f32> = (0..40).map(|i| shift(i, 0.2)).collect();
    let reference: Vec<f32> = (0..40).map(|i| shift(i, -0.3)).collect();
    let advantage: Vec<f32> = (0..40).map(|i| [1.0, -0.5, 0.0, 2.0][i % 4]).collect();
    let loss = Loss::Policy(Policy {
        kl_coef: 0.3,
        entropy_coef: 0.2,
        ..Policy::clipped(0.2, 0.28)
    });
    let mut d_matrix = case.matrix.zeros_like();
    let d_hidden = gradients(&input, HeadGrad::Matrix(&mut d_matrix), |i, logprob, entropy| {
        let term = token_loss(
            &loss,
            &Token {
                logprob: f64::from(logprob),
                old: f64::from(old[i]),
                behaviour: f64::from(old[i]),
                reference: f64::from(reference[i]),
                advantage: f64::from(advantage[i]),
                entropy: f64::from(entropy),
            },
        );
        Slope {
            d_logprob: case.weights[i] * term.d_logprob,
            d_entropy: case.weights[i] * term.d_entropy,
        }
    })
    .unwrap();
    let (expected_hidden, expected_matrix) = autograd(&case, &old, &reference, &advantage);
    assert!(relative(&d_hidden, &expected_hidden) < 2e-6);
    assert!(relative(&d_matrix, &expected_matrix) < 2e-6);
}

#[test]
fn chunk_is_larger_on_a_gpu() {
    let mib = |device| (chunk_elements(device) * 4) >> 20;
    assert_eq!([Device::Cpu, Device::Cuda(1)].map(mib), [16, 1024], "in f32");
}

#[test]
fn chunks_add_up() {
    // 3 rows of logits per chunk.
    let case = case(7, 33);
    let input = case.input();
    let whole = (case.hidden.matmul(&case.matrix.tr()) / Tensor::from_slice(&case.temperatures).unsqueeze(1))
        .log_softmax(-1, Kind::Float);
    let got = values(&input).unwrap();
    for (i, logprob) in got.logprobs.iter().enumerate() {
        let want = whole.double_value(&[i as i64, case.targets[i]]);
        assert!((f64::from(*logprob) - want).abs() < 1e-4, "{logprob} {want}");
    }
    let mut calls = Vec::new();
    let mut d_matrix = case.matrix.zeros_like();
    let d_hidden = gradients(&input, HeadGrad::Matrix(&mut d_matrix), |i, _, _| {
        calls.push(i);
        Slope {
            d_logprob: -1.0,
            d_entropy: 0.0,
        }
    })
    .unwrap();
    assert_eq!(calls, (0..7).collect::<Vec<_>>());
    assert_eq!(d_hidden.size(), [7, 8]);
}

#[test]
fn an_adapter_of_the_head_has_the_gradient_of_autograd() {
    let case = case(9, 21);
    let leaf = |tensor: Tensor| tensor.set_requires_grad(true);
    let (a, b) = (leaf(normal(3, 5).copy()), leaf(normal(21, 6).narrow(1, 0, 3).copy()));
    let (hidden, scale) = (leaf(case.hidden.copy()), 1.5);
    let matrix = &case.matrix + b.matmul(&a) * scale;
    let logits = hidden.matmul(&matrix.tr()) / Tensor::from_slice(&case.temperatures).unsqueeze(1);
    let picked = logits
        .log_softmax(-1, Kind::Float)
        .gather(1, &Tensor::from_slice(&case.targets).unsqueeze(1), false);
    (-picked.sum(Kind::Float)).backward();
    let (a_value, b_value) = (a.detach(), b.detach());
    let input = HeadInput {
        hidden: &case.hidden,
        matrix: &case.matrix,
        adapter: Some(HeadAdapter {
            a: &a_value,
            b: &b_value,
            scale,
        }),
        targets: &case.targets,
        temperatures: &case.temperatures,
        chunk_elements: 80,
    };
    let (mut d_a, mut d_b) = (a_value.zeros_like(), b_value.zeros_like());
    let grad = HeadGrad::Adapter {
        d_a: &mut d_a,
        d_b: &mut d_b,
    };
    let slope = Slope {
        d_logprob: -1.0,
        d_entropy: 0.0,
    };
    let d_hidden = gradients(&input, grad, |_, _, _| slope).unwrap();
    assert!(relative(&d_a, &a.grad()) < 2e-6);
    assert!(relative(&d_b, &b.grad()) < 2e-6);
    assert!(relative(&d_hidden, &hidden.grad()) < 2e-6);
    let frozen = gradients(&input, HeadGrad::Frozen, |_, _, _| slope).unwrap();
    assert!(relative(&frozen, &d_hidden) < 1e-7);
}

/// A chunk of 97 MB of logits, and 3 MB for the matrix and its gradient.
#[test]
fn chunk_takes_the_counted_tensors() {
    let Some(_) = Member::here() else {
        return in_ranks("loss::head::tests::chunk_takes_the_counted_tensors", 1);
    };
    let case = case(512, 50_000);
    let input = HeadInput {
        chunk_elements: 1 << 30,
        ..case.input()
    };
    for d_entropy in [0.0, 0.1] {
        let mut d_matrix = Tensor::zeros([50_000, 8], (Kind::Float, Device::Cpu));
        let slope = |_, _, _| Slope {
            d_logprob: 1.0,
            d_entropy,
        };
        let more = peak_of(|| {
            let _loss = gradients(&input, HeadGrad::Matrix(&mut d_matrix), slope).unwrap();
        });
        let counted = CHUNK_TENSORS * 97;
        assert!((counted - 40..counted + 40).contains(&more), "{more} MB");
    }
}

//! The guarantees of an engine, on a seeded tiny model.

pub(super) mod bounded;
mod faults;
mod fixed;
mod histories;
mod prompt_scores;
mod recorded;
mod reuse;
mod shared_prompts;
mod swaps;
mod top;
mod visit;
mod waves;

use std::sync::Arc;

use broker::ids::{RequestId, WeightVersion};
use configs::{Dtype, Swap};
use tch::Kind;

use super::{Engine, EngineOptions, Finished, GenRequest};
use crate::device::of_tests;
use crate::model::{Decoder, Init, RowBatch, Weights, test_shape};
use crate::sampling::SamplingParams;
use crate::weights::Published;

pub(super) const OPTIONS: EngineOptions = EngineOptions {
    slots: 8,
    prefill_tokens: 64,
    prefix_cache: 0,
    cache: None,
    swap: Swap::InPlace,
    deterministic: false,
    prepack: true,
};

pub(super) fn version(step: u64) -> WeightVersion {
    WeightVersion { lineage: 1, step }
}

pub(super) fn id(n: u64) -> RequestId {
    RequestId(u128::from(n).to_le_bytes())
}

pub(super) fn request(n: u64, prompt: &[u32], max_new_tokens: u32) -> GenRequest {
    GenRequest {
        id: id(n),
        prompt_ids: Arc::from(prompt),
        max_new_tokens,
        sampling: SamplingParams::default(),
        stop_ids: Arc::from([]),
        stop: None,
        seed: n.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        keep: false,
        top: 0,
        prompt_top: None,
    }
}

pub(super) fn weights(seed: u64) -> Weights {
    Weights::random(
        &test_shape(),
        Init {
            embedding_std: 1.0,
            matrix_std: 0.2,
        },
        seed,
    )
    .and_then(|weights| weights.copied_to(of_tests(), Dtype::F32))
    .unwrap()
}

pub(super) fn engine(options: EngineOptions) -> Engine {
    Engine::new(&test_shape(), Published::new(weights(1), version(1)), options).unwrap()
}

pub(super) fn drain(engine: &mut Engine) -> Vec<Finished> {
    let mut all = Vec::new();
    while !engine.is_idle() {
        all.append(&mut engine.step().unwrap());
    }
    all.sort_by_key(|finished| finished.id);
    all
}

/// Log-probs of an output under weights, by one full forward pass.
pub(super) fn full(weights: &Weights, request: &GenRequest, output: &[u32]) -> Vec<f32> {
    let _guard = tch::no_grad_guard();
    let shape = test_shape();
    let decoder = Decoder::new(&shape, weights).unwrap();
    let row = [&request.prompt_ids[..], output].concat();
    let batch = RowBatch::new(&shape, &[row], of_tests()).unwrap();
    let logits = decoder.logits(&decoder.hidden(&batch).unwrap()).unwrap() / f64::from(request.sampling.divisor());
    let lp = logits.log_softmax(-1, Kind::Float);
    let first = request.prompt_ids.len() as i64 - 1;
    output
        .iter()
        .enumerate()
        .map(|(i, &t)| lp.double_value(&[first + i as i64, i64::from(t)]) as f32)
        .collect()
}

pub(super) fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-5)
}

/// Ragged requests: prompts of 1 to 9 tokens, 1 to 24 new ones, three temperatures.
fn ragged(count: u64) -> Vec<GenRequest> {
    let make = |n: u64| {
        let prompt: Vec<u32> = (0..1 + n * 5 % 9).map(|i| ((n * 11 + i * 17) % 40) as u32).collect();
        let mut request = request(n, &prompt, 1 + (n * 7 % 24) as u32);
        request.sampling.temperature = [1.0, 0.6, 1.5][n as usize % 3];
        request
    };
    (0..count).map(make).collect()
}

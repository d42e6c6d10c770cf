//! `deterministic`: the bits of a request do not depend on other requests.

use std::collections::BTreeMap;
use std::sync::Mutex;

use broker::ids::WeightVersion;
use configs::Dtype;
use proptest::prelude::*;

use super::{close, drain, request, version};
use crate::device::of_tests;
use crate::engine::*;
use crate::model::{Init, LoraShape, Module, test_shape};

const OPTIONS: EngineOptions = EngineOptions {
    slots: 80,
    prefill_tokens: 512,
    prefix_cache: 1 << 24,
    cache: None,
    swap: Swap::Retract,
    deterministic: true,
    prepack: true,
};

/// Products of sizes that either library computes.
pub(super) fn shape() -> ModelShape {
    ModelShape {
        vocab: 120,
        hidden: 128,
        head_dim: 32,
        intermediate: 256,
        max_context: 500,
        ..test_shape()
    }
}

pub(super) fn weights(shape: &ModelShape, seed: u64) -> Weights {
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.1,
    };
    Weights::random(shape, init, seed).unwrap()
}

fn engine_of(shape: &ModelShape, dtype: Dtype, options: EngineOptions) -> Engine {
    let weights = weights(shape, 1).copied_to(of_tests(), dtype).unwrap();
    Engine::new(shape, Published::new(weights, version(1)), options).unwrap()
}

pub(super) fn prompt(salt: u64, length: u64) -> Vec<u32> {
    (0..length).map(|i| ((i * 7 + salt * 13 + i * i) % 40) as u32).collect()
}

/// Request `n` of a mixed set: prompts of 1 to 200 tokens, some equal, some with equal beginnings,
/// at several temperatures.
fn any(n: u64) -> GenRequest {
    let length = [1, 3, 60, 64, 65, 130, 200, 90][n as usize % 8];
    let mut request = request(n, &prompt(n % 3, length), 1 + (n * 5 % 14) as u32);
    request.sampling.temperature = [1.0, 0.7, 0.0][n as usize % 3];
    request.keep = n.is_multiple_of(2);
    request
}

fn alone(shape: &ModelShape, dtype: Dtype, request: &GenRequest) -> Finished {
    let mut engine = engine_of(
        shape,
        dtype,
        EngineOptions {
            prefix_cache: 0,
            ..OPTIONS
        },
    );
    engine.submit(request.clone()).unwrap();
    drain(&mut engine).remove(0)
}

type Said = (Vec<u32>, Vec<u32>);

fn bits(finished: &Finished) -> Said {
    (
        finished.output_ids.clone(),
        finished.logprobs.iter().map(|lp| lp.to_bits()).collect(),
    )
}

/// Answers to requests computed alone, by number; each is computed once.
type Known = Mutex<BTreeMap<u64, Said>>;

fn check(
    (shape, dtype): (&ModelShape, Dtype),
    options: EngineOptions,
    first: u64,
    joins: &[(u64, u64)],
    known: &Known,
) {
    let mut engine = engine_of(shape, dtype, options);
    let mut said = Vec::new();
    let mut next = 0;
    for n in 0..first {
        engine.submit(any(n)).unwrap();
        next = n + 1;
    }
    for (steps, count) in joins {
        for _ in 0..*steps {
            said.append(&mut engine.step().unwrap());
        }
        for n in next..next + count {
            engine.submit(any(n)).unwrap();
        }
        next += count;
    }
    said.append(&mut drain(&mut engine));
    assert_eq!(said.len() as u64, next);
    for finished in &said {
        let n = (0..next).find(|n| any(*n).id == finished.id).unwrap();
        let mut known = known.lock().unwrap();
        let alone = known.entry(n).or_insert_with(|| bits(&alone(shape, dtype, &any(n))));
        assert_eq!(bits(finished), *alone, "request {n}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]
    #[test]
    fn a_request_has_its_bits_in_every_company(
        first in 1u64..71,
        joins in prop::collection::vec((1u64..6, 0u64..9), 0..4),
        slots in 1usize..80,
        pieces in prop::sample::select(vec![7usize, 64, 100, 512]),
        cache: bool,
    ) {
        let options = EngineOptions { slots, prefill_tokens: pieces, prefix_cache: if cache { 1 << 24 } else { 0 }, ..OPTIONS };
        check((&shape(), Dtype::F32), options, first, &joins, &ALONE);
    }
}

static ALONE: Known = Known::new(BTreeMap::new());

#[test]
fn so_it_does_in_bf16() {
    check(
        (&shape(), Dtype::Bf16),
        EngineOptions {
            prefill_tokens: 50,
            ..OPTIONS
        },
        40,
        &[(3, 9), (2, 5)],
        &Known::default(),
    );
}

#[test]
fn so_it_does_with_heads_and_widths_that_fill_no_register() {
    let odd = ModelShape {
        vocab: 41,
        hidden: 36,
        heads: 6,
        kv_heads: 2,
        head_dim: 6,
        intermediate: 50,
        ..shape()
    };
    check(
        (&odd, Dtype::F32),
        EngineOptions {
            prefill_tokens: 33,
            ..OPTIONS
        },
        20,
        &[(3, 9), (2, 5)],
        &Known::default(),
    );
}

#[test]
fn so_it_does_over_an_adapter() {
    let shape = shape();
    let lora = LoraShape {
        rank: 4,
        alpha: 8.0,
        targets: Module::ALL.into_iter().collect(),
    };
    let adapter = || {
        let adapter = Weights::adapter(&shape, &lora, 5).unwrap();
        // B begins at 0, which would add nothing.
        let _guard = tch::no_grad_guard();
        let _ = adapter.flat().shallow_clone().f_add_scalar_(0.01).unwrap();
        adapter
    };
    let run = |requests: &[GenRequest]| {
        let published = Published::new(adapter(), version(1));
        let mut engine = Engine::with_base(&shape, weights(&shape, 1), published, OPTIONS).unwrap();
        requests
            .iter()
            .for_each(|request| engine.submit(request.clone()).unwrap());
        drain(&mut engine)
    };
    let requests: Vec<GenRequest> = (0..12).map(any).collect();
    for (request, together) in requests.iter().zip(run(&requests)) {
        assert_eq!(bits(&run(std::slice::from_ref(request))[0]), bits(&together));
    }
}

/// Cache entries computed token by token equal those of a prompt.
#[test]
fn a_turn_from_the_prefix_cache_has_the_bits_of_a_whole_one() {
    let mut engine = engine_of(&shape(), Dtype::F32, OPTIONS);
    let mut history = prompt(4, 70);
    for turn in 0..4 {
        let request = GenRequest {
            keep: true,
            ..request(turn, &history, 30)
        };
        engine.submit(request.clone()).unwrap();
        let said = drain(&mut engine).remove(0);
        assert_eq!(said.reused > 0, turn > 0);
        let fresh = alone(&shape(), Dtype::F32, &request);
        assert_eq!((bits(&said), fresh.reused), (bits(&fresh), 0));
        history.extend(&said.output_ids);
        history.extend([3, 1, 4]);
    }
}

#[test]
fn a_recomputed_cache_has_bits_independent_of_other_requests() {
    let run = |company: u64| {
        let mut engine = engine_of(&shape(), Dtype::F32, OPTIONS);
        let asked = request(1000, &prompt(9, 80), 12);
        engine.submit(asked.clone()).unwrap();
        (0..company).for_each(|n| engine.submit(any(n)).unwrap());
        (0..3).for_each(|_| drop(engine.step().unwrap()));
        let next = Published::new(weights(&shape(), 2), version(2));
        assert!(engine.swap(next).unwrap());
        let said = drain(&mut engine).into_iter().find(|said| said.id == asked.id).unwrap();
        assert_eq!(said.spans.len(), 2);
        bits(&said)
    };
    assert_eq!(run(0), run(9));
}

#[test]
fn the_cache_of_earlier_weights_serves_no_request() {
    let in_place = EngineOptions {
        swap: Swap::InPlace,
        ..OPTIONS
    };
    let mut engine = engine_of(&shape(), Dtype::F32, in_place);
    let first = GenRequest {
        keep: true,
        ..request(1, &prompt(4, 70), 9)
    };
    engine.submit(first.clone()).unwrap();
    drain(&mut engine);
    assert!(engine.swap(Published::new(weights(&shape(), 2), version(2))).unwrap());
    engine.submit(request(2, &prompt(4, 90), 5)).unwrap();
    let said = drain(&mut engine).remove(0);
    assert_eq!((said.reused, said.oldest_kv), (0, version(2)));
}

#[test]
fn a_prompt_under_way_at_a_swap_serves_no_later_request() {
    let options = EngineOptions {
        swap: Swap::InPlace,
        prefill_tokens: 64,
        ..OPTIONS
    };
    let next = || Published::new(weights(&shape(), 2), version(2));
    // The request ends with the new weights, and its cache comes from both versions.
    let mut engine = engine_of(&shape(), Dtype::F32, options);
    let first = GenRequest {
        keep: true,
        ..request(1, &prompt(4, 70), 9)
    };
    engine.submit(first).unwrap();
    (0..4).for_each(|_| drop(engine.step().unwrap()));
    assert!(engine.swap(next()).unwrap());
    drain(&mut engine);
    engine.submit(request(2, &prompt(4, 90), 5)).unwrap();
    let said = drain(&mut engine).remove(0);
    assert_eq!((said.reused, said.oldest_kv), (0, version(2)));
    // Its prompt is half computed when a second request asks for the same one.
    let mut engine = engine_of(&shape(), Dtype::F32, options);
    engine.submit(request(3, &prompt(5, 200), 4)).unwrap();
    drop(engine.step().unwrap());
    assert!(engine.swap(next()).unwrap());
    engine.submit(request(4, &prompt(5, 200), 4)).unwrap();
    let said = drain(&mut engine)
        .into_iter()
        .find(|said| said.id == request(4, &[], 0).id)
        .unwrap();
    assert_eq!(said.oldest_kv, version(2));
}

#[test]
fn what_it_says_is_what_the_engine_says_otherwise() {
    let plain = EngineOptions {
        deterministic: false,
        ..OPTIONS
    };
    let mut engines = [OPTIONS, plain].map(|options| engine_of(&shape(), Dtype::F32, options));
    let [fixed, usual] = engines.each_mut().map(|engine| {
        (0..30).for_each(|n| engine.submit(any(n)).unwrap());
        drain(engine)
    });
    for (fixed, usual) in fixed.iter().zip(&usual) {
        assert_eq!(fixed.output_ids, usual.output_ids);
        assert!(close(&fixed.logprobs, &usual.logprobs));
    }
    let _: WeightVersion = engines[0].version();
}

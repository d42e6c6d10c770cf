//! The guarantees of an engine, on a seeded tiny model.

mod fixed;
mod prompt_scores;
mod reuse;
mod top;
mod visit;

use std::sync::Arc;

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::turn::Finish;
use configs::Swap;
use proptest::prelude::*;
use tch::{Device, Kind};

use super::{Engine, EngineError, EngineOptions, Finished, GenRequest, RequestFault};
use crate::model::{Decoder, Init, ModelShape, RowBatch, Weights, test_shape};
use crate::sampling::SamplingParams;
use crate::weights::Published;

const OPTIONS: EngineOptions = EngineOptions {
    slots: 8,
    prefill_tokens: 64,
    prefix_cache: 0,
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
    .unwrap()
}

fn engine(options: EngineOptions) -> Engine {
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
    let batch = RowBatch::new(&shape, &[row], Device::Cpu).unwrap();
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

#[test]
fn log_probs_are_those_of_the_full_forward_in_every_batch() {
    let requests = ragged(30);
    let mut together = engine(OPTIONS);
    for request in &requests {
        together.submit(request.clone()).unwrap();
    }
    let together = drain(&mut together);
    assert_eq!(together.len(), requests.len());
    let mut alone = engine(EngineOptions { slots: 1, ..OPTIONS });
    for (request, finished) in requests.iter().zip(&together) {
        alone.submit(request.clone()).unwrap();
        let single = drain(&mut alone).remove(0);
        assert_eq!(single.output_ids, finished.output_ids, "request {}", request.id);
        assert!(close(&single.logprobs, &finished.logprobs));
        assert!(close(
            &finished.logprobs,
            &full(&weights(1), request, &finished.output_ids)
        ));
        assert_eq!(finished.finish, Finish::Length);
        assert_eq!(finished.output_ids.len(), request.max_new_tokens as usize);
    }
}

#[test]
fn a_wave_is_a_function_of_its_content() {
    let mut used = engine(OPTIONS);
    let mut other = ragged(13);
    other.iter_mut().for_each(|request| request.max_new_tokens = 90);
    used.run_wave(other).unwrap();
    let first = used.run_wave(ragged(30)).unwrap();
    let again = used.run_wave(ragged(30)).unwrap();
    let fresh = engine(OPTIONS).run_wave(ragged(30)).unwrap();
    assert_eq!(first, again, "the same wave twice");
    assert_eq!(first, fresh, "on a used engine and on a new one");
    assert_eq!(
        first.iter().map(|f| f.id).collect::<Vec<_>>(),
        (0..30).map(id).collect::<Vec<_>>()
    );
}

#[test]
fn long_shared_prompts_are_attended_once_and_change_nothing() {
    let prompt = |p: u32| (0..60 + p).map(|i| (i * 7 + p * 13 + i * i) % 40).collect::<Vec<u32>>();
    // Three groups of eight and four single requests, of lengths that end at different steps, in
    // slots that are reused.
    let wave: Vec<_> = (0..28)
        .map(|n| {
            let prompt = if n < 24 {
                prompt(n as u32 / 8)
            } else {
                vec![n as u32, 3]
            };
            request(n, &prompt, 2 + (n * 5 % 23) as u32)
        })
        .collect();
    let options = EngineOptions {
        slots: 20,
        prefill_tokens: 150,
        ..OPTIONS
    };
    let shared = engine(options).run_wave(wave.clone()).unwrap();
    assert_eq!(
        shared,
        engine(options).run_wave(wave.clone()).unwrap(),
        "the same bits again"
    );
    let mut alone = engine(EngineOptions { slots: 1, ..OPTIONS });
    for (request, shared) in wave.into_iter().zip(&shared) {
        let expected = full(&weights(1), &request, &shared.output_ids);
        assert!(close(&shared.logprobs, &expected), "request {}", request.id);
        alone.submit(request).unwrap();
        assert_eq!(drain(&mut alone).remove(0).output_ids, shared.output_ids);
    }
}

#[test]
fn retracted_rows_leave_their_shared_prompt() {
    let options = EngineOptions {
        swap: Swap::Retract,
        prefill_tokens: 100,
        ..OPTIONS
    };
    let prompt: Vec<u32> = (0..70).map(|i| (i * 11) % 40).collect();
    let mut engine = engine(options);
    for n in 0..6 {
        engine.submit(request(n, &prompt, 12 + n as u32)).unwrap();
    }
    for _ in 0..5 {
        engine.step().unwrap();
    }
    engine.swap(Published::new(weights(2), version(2))).unwrap();
    for finished in drain(&mut engine) {
        let request = request(0, &prompt, 1);
        let after = full(&weights(2), &request, &finished.output_ids);
        assert!(close(&finished.logprobs[6..], &after[6..]));
        assert_eq!(finished.oldest_kv, version(2));
    }
}

#[test]
fn a_shared_prompt_equals_prompts_of_their_own() {
    let prompts: Vec<Vec<u32>> = (0..4).map(|p| vec![p, 30 - p, 7]).collect();
    let wave: Vec<_> = (0..64)
        .map(|n| request(n, &prompts[n as usize % 4], if n < 32 { 1 } else { 6 }))
        .collect();
    let shared = engine(EngineOptions { slots: 64, ..OPTIONS })
        .run_wave(wave.clone())
        .unwrap();
    let mut alone = engine(OPTIONS);
    for (request, shared) in wave.into_iter().zip(&shared) {
        let single = alone.run_wave(vec![request.clone()]).unwrap().remove(0);
        assert_eq!(single.output_ids, shared.output_ids);
        assert!(close(&single.logprobs, &shared.logprobs));
    }
    let distinct: std::collections::HashSet<_> = shared.iter().map(|f| f.output_ids[0]).collect();
    assert!(distinct.len() > 4, "samples of one prompt differ");
}

#[test]
fn stop_rules_end_a_generation_with_the_token_that_ends_it() {
    let mut engine = engine(OPTIONS);
    let free = engine.run_wave(vec![request(1, &[3, 4], 40)]).unwrap().remove(0);
    let stop = free.output_ids[5];
    let until = free.output_ids.iter().position(|&t| t == stop).unwrap() + 1;
    let by_id = GenRequest {
        stop_ids: Arc::from([39, stop]),
        ..request(1, &[3, 4], 40)
    };
    let by_rule = GenRequest {
        stop: Some(Arc::new(|out: &[u32]| out.len() == 7)),
        ..request(1, &[3, 4], 40)
    };
    let first = GenRequest {
        stop_ids: free.output_ids[..1].into(),
        ..request(1, &[3, 4], 40)
    };
    for (request, wanted) in [(by_id, until), (by_rule, 7), (first, 1)] {
        let ended = engine.run_wave(vec![request]).unwrap().remove(0);
        assert_eq!(ended.finish, Finish::Stop);
        assert_eq!(ended.output_ids, free.output_ids[..wanted]);
    }
    let to_the_brim = engine.run_wave(vec![request(1, &[5; 120], 1000)]).unwrap().remove(0);
    assert_eq!((to_the_brim.finish, to_the_brim.output_ids.len()), (Finish::Length, 8));
}

#[test]
fn greedy_takes_the_likeliest() {
    let greedy = |n| GenRequest {
        sampling: SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        },
        ..request(n, &[3, 4], 12)
    };
    let mut engine = engine(OPTIONS);
    let outputs: Vec<_> = engine.run_wave(vec![greedy(1), greedy(2)]).unwrap();
    assert_eq!(outputs[0].output_ids, outputs[1].output_ids, "seeds do not matter");
    assert!(close(
        &outputs[0].logprobs,
        &full(&weights(1), &greedy(1), &outputs[0].output_ids)
    ));
}

/// Three requests, with new weights after four steps.
fn swapped(swap: Swap) -> (Vec<GenRequest>, Vec<Finished>) {
    let mut engine = engine(EngineOptions { swap, ..OPTIONS });
    let requests: Vec<_> = [(1, 2), (2, 10), (3, 10)]
        .map(|(n, max)| request(n, &[n as u32, 9], max))
        .into();
    for request in &requests[..2] {
        engine.submit(request.clone()).unwrap();
    }
    let mut all = Vec::new();
    for _ in 0..4 {
        all.append(&mut engine.step().unwrap());
    }
    assert!(engine.swap(Published::new(weights(2), version(2))).unwrap());
    assert!(
        !engine.swap(Published::new(weights(1), version(1))).unwrap(),
        "older weights are dropped"
    );
    engine.submit(requests[2].clone()).unwrap();
    all.append(&mut drain(&mut engine));
    assert_eq!(engine.version(), version(2));
    all.sort_by_key(|finished| finished.id);
    (requests, all)
}

fn spans(finished: &Finished) -> Vec<(u64, u32, u32)> {
    finished
        .spans
        .iter()
        .map(|span| (span.version.step, span.start, span.end))
        .collect()
}

#[test]
fn in_place_goes_on_with_the_old_cache_and_says_so() {
    let (_, all) = swapped(Swap::InPlace);
    assert_eq!(spans(&all[0]), [(1, 0, 2)]);
    assert_eq!(spans(&all[1]), [(1, 0, 5), (2, 5, 10)]);
    assert_eq!((all[1].oldest_kv, all[2].oldest_kv), (version(1), version(2)));
    assert_eq!(spans(&all[2]), [(2, 0, 10)]);
}

#[test]
fn retract_recomputes_the_cache() {
    let (requests, all) = swapped(Swap::Retract);
    assert_eq!(spans(&all[1]), [(1, 0, 5), (2, 5, 10)]);
    assert_eq!(all[1].oldest_kv, version(2));
    let wanted = full(&weights(2), &requests[1], &all[1].output_ids);
    assert!(
        close(&all[1].logprobs[5..], &wanted[5..]),
        "as if the new weights had read everything"
    );
    let (_, in_place) = swapped(Swap::InPlace);
    assert!(!close(
        &in_place[1].logprobs[5..],
        &full(&weights(2), &requests[1], &in_place[1].output_ids)[5..]
    ));
}

#[test]
fn drain_finishes_first_and_holds_the_line() {
    let (requests, all) = swapped(Swap::Drain);
    assert_eq!(spans(&all[1]), [(1, 0, 10)]);
    assert_eq!(spans(&all[2]), [(2, 0, 10)]);
    assert!(close(
        &all[2].logprobs,
        &full(&weights(2), &requests[2], &all[2].output_ids)
    ));
}

#[test]
fn weights_of_another_shape_are_refused() {
    let tied = ModelShape {
        tied: true,
        ..test_shape()
    };
    let other = Weights::zeros(&tied, Device::Cpu, Kind::Float).unwrap();
    assert!(matches!(
        engine(OPTIONS).swap(Published::new(other, version(9))),
        Err(EngineError::Model(_))
    ));
}

#[test]
fn what_cannot_be_generated_is_refused_by_name() {
    let mut engine = engine(OPTIONS);
    let mut fault = |request| match engine.submit(request) {
        Err(EngineError::BadRequest { source, .. }) => source,
        other => panic!("{other:?}"),
    };
    assert_eq!(fault(request(1, &[], 3)), RequestFault::EmptyPrompt);
    assert_eq!(
        fault(request(1, &[1; 128], 3)),
        RequestFault::TooLong { len: 128, max: 128 }
    );
    assert_eq!(
        fault(request(1, &[1, 40], 3)),
        RequestFault::BadToken { token: 40, vocab: 40 }
    );
    assert_eq!(fault(request(1, &[1], 0)), RequestFault::NothingToDo);
    let mut cold = request(1, &[1], 1);
    cold.sampling.temperature = -1.0;
    assert!(matches!(fault(cold), RequestFault::Sampling(_)));
    engine.submit(request(1, &[1], 3)).unwrap();
    assert!(matches!(
        engine.submit(request(1, &[1], 3)),
        Err(EngineError::Duplicate { .. })
    ));
    assert!(matches!(
        engine.run_wave(vec![request(2, &[1], 3)]),
        Err(EngineError::Busy { pending: 1 })
    ));
    let wave = vec![request(2, &[1], 3), request(2, &[1], 3)];
    drain(&mut engine);
    assert!(engine.run_wave(wave).is_err());
    assert!(engine.is_idle(), "a refused wave leaves nothing behind");
}

#[test]
fn broken_weights_fail_loudly_and_the_engine_recovers() {
    let mut engine = engine(OPTIONS);
    engine.submit(request(1, &[1], 9)).unwrap();
    engine.step().unwrap();
    let broken = weights(1);
    let _ = broken.flat().shallow_clone().fill_(f64::NAN);
    engine.swap(Published::new(broken, version(2))).unwrap();
    engine.submit(request(2, &[1], 9)).unwrap();
    assert!(matches!(engine.step(), Err(EngineError::NotFinite { .. })));
    let mut lost = engine.abort_all().unwrap();
    lost.sort();
    assert_eq!(lost, [id(1), id(2)]);
    engine.swap(Published::new(weights(1), version(3))).unwrap();
    let wanted = self::engine(OPTIONS).run_wave(ragged(9)).unwrap();
    let got = engine.run_wave(ragged(9)).unwrap();
    assert!(
        got.iter()
            .zip(&wanted)
            .all(|(a, b)| a.output_ids == b.output_ids && a.logprobs == b.logprobs)
    );
}

#[test]
fn half_as_many_run_at_once_after_memory_ran_out() {
    // A pebibyte: the allocator itself fails.
    let error = EngineError::from(tch::Tensor::f_zeros([1 << 48], (Kind::Float, Device::Cpu)).unwrap_err());
    assert!(error.is_out_of_memory(), "{error}");
    assert!(!EngineError::from(tch::Tensor::f_zeros([-1], (Kind::Float, Device::Cpu)).unwrap_err()).is_out_of_memory());
    let mut engine = engine(OPTIONS);
    for n in 0..6 {
        engine.submit(request(n, &[1, 2, 3], 4)).unwrap();
    }
    engine.step().unwrap();
    assert_eq!(engine.rows.len(), 6);
    assert_eq!(
        engine.halve_slots(6),
        3,
        "of the six that ran, not of the eight allowed"
    );
    for _ in engine.abort_all().unwrap() {}
    for n in 0..6 {
        engine.submit(request(n, &[1, 2, 3], 4)).unwrap();
    }
    engine.step().unwrap();
    assert_eq!(engine.rows.len(), 3);
    assert_eq!(drain(&mut engine).len(), 6, "the others wait for their turn");
    assert_eq!(engine.halve_slots(1), 1);
}

/// Every value of the weights is finite, and their logits are not.
#[test]
fn finite_weights_with_overflowing_logits_fail_loudly_too() {
    let large = weights(1);
    let _ = large.view("model.norm.weight").unwrap().fill_(3e38);
    assert_eq!(large.first_not_finite().unwrap(), None);
    let mut engine = Engine::new(&test_shape(), Published::new(large, version(1)), OPTIONS).unwrap();
    engine.submit(request(1, &[1, 2, 3], 4)).unwrap();
    assert!(matches!(engine.step(), Err(EngineError::NotFinite { .. })));

    let mut engine = self::engine(OPTIONS);
    let mut cold = request(1, &[1, 2, 3], 4);
    cold.sampling.temperature = 1e-44;
    for other in [request(2, &[1, 2], 4), cold, request(3, &[1], 4)] {
        engine.submit(other).unwrap();
    }
    let Err(EngineError::NotFinite { requests, .. }) = engine.step() else {
        panic!("it cannot be sampled")
    };
    assert_eq!(requests, [id(1)], "the other requests are not to blame");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever is submitted, aborted and swapped, in any order, each request ends once, complete
    /// and with its own tokens.
    #[test]
    fn any_history_ends_every_request_once(ops in prop::collection::vec((0u8..10, 0u64..40), 1..60), slots in 1usize..6) {
        let mut engine = engine(EngineOptions { slots, prefill_tokens: 12, swap: Swap::Retract, ..OPTIONS });
        let requests = ragged(40);
        let (mut open, mut ended, mut step) = (std::collections::BTreeSet::new(), Vec::new(), 1);
        for (op, n) in ops {
            match op {
                0..=3 => {
                    let fresh = !open.contains(&id(n)) && !ended.iter().any(|f: &Finished| f.id == id(n));
                    if fresh {
                        engine.submit(requests[n as usize].clone()).unwrap();
                        open.insert(id(n));
                    }
                }
                4 => prop_assert_eq!(engine.abort(id(n)).unwrap(), open.remove(&id(n))),
                5 => {
                    step += 1;
                    prop_assert!(engine.swap(Published::new(weights(1), version(step))).unwrap());
                }
                _ => for finished in engine.step().unwrap() {
                    prop_assert!(open.remove(&finished.id));
                    ended.push(finished);
                },
            }
            prop_assert_eq!(engine.pending(), open.len());
        }
        ended.extend(drain(&mut engine));
        for finished in &ended {
            let n = u64::from_le_bytes(finished.id.0[..8].try_into().unwrap());
            let request = &requests[n as usize];
            prop_assert_eq!(finished.output_ids.len(), request.max_new_tokens as usize);
            let mut next = 0;
            for span in &finished.spans {
                prop_assert_eq!(span.start, next);
                next = span.end;
            }
            prop_assert_eq!(next as usize, finished.output_ids.len());
            // Every version has the same weights, so the history must not change the log-probs.
            prop_assert!(close(&finished.logprobs, &full(&weights(1), request, &finished.output_ids)));
        }
    }
}

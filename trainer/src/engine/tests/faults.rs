//! Requests and weights that an engine rejects, and its recovery.

use super::*;
use crate::engine::{EngineError, GivenUp, RequestFault};

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
    let error = EngineError::from(tch::Tensor::f_zeros([1 << 48], (Kind::Float, tch::Device::Cpu)).unwrap_err());
    assert!(error.is_out_of_memory(), "{error}");
    assert!(
        !EngineError::from(tch::Tensor::f_zeros([-1], (Kind::Float, tch::Device::Cpu)).unwrap_err()).is_out_of_memory()
    );
    let mut engine = engine(OPTIONS);
    for n in 0..6 {
        engine.submit(request(n, &[1, 2, 3], 4)).unwrap();
    }
    engine.step().unwrap();
    assert_eq!(engine.rows.len(), 6);
    let left = 3;
    assert_eq!(
        engine.give_up(6),
        GivenUp::Slots { left },
        "of the six that ran, not of the eight allowed"
    );
    for _ in engine.abort_all().unwrap() {}
    for n in 0..6 {
        engine.submit(request(n, &[1, 2, 3], 4)).unwrap();
    }
    engine.step().unwrap();
    assert_eq!(engine.rows.len(), 3);
    assert_eq!(drain(&mut engine).len(), 6, "the others wait for their turn");
    assert_eq!(engine.give_up(1), GivenUp::Slots { left: 1 });
}

#[test]
fn kept_prefixes_are_given_up_before_slots() {
    let mut engine = engine(EngineOptions {
        prefix_cache: 1 << 20,
        ..OPTIONS
    });
    let prompt: Vec<u32> = (0..40).collect();
    let turn = |n: u64| GenRequest {
        keep: true,
        ..request(n, &prompt, 4)
    };
    let reused = |engine: &mut Engine, n: u64| {
        engine.submit(turn(n)).unwrap();
        drain(engine).remove(0).reused
    };
    reused(&mut engine, 0);
    assert!(reused(&mut engine, 1) > 0, "the row is kept");
    let slots = engine.options.slots;
    let GivenUp::Prefixes { bytes } = engine.give_up(6) else {
        panic!("kept prefixes come first")
    };
    // Two answers: the prompt and three of the four new tokens of each have keys and values.
    let kept = 2 * 43 * engine.cache.bytes_per_token();
    assert_eq!((bytes, engine.options.slots), (kept, slots));
    engine.abort_all().unwrap();
    reused(&mut engine, 2);
    assert_eq!(reused(&mut engine, 3), 0, "no row is kept again");
    assert_eq!(engine.give_up(6), GivenUp::Slots { left: 3 });
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

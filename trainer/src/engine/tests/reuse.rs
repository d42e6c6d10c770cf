//! Prompts in pieces, and turns that continue from an earlier turn's cache.

use super::{close, drain, engine, full, id, request, version, weights};
use crate::engine::*;
use broker::protocol::turn::Finish;
use proptest::prelude::*;

const OPTIONS: EngineOptions = EngineOptions {
    prefix_cache: 1 << 20,
    ..super::OPTIONS
};

fn prompt(salt: u32, length: u32) -> Vec<u32> {
    (0..length).map(|i| (i * 7 + salt * 13 + i * i) % 40).collect()
}

fn turn(n: u64, prompt: &[u32], new: u32) -> GenRequest {
    GenRequest {
        keep: true,
        ..request(n, prompt, new)
    }
}

/// The next turn of a conversation: the history, and three tokens of another speaker.
fn next(n: u64, before: &GenRequest, said: &Finished, new: u32) -> GenRequest {
    turn(
        n,
        &[&before.prompt_ids[..], &said.output_ids, &[n as u32 % 40, 5, 9]].concat(),
        new,
    )
}

fn one(engine: &mut Engine, request: &GenRequest) -> Finished {
    engine.submit(request.clone()).unwrap();
    drain(engine).remove(0)
}

#[test]
fn the_next_turn_computes_only_what_is_new_and_says_the_same() {
    let (mut with, mut without) = (
        engine(OPTIONS),
        engine(EngineOptions {
            prefix_cache: 0,
            ..OPTIONS
        }),
    );
    let first = turn(1, &prompt(1, 40), 6);
    let (said, plain) = (one(&mut with, &first), one(&mut without, &first));
    assert_eq!((&said, said.reused), (&plain, 0));
    let second = next(2, &first, &said, 9);
    let (said, plain) = (one(&mut with, &second), one(&mut without, &second));
    assert_eq!(said.output_ids, plain.output_ids);
    assert_eq!(
        (said.reused, plain.reused),
        (40 + 6 - 1, 0),
        "all but the last token said"
    );
    assert!(close(&said.logprobs, &full(&weights(1), &second, &said.output_ids)));
    let third = next(3, &second, &said, 9);
    let said = one(&mut with, &third);
    assert_eq!(said.reused, 49 + 9 - 1);
    assert!(close(&said.logprobs, &full(&weights(1), &third, &said.output_ids)));
}

#[test]
fn rows_of_a_shared_prompt_go_on_each_from_its_own() {
    let mut engine = engine(OPTIONS);
    let first: Vec<_> = (0..8).map(|n| turn(n, &prompt(2, 50), 5)).collect();
    first.iter().for_each(|request| engine.submit(request.clone()).unwrap());
    let said = drain(&mut engine);
    let second: Vec<_> = first
        .iter()
        .zip(&said)
        .map(|(request, said)| next(said.id.0[0].into(), request, said, 7))
        .collect();
    second
        .iter()
        .for_each(|request| engine.submit(request.clone()).unwrap());
    for (request, said) in second.iter().zip(drain(&mut engine)) {
        assert_eq!(said.reused, 54);
        assert!(close(&said.logprobs, &full(&weights(1), request, &said.output_ids)));
    }
}

#[test]
fn equal_prompts_that_are_known_are_shared_too() {
    let mut engine = engine(OPTIONS);
    one(&mut engine, &turn(1, &prompt(3, 60), 2));
    let again: Vec<_> = (2..8)
        .map(|n| turn(n, &[prompt(3, 60), vec![1, 2]].concat(), 6))
        .collect();
    again.iter().for_each(|request| engine.submit(request.clone()).unwrap());
    for (request, said) in again.iter().zip(drain(&mut engine)) {
        assert_eq!(said.reused, 60);
        assert!(close(&said.logprobs, &full(&weights(1), request, &said.output_ids)));
    }
}

#[test]
fn a_part_of_what_was_said_serves_too() {
    let mut engine = engine(OPTIONS);
    let first = turn(1, &prompt(1, 40), 20);
    one(&mut engine, &first);
    // Like after reasoning was cut out: the same beginning, then a different continuation.
    let second = turn(2, &[&first.prompt_ids[..], &prompt(9, 12)].concat(), 8);
    let said = one(&mut engine, &second);
    assert!((40..52).contains(&said.reused), "{}", said.reused);
    assert!(close(&said.logprobs, &full(&weights(1), &second, &said.output_ids)));
}

/// A turn under weights 1, and the next one after weights 2 have arrived.
fn across(swap: Swap) -> (GenRequest, Finished) {
    let mut engine = engine(EngineOptions { swap, ..OPTIONS });
    let first = turn(1, &prompt(1, 40), 6);
    let said = one(&mut engine, &first);
    engine.swap(Published::new(weights(2), version(2))).unwrap();
    let second = next(2, &first, &said, 9);
    let said = one(&mut engine, &second);
    assert_eq!(said.spans.len(), 1);
    assert_eq!(said.spans[0].version, version(2));
    (second, said)
}

#[test]
fn in_place_goes_on_from_old_weights_and_says_so() {
    let (second, said) = across(Swap::InPlace);
    assert_eq!((said.oldest_kv, said.reused), (version(1), 45));
    assert!(!close(&said.logprobs, &full(&weights(2), &second, &said.output_ids)));
}

#[test]
fn the_other_swap_modes_recompute_with_the_new_weights() {
    for swap in [Swap::Retract, Swap::Drain] {
        let (second, said) = across(swap);
        assert_eq!((said.oldest_kv, said.reused), (version(2), 0));
        assert!(close(&said.logprobs, &full(&weights(2), &second, &said.output_ids)));
    }
}

/// Pinned before or after the new weights arrived; generations active meanwhile leave nothing in
/// the cache.
#[test]
fn pinned_nothing_begins_with_what_earlier_weights_computed() {
    for pinned_first in [true, false] {
        let mut engine = engine(OPTIONS);
        let first = turn(1, &prompt(1, 40), 6);
        let said = one(&mut engine, &first);
        let under_way = turn(3, &prompt(5, 50), 12);
        engine.submit(under_way.clone()).unwrap();
        drop(engine.step().unwrap());
        if pinned_first {
            engine.pin(true);
        }
        engine.swap(Published::new(weights(2), version(2))).unwrap();
        engine.pin(true);
        let mixed = drain(&mut engine).remove(0);
        assert_eq!(mixed.oldest_kv, version(1), "what was under way went on");
        let second = next(2, &first, &said, 9);
        let after = one(&mut engine, &second);
        assert_eq!((after.oldest_kv, after.reused), (version(2), 0));
        assert!(close(&after.logprobs, &full(&weights(2), &second, &after.output_ids)));
        let fresh = one(&mut engine, &next(4, &under_way, &mixed, 9));
        assert_eq!((fresh.oldest_kv, fresh.reused), (version(2), 0));
        let third = next(5, &second, &after, 9);
        let said = one(&mut engine, &third);
        assert_eq!(said.oldest_kv, version(2));
        assert!(said.reused > 40, "what these weights computed serves: {}", said.reused);
    }
}

#[test]
fn let_go_it_reuses_across_versions_again() {
    let mut engine = engine(OPTIONS);
    engine.pin(true);
    engine.pin(false);
    let first = turn(1, &prompt(1, 40), 6);
    let said = one(&mut engine, &first);
    engine.swap(Published::new(weights(2), version(2))).unwrap();
    let said = one(&mut engine, &next(2, &first, &said, 9));
    assert_eq!((said.oldest_kv, said.reused), (version(1), 45));
}

#[test]
fn a_wave_sees_nothing_of_what_was_said_before() {
    let wave = |keep| -> Vec<_> {
        let make = |n| GenRequest {
            keep,
            ..turn(n, &[prompt(1, 40), vec![n as u32]].concat(), 6)
        };
        (0..4).map(make).collect()
    };
    let mut used = engine(OPTIONS);
    one(&mut used, &turn(9, &prompt(1, 40), 6));
    let after = used.run_wave(wave(true)).unwrap();
    assert_eq!(after, engine(OPTIONS).run_wave(wave(false)).unwrap());
    assert_eq!(after, used.run_wave(wave(true)).unwrap(), "nor of an earlier wave");
    assert!(after.iter().all(|said| said.reused == 0));
}

#[test]
fn a_long_prompt_does_not_hold_up_the_others() {
    let mut engine = engine(EngineOptions {
        prefill_tokens: 10,
        ..OPTIONS
    });
    let (short, long) = (request(1, &[3, 4], 40), request(2, &prompt(5, 100), 3));
    engine.submit(short.clone()).unwrap();
    engine.step().unwrap();
    engine.submit(long.clone()).unwrap();
    let before = engine.rows[0].made();
    for step in 1..=9 {
        assert!(engine.step().unwrap().is_empty());
        assert_eq!(engine.rows[0].made(), before + step, "a token at every step");
        assert_eq!((engine.rows.len(), engine.pending()), (1, 2));
    }
    engine.step().unwrap();
    assert_eq!(engine.rows.len(), 2, "whole after ten steps of ten tokens");
    for (request, said) in [short, long].iter().zip(drain(&mut engine)) {
        assert!(close(&said.logprobs, &full(&weights(1), request, &said.output_ids)));
        assert_eq!(said.finish, Finish::Length);
    }
}

#[test]
fn a_request_joins_the_computation_of_its_long_prompt() {
    let mut engine = engine(EngineOptions {
        prefill_tokens: 10,
        ..OPTIONS
    });
    engine.submit(request(1, &prompt(5, 60), 3)).unwrap();
    engine.step().unwrap();
    // The remaining tokens delay neither an equal prompt nor, after that has joined, a short one.
    engine.submit(request(2, &prompt(5, 60), 3)).unwrap();
    engine.step().unwrap();
    assert_eq!((engine.filling.len(), engine.filling[0].pending()), (1, 2));
    for said in drain(&mut engine) {
        let asked = request(0, &prompt(5, 60), 3);
        assert!(close(&said.logprobs, &full(&weights(1), &asked, &said.output_ids)));
    }
}

#[test]
fn after_a_failed_step_a_wave_has_nothing_to_wait_for() {
    let mut engine = engine(OPTIONS);
    engine.submit(request(1, &[3, 4], 30)).unwrap();
    engine.step().unwrap();
    let broken = weights(1);
    let mut numbers = broken.flat().shallow_clone();
    let _ = numbers.fill_(f64::NAN);
    // The failed step already had a result: that of a request for one token.
    engine.done.push(Finished {
        id: id(2),
        output_ids: vec![1],
        logprobs: vec![0.0],
        log_kept: Vec::new(),
        top: Vec::new(),
        spans: Vec::new(),
        oldest_kv: version(1),
        reused: 0,
        prompt: None,
        finish: Finish::Length,
        times: Times::begun(std::time::Instant::now()),
    });
    engine.swap(Published::new(broken, version(2))).unwrap();
    assert!(matches!(engine.step(), Err(EngineError::NotFinite { .. })));
    engine.abort_all().unwrap();
    engine.swap(Published::new(weights(1), version(3))).unwrap();
    assert!(engine.is_idle());
    assert_eq!(engine.run_wave(vec![request(5, &[3], 4)]).unwrap().len(), 1);
}

#[test]
fn weights_that_come_while_a_prompt_is_computed() {
    for swap in [Swap::InPlace, Swap::Retract, Swap::Drain] {
        let mut engine = engine(EngineOptions {
            prefill_tokens: 30,
            swap,
            ..OPTIONS
        });
        let long = request(1, &prompt(5, 100), 4);
        engine.submit(long.clone()).unwrap();
        engine.step().unwrap();
        engine.swap(Published::new(weights(2), version(2))).unwrap();
        let said = drain(&mut engine).remove(0);
        let (kv, made, whole) = match swap {
            Swap::InPlace => (1, 2, None),
            Swap::Retract => (2, 2, Some(2)),
            Swap::Drain => (1, 1, Some(1)),
        };
        assert_eq!(
            (said.oldest_kv, said.spans[0].version),
            (version(kv), version(made)),
            "{swap:?}"
        );
        if let Some(seed) = whole {
            assert!(
                close(&said.logprobs, &full(&weights(seed), &long, &said.output_ids)),
                "{swap:?}"
            );
        }
        assert_eq!(engine.version(), version(2));
    }
}

#[test]
fn what_is_aborted_while_its_prompt_is_computed_is_gone() {
    let options = EngineOptions {
        prefill_tokens: 10,
        ..OPTIONS
    };
    let mut engine = engine(options);
    for n in 1..=2 {
        engine.submit(request(n, &prompt(5, 90), 4)).unwrap();
    }
    engine.step().unwrap();
    engine.submit(request(3, &prompt(5, 90), 4)).unwrap();
    assert!(engine.abort(id(1)).unwrap());
    assert_eq!(engine.pending(), 2);
    let said = drain(&mut engine);
    assert_eq!(said.iter().map(|said| said.id).collect::<Vec<_>>(), [id(2), id(3)]);
    engine.submit(request(4, &prompt(6, 90), 4)).unwrap();
    engine.step().unwrap();
    assert_eq!(engine.abort_all().unwrap(), [id(4)]);
    assert!(engine.is_idle());
    let again = request(4, &prompt(6, 90), 4);
    let said = one(&mut engine, &again);
    assert!(close(&said.logprobs, &full(&weights(1), &again, &said.output_ids)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Conversations that continue, abort and are kept or not, with little room. Reuse must not
    /// change the log-probs.
    #[test]
    fn any_conversations_say_what_the_full_forward_says(
        ops in prop::collection::vec((0u8..8, 0usize..6), 1..60),
        slots in 1usize..5,
        room in 0usize..200,
        retract: bool,
    ) {
        let bytes = room * engine(OPTIONS).cache.bytes_per_token();
        let swap = if retract { Swap::Retract } else { Swap::InPlace };
        let mut engine = engine(EngineOptions { slots, prefill_tokens: 25, prefix_cache: bytes, cache: None, swap, deterministic: false, prepack: true });
        let mut talks: Vec<GenRequest> = (0..6).map(|n| turn(n, &prompt(n as u32 / 3, 34), 3)).collect();
        let mut open = [false; 6];
        let (mut fresh, mut step) = (100, 1);
        for (op, n) in ops {
            match op {
                0..=2 if !open[n] => {
                    engine.submit(talks[n].clone()).unwrap();
                    open[n] = true;
                }
                3 => {
                    prop_assert_eq!(engine.abort(talks[n].id).unwrap(), open[n]);
                    open[n] = false;
                }
                4 => {
                    step += 1;
                    prop_assert!(engine.swap(Published::new(weights(1), version(step))).unwrap());
                }
                _ => for said in engine.step().unwrap() {
                    let n = talks.iter().position(|talk| talk.id == said.id).unwrap();
                    prop_assert!(open[n]);
                    open[n] = false;
                    prop_assert!(close(&said.logprobs, &full(&weights(1), &talks[n], &said.output_ids)));
                    fresh += 1;
                    talks[n] = if talks[n].prompt_ids.len() < 100 {
                        next(fresh, &talks[n], &said, 1 + fresh as u32 % 9)
                    } else {
                        turn(fresh, &prompt(n as u32, 34), 3)
                    };
                },
            }
            prop_assert_eq!(engine.pending(), open.iter().filter(|open| **open).count());
        }
        let left = drain(&mut engine);
        for said in &left {
            let talk = talks.iter().find(|talk| talk.id == said.id).unwrap();
            prop_assert!(close(&said.logprobs, &full(&weights(1), talk, &said.output_ids)));
        }
        prop_assert_eq!(left.len(), open.iter().filter(|open| **open).count());

    }
}

//! An engine with a bound on the memory of its slots.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::engine::{CacheLimit, EngineError, RequestFault};
use crate::model::{Slots, room_of};

/// Bytes of one token's keys and values in f32.
const TOKEN: usize = 256;
/// Five rows of the whole context, of eight slots.
const TIGHT: usize = 5 * 128;

/// Room for this number of tokens.
pub(in crate::engine) fn limit(tokens: usize) -> CacheLimit {
    CacheLimit {
        bytes: tokens * TOKEN,
        longest: 1,
    }
}

fn bounded(tokens: usize) -> EngineOptions {
    EngineOptions {
        cache: Some(limit(tokens)),
        ..OPTIONS
    }
}

/// Twelve short requests, six long ones, and so on; some have the same prompt.
fn mixed(count: u64) -> Vec<GenRequest> {
    let make = |n: u64| {
        let (length, salt) = match n % 18 {
            0..12 => (3 + n % 7, n),
            12..15 => (70 + n % 30, n),
            _ => (60, 1),
        };
        let prompt: Vec<u32> = (0..length)
            .map(|i| ((salt * 11 + i * 17 + i * i) % 40) as u32)
            .collect();
        GenRequest {
            keep: n.is_multiple_of(2),
            ..request(n, &prompt, 1 + (n * 7 % 40) as u32)
        }
    };
    (0..count).map(make).collect()
}

/// Checks the promises of a bounded engine between two steps.
fn check(engine: &Engine, tokens: usize) {
    let live = engine.rows.iter().map(|row| room_of(row.request.reach(128)));
    assert!(engine.rows.len() * live.max().unwrap_or(0) <= tokens);
    let Slots { rows, room } = engine.cache.slots();
    assert!(rows * room <= tokens && engine.rows.len() <= rows);
    let waiting: Vec<_> = engine.waiting.iter().map(|request| request.id).collect();
    assert!(waiting.is_sorted(), "no request overtakes another");
}

/// Runs requests to their end, in steps, with new copies of the same weights in between. Returns
/// the results in the order of the requests, and how often slots moved.
fn run(options: EngineOptions, requests: &[GenRequest]) -> (Vec<Finished>, u64) {
    let mut engine = engine(options);
    let (memory, tokens) = (engine.cache.memory(), options.cache.map(|limit| limit.bytes / TOKEN));
    let (mut all, mut steps) = (Vec::new(), 0);
    let mut requests = requests.iter().cloned().peekable();
    while requests.peek().is_some() || !engine.is_idle() {
        for request in requests.by_ref().take(3) {
            engine.submit(request).unwrap();
        }
        all.append(&mut engine.step().unwrap());
        steps += 1;
        if steps % 20 == 0 {
            engine.swap(Published::new(weights(1), version(1 + steps))).unwrap();
        }
        if let Some(tokens) = tokens {
            check(&engine, tokens);
            assert_eq!(engine.cache.memory(), memory, "one storage");
        }
    }
    all.sort_by_key(|finished| finished.id);
    (all, engine.cache.layout())
}

#[test]
fn a_tight_cache_gives_the_results_of_a_free_one() {
    let requests = mixed(54);
    for swap in [Swap::InPlace, Swap::Retract, Swap::Drain] {
        for prefix_cache in [0, 1 << 20] {
            let options = EngineOptions {
                swap,
                prefix_cache,
                deterministic: of_tests() == tch::Device::Cpu,
                ..OPTIONS
            };
            let (wanted, _) = run(options, &requests);
            let (found, moves) = run(
                EngineOptions {
                    cache: bounded(TIGHT).cache,
                    ..options
                },
                &requests,
            );
            assert!(moves > 2, "{moves} moves");
            assert_eq!(found.len(), requests.len());
            for (a, b) in wanted.iter().zip(&found) {
                assert_eq!(a.output_ids, b.output_ids, "{swap:?}");
                assert!(!options.deterministic || a.logprobs == b.logprobs, "{swap:?}");
            }
        }
    }
}

#[test]
fn in_batches_log_probs_are_those_of_the_full_forward() {
    let requests = mixed(54);
    for swap in [Swap::InPlace, Swap::Retract, Swap::Drain] {
        let (found, _) = run(EngineOptions { swap, ..bounded(TIGHT) }, &requests);
        assert_eq!(found.len(), requests.len());
        for (request, finished) in requests.iter().zip(&found) {
            assert!(close(
                &finished.logprobs,
                &full(&weights(1), request, &finished.output_ids)
            ));
        }
    }
}

#[test]
fn a_huge_bound_changes_nothing() {
    let requests = mixed(30);
    let mut free = engine(OPTIONS);
    let wanted = free.run_wave(requests[..20].to_vec()).unwrap();
    let mut other = engine(bounded(1 << 16));
    let alone: Vec<_> = requests[..20].to_vec();
    let found = other.run_wave(alone).unwrap();
    for (a, b) in wanted.iter().zip(&found) {
        assert_eq!(a.output_ids, b.output_ids);
        assert!(close(&a.logprobs, &b.logprobs));
    }
    assert_eq!(free.cache.layout(), other.cache.layout(), "slots moved as often");
}

#[test]
fn rows_wait_for_room_in_their_order() {
    let mut engine = engine(EngineOptions {
        prefill_tokens: 1000,
        ..bounded(TIGHT)
    });
    // Six rows of 64 tokens; the long one makes all slots long, so the last one waits.
    for n in 0..4 {
        engine.submit(request(n, &[n as u32, 2], 30)).unwrap();
    }
    engine.submit(request(4, &[5; 70], 30)).unwrap();
    engine.submit(request(5, &[6, 7], 30)).unwrap();
    engine.step().unwrap();
    assert_eq!((engine.rows.len(), engine.waiting.len()), (5, 1));
    assert!(engine.abort(id(4)).unwrap());
    engine.step().unwrap();
    assert_eq!((engine.rows.len(), engine.waiting.len()), (5, 0), "its room is free");
    assert_eq!(drain(&mut engine).len(), 5);
    // A long one that does not fit yet holds the line.
    for n in 10..16 {
        engine.submit(request(n, &[n as u32, 2], 30)).unwrap();
    }
    engine.submit(request(16, &[5; 70], 30)).unwrap();
    engine.submit(request(17, &[7, 2], 30)).unwrap();
    engine.step().unwrap();
    assert_eq!((engine.rows.len(), engine.waiting.len()), (6, 2));
    assert_eq!(drain(&mut engine).len(), 8);
}

#[test]
fn a_request_beyond_the_cache_is_refused_with_both_numbers() {
    let mut engine = engine(bounded(64));
    let refused = |engine: &Engine, prompt: &[u32], new| engine.check(&request(1, prompt, new)).unwrap_err();
    let fault = RequestFault::BeyondCache { len: 65, most: 64 };
    assert_eq!(refused(&engine, &[1; 60], 5), fault);
    assert!(matches!(
        engine.submit(request(1, &[1; 60], 5)),
        Err(EngineError::BadRequest { source, .. }) if source == fault
    ));
    let text = fault.to_string();
    assert!(text.contains("65 tokens") && text.contains("room for 64"), "{text}");
    assert!(engine.run_wave(vec![request(1, &[1; 60], 5)]).is_err());
    // A request without a slot needs no room, and one at the brim fits.
    for request in [
        request(1, &[1; 100], 1),
        request(2, &[1; 60], 4),
        request(3, &[1; 60], 4),
    ] {
        engine.submit(request).unwrap();
    }
    assert_eq!(drain(&mut engine).len(), 3);
}

#[test]
fn a_cache_that_holds_no_row_is_refused_at_the_start() {
    let start = |bytes, longest| {
        let cache = Some(CacheLimit { bytes, longest });
        Engine::new(
            &test_shape(),
            Published::new(weights(1), version(1)),
            EngineOptions { cache, ..OPTIONS },
        )
    };
    let wide = |longest| start(100 * TOKEN, longest).err();
    assert!(wide(64).is_none());
    assert!(matches!(
        wide(usize::MAX),
        Some(EngineError::CacheTooSmall {
            mib: 0,
            tokens: 128,
            needed: 1
        })
    ));
    let text = wide(65).unwrap().to_string();
    assert!(
        text.contains("engine.cache_mib = 1 or more") && text.contains("65 tokens"),
        "{text}"
    );
    // A pebibyte: the allocator itself fails.
    let refused = start(1 << 50, 1).unwrap_err();
    assert!(refused.is_out_of_memory());
    let text = refused.to_string();
    assert!(text.contains("engine.cache_mib = 1073741824"), "{text}");
}

#[test]
fn a_wave_in_a_tight_cache_is_a_function_of_its_content() {
    let options = EngineOptions {
        deterministic: of_tests() == tch::Device::Cpu,
        ..bounded(TIGHT)
    };
    let free = EngineOptions { cache: None, ..options };
    let wanted = engine(free).run_wave(mixed(30)).unwrap();
    for options in [options, bounded(TIGHT)] {
        let mut used = engine(options);
        let memory = used.cache.memory();
        used.run_wave(mixed(17)).unwrap();
        let found = used.run_wave(mixed(30)).unwrap();
        assert_eq!(found, engine(options).run_wave(mixed(30)).unwrap());
        assert_eq!(used.cache.memory(), memory);
        for (a, b) in wanted.iter().zip(&found) {
            assert_eq!(a.output_ids, b.output_ids);
            assert!(close(&a.logprobs, &b.logprobs));
        }
    }
}

#[test]
fn generations_come_back_as_far_as_there_is_room() {
    let mut engine = engine(EngineOptions {
        prefill_tokens: 1000,
        ..bounded(TIGHT)
    });
    let requests: Vec<_> = (0..5).map(|n| request(n, &[n as u32 + 1; 70], 40)).collect();
    for request in &requests {
        engine.submit(request.clone()).unwrap();
    }
    for _ in 0..8 {
        engine.step().unwrap();
    }
    assert_eq!(engine.rows.len(), 5);
    let mut aside = VecDeque::new();
    for n in 0..5 {
        aside.extend(engine.take_out(id(n)).unwrap());
    }
    // Two other rows took their place.
    for n in 5..7 {
        engine.submit(request(n, &[9; 70], 20)).unwrap();
    }
    engine.step().unwrap();
    let mut all = Vec::new();
    engine.put_back(&mut aside).unwrap();
    assert_eq!((aside.len(), engine.active()), (2, 5), "five rows fit");
    while !(engine.is_idle() && aside.is_empty()) {
        engine.put_back(&mut aside).unwrap();
        all.append(&mut engine.step().unwrap());
        check(&engine, TIGHT);
    }
    all.sort_by_key(|finished| finished.id);
    assert_eq!(all.len(), 7);
    for (request, finished) in requests.iter().zip(&all) {
        assert!(close(
            &finished.logprobs,
            &full(&weights(1), request, &finished.output_ids)
        ));
    }
}

/// Short requests that go on coming must not keep a long one out for ever.
#[test]
fn a_long_generation_comes_back_among_short_requests() {
    let mut engine = engine(EngineOptions {
        prefill_tokens: 1000,
        ..bounded(TIGHT)
    });
    engine.submit(request(0, &[1; 70], 40)).unwrap();
    engine.step().unwrap();
    engine.step().unwrap();
    let mut aside = VecDeque::from([engine.take_out(id(0)).unwrap().unwrap()]);
    let mut next = 1;
    // Rows of different lengths: there is never a step in which all of them end.
    let mut fill = |engine: &mut Engine| {
        while engine.active() + engine.waiting.len() < 8 {
            let short = request(next, &[next as u32 % 7 + 1; 30], 5 + (next % 9) as u32);
            engine.submit(short).unwrap();
            next += 1;
        }
    };
    fill(&mut engine);
    engine.step().unwrap();
    let mut steps = 0;
    while !aside.is_empty() {
        fill(&mut engine);
        engine.put_back(&mut aside).unwrap();
        engine.step().unwrap();
        check(&engine, TIGHT);
        steps += 1;
        assert!(steps < 200, "short requests began before it for ever");
    }
    assert!(steps > 1, "there was no room at first");
    while !engine.is_idle() {
        engine.step().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Every request ends, in any budget that holds it, whatever its length and its neighbours.
    #[test]
    fn every_request_ends(
        sizes in prop::collection::vec((1usize..120, 1u32..40), 1..40),
        tokens in 128usize..2000,
        deterministic in any::<bool>(),
    ) {
        let deterministic = deterministic && of_tests() == tch::Device::Cpu;
        let requests: Vec<_> = (0..).zip(&sizes).map(|(n, (length, new))| request(n, &vec![n as u32 % 40; *length], *new)).collect();
        let (found, _) = run(EngineOptions { deterministic, ..bounded(tokens) }, &requests);
        prop_assert_eq!(found.len(), requests.len());
    }
}

//! Takes generations out and puts them back, on a seeded tiny model.

use std::collections::VecDeque;

use broker::ids::WeightVersion;
use configs::Swap;

use super::{OPTIONS, request};
use crate::engine::{Engine, EngineOptions, Finished, GenRequest};
use crate::model::{Init, Weights, test_shape};
use crate::weights::Published;

fn engine(slots: usize, swap: Swap) -> Engine {
    engine_of(slots, 16, swap)
}

fn engine_of(slots: usize, prefill_tokens: usize, swap: Swap) -> Engine {
    let options = EngineOptions {
        slots,
        prefill_tokens,
        swap,
        ..OPTIONS
    };
    Engine::new(&test_shape(), weights(1), options).unwrap()
}

fn weights(step: u64) -> Published {
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.2,
    };
    let version = WeightVersion { lineage: 1, step };
    Published::new(Weights::random(&test_shape(), init, step).unwrap(), version)
}

/// Eight prompts with long outputs, four of them equal and long enough to be shared.
fn requests() -> Vec<GenRequest> {
    let long: Vec<u32> = (0..50).map(|i| i * 7 % 40).collect();
    (0..8)
        .map(|n: u64| match n {
            0..=3 => request(n, &long, 30),
            _ => request(n, &[n as u32, 7, 9], 20 + n as u32),
        })
        .collect()
}

fn drain(engine: &mut Engine, ended: &mut Vec<Finished>) {
    while !engine.is_idle() {
        ended.append(&mut engine.step().unwrap());
    }
    ended.sort_by_key(|finished| finished.id);
}

fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-4)
}

#[test]
fn what_is_taken_out_and_put_back_says_what_it_would_have_said() {
    let (mut undisturbed, mut all) = (engine_of(8, 64, Swap::InPlace), Vec::new());
    requests()
        .into_iter()
        .for_each(|request| undisturbed.submit(request).unwrap());
    drain(&mut undisturbed, &mut all);

    let (mut engine, mut ended) = (engine_of(8, 64, Swap::InPlace), Vec::new());
    requests()
        .into_iter()
        .for_each(|request| engine.submit(request).unwrap());
    for round in 0..5 {
        for _ in 0..3 {
            ended.append(&mut engine.step().unwrap());
        }
        let shared = engine.rows.iter().filter(|row| row.shared.is_some()).count();
        assert_eq!(shared, if round == 0 { 4 } else { 0 }, "each comes back on its own");
        let mut aside = VecDeque::new();
        for request in requests() {
            if ended.iter().any(|one| one.id == request.id) {
                continue;
            }
            match engine.take_out(request.id).unwrap() {
                Some(one) => aside.push_back(one),
                None => engine.submit(request).unwrap(),
            }
        }
        let waiting = engine.pending();
        assert_eq!(waiting + aside.len() + ended.len(), 8);
        if waiting == 0 {
            // Other requests compute alone in between.
            let wave: Vec<GenRequest> = (10..14).map(|n| request(n, &[1, 2], 9)).collect();
            assert_eq!(engine.run_wave(wave).unwrap().len(), 4);
        }
        while !aside.is_empty() {
            engine.put_back(&mut aside).unwrap();
        }
    }
    drain(&mut engine, &mut ended);
    assert_eq!(ended.len(), 8);
    for (one, other) in ended.iter().zip(&all) {
        assert_eq!((one.id, &one.output_ids), (other.id, &other.output_ids));
        assert_eq!(one.spans, other.spans);
        assert!(close(&one.logprobs, &other.logprobs));
    }
}

#[test]
fn only_as_many_come_back_as_have_a_slot_and_in_pieces() {
    let mut engine = engine(2, Swap::InPlace);
    let mut aside = VecDeque::new();
    for request in requests() {
        let id = request.id;
        engine.submit(request).unwrap();
        while engine.under_way().count() == 0 {
            engine.step().unwrap();
        }
        aside.extend(engine.take_out(id).unwrap());
    }
    assert_eq!((aside.len(), engine.pending()), (8, 0));
    engine.put_back(&mut aside).unwrap();
    engine.put_back(&mut aside).unwrap();
    assert_eq!((aside.len(), engine.pending()), (6, 2), "two slots");
    // More than 50 tokens each, and a step computes 16.
    for _ in 0..3 {
        engine.step().unwrap();
        assert_eq!(engine.under_way().count(), 0);
    }
    // A returning generation can be taken out again with all its tokens.
    let first = requests()[0].id;
    let again = engine.take_out(first).unwrap().unwrap();
    assert_eq!((again.id(), engine.pending()), (first, 1));
    aside.push_front(again);
    for _ in 0..9 {
        engine.put_back(&mut aside).unwrap();
        engine.step().unwrap();
    }
    assert_eq!((aside.len(), engine.under_way().count()), (6, 2));
}

#[test]
fn put_back_waits_for_weights_then_reports_both_versions() {
    let mut engine = engine(8, Swap::Drain);
    let mut all = requests();
    let (visitor, own) = (all.pop().unwrap(), all.pop().unwrap());
    let (id, wanted) = (visitor.id, visitor.max_new_tokens);
    engine.submit(visitor).unwrap();
    engine.submit(own).unwrap();
    engine.step().unwrap();
    assert!(engine.drains());
    let mut aside: VecDeque<_> = engine.take_out(id).unwrap().into_iter().collect();
    assert_eq!(aside[0].id(), id);
    engine.swap(weights(2)).unwrap();
    engine.put_back(&mut aside).unwrap();
    assert_eq!(aside.len(), 1, "it would hold the weights up");
    let mut ended = Vec::new();
    drain(&mut engine, &mut ended);
    engine.put_back(&mut aside).unwrap();
    drain(&mut engine, &mut ended);
    let visitor = ended.into_iter().find(|one| one.id == id).unwrap();
    let steps: Vec<u64> = visitor.spans.iter().map(|span| span.version.step).collect();
    assert_eq!(steps, [1, 2]);
    assert_eq!(visitor.spans[1].end, wanted);
}

#[test]
fn a_generation_is_seen_as_it_is_made() {
    let mut engine = engine(8, Swap::InPlace);
    let request = request(1, &[3, 4], 5);
    engine.submit(request.clone()).unwrap();
    assert_eq!(engine.under_way().count(), 0, "it has made nothing");
    engine.step().unwrap();
    let seen: Vec<u32> = engine.under_way().flat_map(|one| one.output_ids.to_vec()).collect();
    assert_eq!(seen.len(), 2, "the prompt's step makes two");
    let mut ended = Vec::new();
    drain(&mut engine, &mut ended);
    assert_eq!(ended[0].output_ids[..2], seen);
    assert!(engine.take_out(request.id).unwrap().is_none(), "it has ended");
}

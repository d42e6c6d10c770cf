//! The most likely tokens that an engine reports, compared with a full log-softmax.

use std::collections::VecDeque;

use tch::{Kind, Tensor};

use super::{OPTIONS, close, drain, engine, id, request, weights};
use crate::device::of_tests;
use crate::engine::{Finished, GenRequest};
use crate::model::{Decoder, RowBatch, test_shape};

/// log-softmax(logits / temperature) in each place of an output, by one full forward pass:
/// `[output, vocab]`.
fn full(request: &GenRequest, output: &[u32]) -> Tensor {
    let _guard = tch::no_grad_guard();
    let shape = test_shape();
    let weights = weights(1);
    let decoder = Decoder::new(&shape, &weights).unwrap();
    let row = [&request.prompt_ids[..], output].concat();
    let batch = RowBatch::new(&shape, &[row], of_tests()).unwrap();
    let logits = decoder.logits(&decoder.hidden(&batch).unwrap()).unwrap() / f64::from(request.sampling.divisor());
    let first = request.prompt_ids.len() as i64 - 1;
    logits
        .log_softmax(-1, Kind::Float)
        .narrow(0, first, output.len() as i64)
}

/// Checks that each place has its `k` most likely tokens in order, and that no missing token is
/// more likely.
fn check(request: &GenRequest, finished: &Finished) {
    let k = usize::from(request.top);
    let all = full(request, &finished.output_ids);
    assert_eq!(finished.top.len(), if k > 0 { finished.output_ids.len() } else { 0 });
    for (place, top) in finished.top.iter().enumerate() {
        let row = Vec::<f32>::try_from(all.get(place as i64)).unwrap();
        let said: Vec<f32> = top.iter().map(|one| one.logprob).collect();
        let wanted: Vec<f32> = top.iter().map(|one| row[one.id as usize]).collect();
        assert!(close(&said, &wanted), "{said:?} and {wanted:?}");
        assert!(said.is_sorted_by(|a, b| a >= b));
        let mut sorted = row;
        sorted.sort_by(|a, b| b.total_cmp(a));
        assert!(close(&said, &sorted[..k.min(sorted.len())]), "{said:?} and {sorted:?}");
        // The chosen token has the same number there, to the bit.
        if let Some(one) = top.iter().find(|one| one.id == finished.output_ids[place]) {
            assert_eq!(one.logprob.to_bits(), finished.logprobs[place].to_bits());
        }
    }
}

/// Separate and shared prompts, in pieces and whole; greedy, tempered and truncated.
fn requests() -> Vec<GenRequest> {
    let long: Vec<u32> = (0..80).map(|i| i * 7 % 40).collect();
    (0..8)
        .map(|n: u64| {
            let prompt = if n < 4 {
                &long[..]
            } else {
                &long[n as usize..9 + n as usize]
            };
            let mut one = request(n, prompt, 5 + n as u32);
            one.sampling.temperature = [1.0, 0.5, 0.0][n as usize % 3];
            one.sampling.top_k = if n.is_multiple_of(2) { 0 } else { 3 };
            one.top = [0, 1, 5, 20][n as usize % 4];
            one
        })
        .collect()
}

#[test]
fn the_most_likely_tokens_are_those_of_the_full_log_softmax() {
    let requests = requests();
    let mut engine = engine(OPTIONS);
    requests
        .iter()
        .for_each(|request| engine.submit(request.clone()).unwrap());
    let kept = drain(&mut engine);
    requests
        .iter()
        .zip(&kept)
        .for_each(|(request, one)| check(request, one));
    // They change nothing else, also in a wave.
    let plain = requests.iter().map(|request| GenRequest {
        top: 0,
        ..request.clone()
    });
    let (with, without) = (engine.run_wave(requests.clone()), engine.run_wave(plain.collect()));
    let (with, without) = (with.unwrap(), without.unwrap());
    for ((request, with), without) in requests.iter().zip(with).zip(without) {
        check(request, &with);
        assert_eq!(
            Finished {
                top: Vec::new(),
                ..with
            },
            without
        );
    }
}

#[test]
fn each_token_reports_the_probability_that_truncation_kept() {
    let (mut engine, requests) = (engine(OPTIONS), requests());
    requests
        .iter()
        .for_each(|request| engine.submit(request.clone()).unwrap());
    for (request, one) in requests.iter().zip(drain(&mut engine)) {
        if request.sampling.top_k == 0 {
            assert!(one.log_kept.is_empty(), "nothing was left out");
            continue;
        }
        assert_eq!(one.log_kept.len(), one.output_ids.len());
        let all = full(request, &one.output_ids);
        for (place, log_kept) in one.log_kept.iter().enumerate() {
            let mut row = Vec::<f32>::try_from(all.get(place as i64)).unwrap();
            row.sort_by(|a, b| b.total_cmp(a));
            let kept: f64 = row[..3].iter().map(|logprob| f64::from(*logprob).exp()).sum();
            let wanted = if request.sampling.temperature == 0.0 {
                0.0
            } else {
                kept.ln()
            };
            assert!((f64::from(*log_kept) - wanted).abs() < 1e-4, "{log_kept} {wanted}");
        }
    }
}

#[test]
fn a_taken_out_request_keeps_its_most_likely_tokens() {
    let (mut engine, wanted) = (
        engine(OPTIONS),
        GenRequest {
            top: 4,
            ..request(1, &[3, 4, 5], 9)
        },
    );
    engine.submit(wanted.clone()).unwrap();
    engine.step().unwrap();
    assert!(
        engine
            .under_way()
            .all(|one| one.top.len() == one.output_ids.len() && !one.top.is_empty())
    );
    let mut aside = VecDeque::from([engine.take_out(id(1)).unwrap().unwrap()]);
    engine.run_wave(vec![request(2, &[7], 3)]).unwrap();
    engine.put_back(&mut aside).unwrap();
    check(&wanted, &drain(&mut engine)[0]);
}

//! Log-probs of prompts, compared with the trainer's for the same tokens.

mod exact;

use std::collections::VecDeque;
use std::sync::Arc;

use broker::protocol::engine::TopLogprob;
use broker::protocol::turn::Finish;
use configs::Swap;
use tch::{Kind, Tensor};

use super::{close, drain, engine, id, request, version, weights};
use crate::device::of_tests;
use crate::engine::{Engine, EngineError, EngineOptions, Finished, GenRequest, PromptScores, RequestFault};
use crate::loss::head::{HeadInput, values};
use crate::model::{Decoder, ModelShape, Parts, RowBatch, test_shape};
use crate::weights::Published;

/// Prompts of more than 25 tokens are computed in several pieces.
const OPTIONS: EngineOptions = EngineOptions {
    prefill_tokens: 25,
    ..super::OPTIONS
};

fn prompt(salt: u32, length: u32) -> Vec<u32> {
    (0..length).map(|i| (salt * 13 + i * i + i * 3) % 40).collect()
}

/// Asks for the log-probs of its prompt.
fn scored(n: u64, prompt: &[u32], max_new_tokens: u32, top: u8) -> GenRequest {
    GenRequest {
        prompt_top: Some(top),
        ..request(n, prompt, max_new_tokens)
    }
}

fn run(engine: &mut Engine, requests: &[GenRequest]) -> Vec<Finished> {
    requests
        .iter()
        .for_each(|request| engine.submit(request.clone()).unwrap());
    drain(engine)
}

/// The trainer's log-probs: the whole row, and its own head.
fn trained(shape: &ModelShape, parts: Parts<'_>, prompt: &[u32]) -> Vec<f32> {
    let _guard = tch::no_grad_guard();
    let decoder = Decoder::new(shape, parts).unwrap();
    let batch = RowBatch::new(shape, &[prompt], of_tests()).unwrap();
    let count = prompt.len() - 1;
    let hidden = decoder.hidden(&batch).unwrap().narrow(0, 0, count as i64);
    let targets: Vec<i64> = prompt[1..].iter().map(|&id| i64::from(id)).collect();
    let input = HeadInput {
        hidden: &hidden,
        matrix: decoder.head_weight(),
        adapter: decoder.head_adapter(),
        targets: &targets,
        temperatures: &vec![1.0; count],
        chunk_elements: 1000,
    };
    values(&input).unwrap().logprobs
}

/// In f32 the rounding of a log-prob of -10 is 10 times that of one near 1.
fn near(a: &[f32], b: &[f32]) -> bool {
    let pair = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5 * b.abs().max(1.0);
    a.len() == b.len() && a.iter().zip(b).all(pair)
}

fn spans(scores: &PromptScores) -> Vec<(u64, u32, u32)> {
    let span = |span: &broker::protocol::turn::VersionSpan| (span.version.step, span.start, span.end);
    scores.spans.iter().map(span).collect()
}

/// Checks that each place has its `top` most likely tokens in order, and that no missing token is
/// more likely.
fn check_top(prompt: &[u32], scores: &PromptScores, top: usize) {
    let _guard = tch::no_grad_guard();
    let (shape, weights) = (test_shape(), weights(1));
    let decoder = Decoder::new(&shape, &weights).unwrap();
    let batch = RowBatch::new(&shape, &[prompt], of_tests()).unwrap();
    let all: Tensor = decoder.logits(&decoder.hidden(&batch).unwrap()).unwrap();
    let all = all.log_softmax(-1, Kind::Float);
    assert_eq!(scores.top.len(), if top > 0 { prompt.len() - 1 } else { 0 });
    for (place, likely) in scores.top.iter().enumerate() {
        let row = Vec::<f32>::try_from(all.get(place as i64)).unwrap();
        let said: Vec<f32> = likely.iter().map(|one| one.logprob).collect();
        let own: Vec<f32> = likely.iter().map(|one| row[one.id as usize]).collect();
        let mut sorted = row;
        sorted.sort_by(|a, b| b.total_cmp(a));
        assert!(near(&said, &own), "{said:?} and {own:?}");
        assert!(near(&said, &sorted[..top]), "{said:?} and {sorted:?}");
        assert!(said.is_sorted_by(|a, b| a >= b));
        let is_own = |one: &&TopLogprob| one.id == prompt[place + 1];
        if let Some(one) = likely.iter().find(is_own) {
            assert_eq!(one.logprob.to_bits(), scores.logprobs[place].to_bits());
        }
    }
}

/// Short and long prompts, also of one token, three of them equal, with many new tokens, one and
/// none.
fn mixed() -> Vec<GenRequest> {
    let long = prompt(1, 90);
    vec![
        scored(0, &long, 6, 2),
        scored(1, &long, 0, 2),
        scored(2, &long, 1, 2),
        scored(3, &prompt(2, 9), 5, 0),
        scored(4, &prompt(3, 26), 0, 5),
        scored(5, &prompt(4, 2), 3, 1),
        scored(6, &[7], 2, 3),
        request(7, &prompt(5, 70), 6),
        request(8, &prompt(2, 9), 4),
    ]
}

#[test]
fn prompt_log_probs_are_the_trainers_alone_and_with_others() {
    let (shape, weights) = (test_shape(), weights(1));
    let requests = mixed();
    let together = run(&mut engine(OPTIONS), &requests);
    assert_eq!(together.len(), requests.len());
    for (request, finished) in requests.iter().zip(&together) {
        let alone = run(&mut engine(OPTIONS), std::slice::from_ref(request)).remove(0);
        assert_eq!(alone.output_ids, finished.output_ids);
        assert!(close(&alone.logprobs, &finished.logprobs));
        assert_eq!(finished.output_ids.len(), request.max_new_tokens as usize);
        let (Some(top), Some(scores)) = (request.prompt_top, &finished.prompt) else {
            assert!(request.prompt_top.is_none() && finished.prompt.is_none());
            continue;
        };
        let wanted = trained(&shape, (&weights).into(), &request.prompt_ids);
        assert!(near(&scores.logprobs, &wanted), "{:?} and {wanted:?}", scores.logprobs);
        assert!(near(&alone.prompt.unwrap().logprobs, &wanted));
        check_top(&request.prompt_ids, scores, top.into());
        let length = request.prompt_ids.len() as u32;
        let whole = if length > 1 { vec![(1, 1, length)] } else { Vec::new() };
        assert_eq!(spans(scores), whole);
    }
    // The question does not change the answer.
    let plain = mixed().into_iter().map(|request| GenRequest {
        max_new_tokens: request.max_new_tokens.max(1),
        prompt_top: None,
        ..request
    });
    let plain = run(&mut engine(OPTIONS), &plain.collect::<Vec<_>>());
    for (with, without) in together
        .iter()
        .zip(&plain)
        .filter(|(with, _)| !with.output_ids.is_empty())
    {
        assert_eq!(with.output_ids, without.output_ids);
        assert!(close(&with.logprobs, &without.logprobs));
    }
}

#[test]
fn a_prompt_that_several_ask_about_is_computed_once() {
    let long = prompt(1, 60);
    let requests = [
        scored(0, &long, 3, 4),
        scored(1, &long, 3, 4),
        scored(2, &long, 0, 4),
        scored(3, &long, 0, 1),
        scored(4, &long, 0, 0),
        request(5, &long, 3),
    ];
    let mut engine = engine(OPTIONS);
    requests
        .iter()
        .for_each(|request| engine.submit(request.clone()).unwrap());
    engine.step().unwrap();
    assert_eq!(engine.filling.len(), 1);
    // A request that asks for no more than is recorded joins, from the first token on.
    engine.submit(scored(6, &long, 0, 2)).unwrap();
    engine.step().unwrap();
    assert_eq!((engine.filling.len(), engine.pending()), (1, 7));
    // For a request that asks for more, the prompt is computed again when there is room.
    engine.submit(scored(7, &long, 0, 5)).unwrap();
    engine.step().unwrap();
    assert_eq!((engine.filling.len(), engine.waiting.len()), (0, 1));
    let mut finished = drain(&mut engine);
    finished.retain(|one| one.id == id(7));
    check_top(&long, finished[0].prompt.as_ref().unwrap(), 5);

    let finished = run(&mut engine, &requests);
    let scores: Vec<&Arc<PromptScores>> = finished.iter().filter_map(|one| one.prompt.as_ref()).collect();
    assert_eq!(scores.len(), 5);
    assert!(Arc::ptr_eq(scores[0], scores[1]) && Arc::ptr_eq(scores[0], scores[2]));
    for (scores, top) in scores.iter().zip([4, 4, 4, 1, 0]) {
        check_top(&long, scores, top);
        assert_eq!(scores.logprobs, finished[0].prompt.as_ref().unwrap().logprobs);
    }
}

#[test]
fn without_new_tokens_a_request_ends_with_its_prompt() {
    let mut engine = engine(OPTIONS);
    // The length of the model's context, which leaves no room for a token.
    let brim = prompt(3, test_shape().max_context as u32);
    let finished = run(&mut engine, &[scored(1, &brim, 0, 1), scored(2, &[5], 0, 1)]);
    for one in &finished {
        assert_eq!(
            (one.finish, one.output_ids.len(), one.logprobs.len()),
            (Finish::Length, 0, 0)
        );
        assert!(one.spans.is_empty() && one.top.is_empty());
    }
    assert_eq!(finished[0].prompt.as_ref().unwrap().logprobs.len(), brim.len() - 1);
    assert_eq!(
        finished[1].prompt.as_deref(),
        Some(&PromptScores::default()),
        "nothing is before its only token"
    );
    assert!(engine.is_idle() && engine.rows.is_empty());
    let refused = |request: GenRequest| match engine.check(&request) {
        Err(fault) => fault,
        Ok(()) => panic!("{request:?} is taken"),
    };
    assert!(matches!(refused(scored(3, &brim, 1, 1)), RequestFault::TooLong { .. }));
    assert_eq!(refused(request(3, &[5], 0)), RequestFault::NothingToDo);
    let wave = engine
        .run_wave(vec![scored(1, &[5, 6], 0, 1), scored(2, &[5, 6], 2, 1)])
        .unwrap();
    assert_eq!(wave.iter().map(|one| one.output_ids.len()).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn nothing_that_was_kept_is_begun_with() {
    let mut engine = engine(EngineOptions {
        prefix_cache: 1 << 20,
        ..OPTIONS
    });
    let long = prompt(6, 80);
    let said = GenRequest {
        keep: true,
        ..request(1, &long, 3)
    };
    run(&mut engine, &[said]);
    let plain = run(&mut engine, &[request(2, &long, 2)]).remove(0);
    // A GPU reuses longer prefixes only.
    let is_cpu = of_tests() == tch::Device::Cpu;
    assert_eq!(plain.reused > 0, is_cpu, "it is there");
    let with = run(&mut engine, &[scored(3, &long, 2, 0)]).remove(0);
    assert_eq!(with.reused, 0);
    let wanted = trained(&test_shape(), (&weights(1)).into(), &long);
    assert!(near(&with.prompt.unwrap().logprobs, &wanted));
}

#[test]
fn weights_that_arrive_within_a_prompt_are_reported() {
    let (shape, long) = (test_shape(), prompt(2, 40));
    for (swap, wanted) in [
        (Swap::InPlace, vec![(1, 1, 11), (2, 11, 40)]),
        (Swap::Retract, vec![(2, 1, 40)]),
        (Swap::Drain, vec![(1, 1, 40)]),
    ] {
        let mut engine = engine(EngineOptions {
            swap,
            prefill_tokens: 10,
            ..OPTIONS
        });
        engine.submit(scored(1, &long, 2, 1)).unwrap();
        engine.step().unwrap();
        assert!(engine.swap(Published::new(weights(2), version(2))).unwrap());
        let finished = drain(&mut engine).remove(0);
        let scores = finished.prompt.unwrap();
        assert_eq!(spans(&scores), wanted, "{swap:?}");
        assert_eq!((scores.logprobs.len(), scores.top.len()), (39, 39));
        let (seed, whole) = match swap {
            Swap::InPlace => (1, 10),
            Swap::Retract => (2, 39),
            Swap::Drain => (1, 39),
        };
        let trained = trained(&shape, (&weights(seed)).into(), &long);
        assert!(near(&scores.logprobs[..whole], &trained[..whole]), "{swap:?}");
        if swap == Swap::InPlace {
            assert!(!near(&scores.logprobs[whole..], &trained[whole..]));
        }
    }
}

#[test]
fn broken_weights_are_noticed_in_a_prompt_too() {
    let mut engine = engine(OPTIONS);
    let broken = weights(1);
    let _ = broken.flat().shallow_clone().fill_(f64::NAN);
    engine.swap(Published::new(broken, version(2))).unwrap();
    engine.submit(scored(1, &prompt(1, 90), 0, 0)).unwrap();
    assert!(matches!(engine.step(), Err(EngineError::NotFinite { .. })));
    assert_eq!(engine.abort_all().unwrap(), [id(1)]);
}

#[test]
fn who_is_taken_out_keeps_the_log_probs_of_its_prompt() {
    let mut engine = engine(OPTIONS);
    let (long, short) = (prompt(1, 90), prompt(2, 9));
    for request in [scored(1, &short, 9, 1), scored(2, &long, 3, 1)] {
        engine.submit(request).unwrap();
    }
    engine.step().unwrap();
    let reported: Vec<_> = engine.under_way().map(|one| (one.id, one.prompt.is_some())).collect();
    assert_eq!(reported, [(id(1), true)]);
    let mut aside = VecDeque::from([engine.take_out(id(1)).unwrap().unwrap()]);
    assert!(engine.take_out(id(2)).unwrap().is_none(), "it has made nothing yet");
    engine.run_wave(vec![request(3, &[7], 3)]).unwrap();
    engine.put_back(&mut aside).unwrap();
    let finished = run(&mut engine, &[scored(2, &long, 3, 1)]);
    for (one, prompt) in finished.iter().zip([&short, &long]) {
        let wanted = trained(&test_shape(), (&weights(1)).into(), prompt);
        assert!(near(&one.prompt.as_ref().unwrap().logprobs, &wanted));
    }
}

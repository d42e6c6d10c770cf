//! Decoding withstands any bytes: round trips, damaged bytes, false lengths, content that cannot be
//! true.

use bincode::{Decode, Encode};
use broker::codec::{self, CodecError};
use broker::protocol::bundle::{Bundle, BundleContent, Row, Sample};
use broker::protocol::engine::{EngineCommand, EngineEvent, EngineProgress, TopLogprob};
use broker::protocol::reserve::{ReserveAnswerFrame, ReserveFrame};
use broker::protocol::task::Task;
use broker::protocol::train::{TrainCommand, TrainReply};
use broker::protocol::turn::{Finish, Generation, LogProbs, ResultFrame, TurnFrame, TurnOutcome};
use proptest::collection::vec;
use proptest::prelude::*;

use super::sample;

/// Decodes as every type there is; only a panic fails.
fn decode_as_anything(bytes: &[u8]) {
    let _ = codec::decode::<TurnFrame>(bytes).map(|frame| frame.validate());
    let _ = codec::decode::<ResultFrame>(bytes).map(|frame| frame.validate());
    let _ = codec::decode::<Bundle>(bytes).map(|bundle| bundle.validate());
    let _ = codec::decode::<ReserveFrame>(bytes);
    let _ = codec::decode::<ReserveAnswerFrame>(bytes);
    let _ = codec::decode::<Vec<TrainCommand>>(bytes);
    let _ = codec::decode::<Vec<TrainReply>>(bytes);
    let _ = codec::decode::<Vec<EngineCommand>>(bytes);
    let _ = codec::decode::<Vec<EngineEvent>>(bytes);
    let _ = Task::parse(bytes, 1 << 20);
}

fn every_message() -> Vec<Vec<u8>> {
    vec![
        codec::encode(&sample::turn_frame()),
        codec::encode(&sample::result_frame()),
        codec::encode(&sample::bundle()),
        codec::encode(&sample::empty_bundle()),
        codec::encode(&sample::dead_bundle()),
        codec::encode(&sample::reserve_frame()),
        codec::encode(&sample::reserve_answers()),
        codec::encode(&sample::train_commands()),
        codec::encode(&sample::train_replies()),
        codec::encode(&sample::engine_commands()),
        codec::encode(&sample::engine_events()),
    ]
}

prop_compose! {
    /// A healthy generation: tokens with as many log-probs, cut into spans.
    fn generations()(
        tokens in vec((any::<u32>(), -50f32..=0.0), 0..40),
        cut in 0u32..40,
        prompt_ids in vec(any::<u32>(), 0..20),
        text in ".{0,20}",
        stop in any::<bool>(),
    ) -> Generation {
        let length = u32::try_from(tokens.len()).unwrap();
        let ends = if cut > 0 && cut < length { vec![(0, cut), (cut, length)] } else { vec![(0, length)] };
        let (output_ids, logprobs) = tokens.into_iter().unzip();
        Generation {
            kept: cut,
            prompt_ids,
            output_ids,
            logprobs,
            logprobs_of: LogProbs::Sampled,
            spans: ends.into_iter().filter(|(a, b)| a < b).map(|(a, b)| sample::span(a, b)).collect(),
            oldest_kv: sample::version(1, 1),
            temperature: 1.0,
            finish: if stop { Finish::Stop } else { Finish::Length },
            text,
        }
    }
}

fn frame_of(generations: Vec<Generation>) -> ResultFrame {
    let mut frame = sample::result_frame();
    let template = frame.results[0].result.clone();
    frame.results = generations
        .into_iter()
        .map(|generation| broker::protocol::turn::TurnResult {
            outcome: TurnOutcome::Done(generation),
            ..template.clone()
        })
        .map(Into::into)
        .collect();
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn healthy_frames_survive_the_wire(generations in vec(generations(), 0..6)) {
        let frame = frame_of(generations);
        prop_assert_eq!(frame.validate(), Ok(()));
        prop_assert_eq!(codec::decode::<ResultFrame>(&codec::encode(&frame)), Ok(frame));
    }

    #[test]
    fn bundles_of_any_size_survive_the_wire(samples in 0usize..30, rows in 0usize..5, text in ".{0,30}") {
        let mut bundle = sample::bundle();
        if let BundleContent::Samples(content) = &mut bundle.content {
            let sample = Sample { rows: vec![sample::row(); rows], subkey: text, ..content[0].clone() };
            *content = vec![sample; samples];
        }
        prop_assert_eq!(bundle.validate(), Ok(()));
        prop_assert_eq!(codec::decode::<Bundle>(&codec::encode(&bundle)), Ok(bundle));
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..300), versioned in any::<bool>()) {
        let mut body = if versioned { codec::SCHEMA.to_le_bytes().to_vec() } else { Vec::new() };
        body.extend(bytes);
        decode_as_anything(&body);
    }

    #[test]
    fn flipped_bits_never_panic(which in 0usize..11, flips in vec((any::<prop::sample::Index>(), 0u8..8), 1..6)) {
        let mut bytes = every_message().swap_remove(which);
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        decode_as_anything(&bytes);
    }
}

#[test]
fn every_truncation_and_every_addition_is_refused() {
    fn cut<T: Encode + Decode<()>>(value: &T) {
        let mut bytes = codec::encode(value);
        for end in 0..bytes.len() {
            assert!(
                codec::decode::<T>(&bytes[..end]).is_err(),
                "the first {end} bytes decode"
            );
        }
        bytes.push(0);
        assert_eq!(codec::decode::<T>(&bytes).err(), Some(CodecError::Trailing(1)));
        bytes[0] ^= 0xff;
        assert!(matches!(codec::decode::<T>(&bytes), Err(CodecError::Version { .. })));
    }
    cut(&sample::turn_frame());
    cut(&sample::result_frame());
    cut(&sample::bundle());
    cut(&sample::reserve_frame());
    cut(&sample::reserve_answers());
    cut(&sample::train_commands());
    cut(&sample::train_replies());
}

#[test]
fn false_lengths_are_rejected_before_any_allocation() {
    for claimed in [u64::MAX, u64::MAX / 4, 1 << 40, 60_000_000, 100_000] {
        // A row's ids: a count of `claimed`, and then nothing.
        let mut bytes = codec::SCHEMA.to_le_bytes().to_vec();
        bytes.extend(claimed.to_le_bytes());
        let refused = codec::decode::<Row>(&bytes).unwrap_err();
        let CodecError::Malformed(reason) = refused else {
            panic!("{refused:?}");
        };
        assert!(
            !reason.contains("UnexpectedEnd"),
            "{claimed} ids were believed and allocated: {reason}"
        );
    }
}

fn refused(change: impl FnOnce(&mut Generation)) -> bool {
    let mut generation = sample::generation();
    assert_eq!(generation.validate(), Ok(()));
    change(&mut generation);
    let frame = frame_of(vec![generation]);
    matches!(frame.validate(), Err(CodecError::Content(_)))
}

#[test]
fn generations_that_cannot_be_true_are_refused() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert!(refused(|g| g.logprobs[1] = bad));
        assert!(refused(|g| g.temperature = bad));
    }
    assert!(refused(|g| g.temperature = -1.0));
    assert!(refused(|g| g.logprobs.push(-1.0)));
    assert!(refused(|g| g.output_ids.push(1)));
    assert!(refused(|g| g.spans.clear()));
    assert!(refused(|g| g.spans[1].start = 1));
    assert!(refused(|g| g.spans[1].start = 3));
    assert!(refused(|g| g.spans[1].end = 4));
    assert!(refused(|g| g.spans[0].start = 1));
    assert!(refused(|g| g.spans.swap(0, 1)));
    let mut frame = sample::result_frame();
    frame.results[1].result.role = "no name!".into();
    assert!(frame.validate().is_err());
}

#[test]
fn requests_that_cannot_be_true_are_refused() {
    fn refused(change: impl FnOnce(&mut TurnFrame)) -> bool {
        let mut frame = sample::turn_frame();
        assert_eq!(frame.validate(), Ok(()));
        change(&mut frame);
        matches!(frame.validate(), Err(CodecError::Content(_)))
    }
    for bad in [f32::NAN, f32::INFINITY] {
        assert!(refused(|f| f.samplings[0].temperature = bad));
        assert!(refused(|f| f.samplings[0].top_p = bad));
        assert!(refused(|f| f.samplings[0].min_p = bad));
    }
    assert!(refused(|f| f.samplings[0].temperature = -1.0));
    assert!(refused(|f| f.requests[0].role = "no name!".into()));
}

#[test]
fn bundles_that_cannot_be_true_are_refused() {
    fn refused(change: impl FnOnce(&mut Bundle, &mut Sample)) -> bool {
        let mut bundle = sample::bundle();
        assert_eq!(bundle.validate(), Ok(()));
        let BundleContent::Samples(mut samples) = bundle.content.clone() else {
            unreachable!("it has samples")
        };
        change(&mut bundle, &mut samples[0]);
        bundle.content = BundleContent::Samples(samples);
        matches!(bundle.validate(), Err(CodecError::Content(_)))
    }
    for bad in [f32::NAN, f32::INFINITY] {
        assert!(refused(|_, s| s.reward = bad));
        assert!(refused(|_, s| s.parts[0].value = bad));
        assert!(refused(|_, s| s.rows[0].logprobs[0] = bad));
    }
    assert!(refused(|b, _| b.part = b.parts));
    assert!(refused(|_, s| s.role.clear()));
    assert!(refused(|_, s| s.rows[0].segments.swap(0, 1)));
    assert!(refused(|_, s| s.rows[0].segments[1].start = 3));
    assert!(refused(|_, s| s.rows[0].segments[1].start = u32::MAX));
    assert!(refused(|_, s| s.rows[0].segments[1].len = 2));
    assert!(refused(|_, s| s.rows[0].segments[0].spans[0].end = 1));
    assert!(refused(|_, s| {
        s.rows[0].logprobs.pop();
    }));
    assert!(refused(|_, s| s.rows[0].ids.truncate(5)));
    assert!(refused(|_, s| s.rows[0].segments[0].logprobs_of = LogProbs::Tempered));
}

#[test]
fn impossible_progress_of_visits_is_rejected() {
    fn refused(change: impl FnOnce(&mut EngineProgress)) -> bool {
        let mut progress = EngineProgress {
            request: sample::turn_frame().requests[0].request,
            ids: vec![1, 2],
            logprobs: vec![-0.5, -1.0],
            top: vec![vec![TopLogprob { id: 1, logprob: -0.5 }], vec![]],
            spans: vec![sample::span(3, 4), sample::span(4, 5)],
            end: None,
        };
        assert_eq!(progress.validate(3, 1), Ok(()));
        assert!(progress.validate(3, 0).is_err(), "no likely tokens were requested");
        change(&mut progress);
        matches!(progress.validate(3, 1), Err(CodecError::Content(_)))
    }
    assert!(refused(|progress| progress.logprobs[0] = f32::NAN));
    assert!(refused(|progress| progress.logprobs.push(-1.0)));
    assert!(refused(|progress| progress.ids.push(1)));
    assert!(refused(|progress| drop(progress.top.pop())));
    assert!(refused(
        |progress| progress.top[0].push(TopLogprob { id: 2, logprob: -2.0 })
    ));
    assert!(refused(|progress| progress.top[0][0].logprob = f32::NEG_INFINITY));
    assert!(refused(|progress| progress.spans.clear()));
    assert!(refused(|progress| progress.spans[0].start = 2));
    assert!(refused(|progress| progress.spans[1].end = 6));
}

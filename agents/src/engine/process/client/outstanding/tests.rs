use broker::ids::WeightVersion;
use broker::protocol::turn::VersionSpan;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::testing;

fn job(id: u8) -> GenerationJob {
    testing::job(id, &[1], 1)
}

fn failed(batch: u64, id: u8) -> Answer {
    Answer {
        batch,
        request: job(id).request,
        result: Err(EngineFailure {
            cause: broker::protocol::failure::Failure::other("held"),
            retry: true,
        }),
    }
}

fn received(finished: &mut UnboundedReceiver<Vec<Finished>>) -> Vec<u8> {
    let mut ids = Vec::new();
    while let Ok(list) = finished.try_recv() {
        ids.extend(list.iter().map(|one| one.job.request.0[0]));
    }
    ids
}

fn asked(open: &Outstanding) -> Vec<(usize, bool)> {
    open.again().map(|(_, jobs, wave)| (jobs.len(), wave)).collect()
}

#[test]
fn an_answer_counts_in_the_batch_that_asked() {
    let (mut open, (done, mut finished)) = (Outstanding::new(), unbounded_channel());
    let first = open.take(vec![job(1), job(2)], true, done.clone());
    // An answer to an earlier agent, or to an unknown batch.
    open.answer(vec![failed(first + 1, 1), failed(first.wrapping_sub(1), 1)]);
    assert!(received(&mut finished).is_empty());
    // Asked again, with other weights: the old batch's answer comes late.
    let second = open.take(vec![job(1)], false, done);
    open.answer(vec![failed(first, 1), failed(first, 2)]);
    assert_eq!(received(&mut finished), [2]);
    assert_eq!(asked(&open), [(1, false)], "nothing remains of the old batch");
    open.answer(vec![failed(second, 1)]);
    assert_eq!((received(&mut finished), open.len()), (vec![1], 0));
    assert_ne!(
        Outstanding::new().next,
        Outstanding::new().next,
        "two agents use different numbers"
    );
}

#[test]
fn a_forgotten_job_is_not_asked_again_and_a_wave_stays_whole() {
    let (mut open, (done, mut finished)) = (Outstanding::new(), unbounded_channel());
    let batch = open.take(vec![job(1), job(2)], false, done.clone());
    open.take(vec![job(3), job(4)], true, done);
    open.forget(job(1).request);
    open.forget(job(3).request);
    assert_eq!(asked(&open), [(1, false), (2, true)]);
    let failure = wire::untrue(&broker::codec::CodecError::Trailing(1));
    let frames = |batch, id, wave| wire::frames(batch, &[job(id)], wave).remove(0);
    open.fail(&frames(batch, 3, false), &failure);
    assert!(received(&mut finished).is_empty());
    open.fail(&frames(batch, 2, false), &failure);
    assert_eq!(received(&mut finished), [2]);
    assert_eq!((asked(&open), open.len()), (vec![(2, true)], 1));
    // One part of a wave is rejected: there will be no wave.
    open.fail(&frames(batch + 1, 3, true), &failure);
    assert_eq!((received(&mut finished), asked(&open)), (vec![4], vec![]));
}

#[test]
fn a_job_with_repeated_engine_losses_is_named() {
    let (mut open, (done, _finished)) = (Outstanding::new(), unbounded_channel());
    let batch = open.take(vec![job(1), job(2)], false, done.clone());
    for _ in 1..LOSSES {
        assert!(open.lose().is_empty());
    }
    open.answer(vec![failed(batch, 2)]);
    // A job asked later is not suspected.
    open.take(vec![job(3)], false, done);
    let last: Vec<u8> = open.lose().iter().map(|job| job.request.0[0]).collect();
    assert_eq!(last, [1]);
}

#[test]
fn a_visitor_receives_only_valid_updates() {
    let news = |logprobs: Vec<f32>, start: u32| EngineProgress {
        request: job(1).request,
        ids: vec![5; logprobs.len()],
        spans: vec![VersionSpan {
            version: WeightVersion::default(),
            start,
            end: start + logprobs.len() as u32,
        }],
        top: vec![Vec::new(); logprobs.len()],
        logprobs,
        end: None,
    };
    for (second, sound) in [
        (news(vec![-1.0], 2), true),
        (news(vec![f32::NAN], 2), false),
        (news(vec![-1.0], 0), false),
    ] {
        let (mut open, (updates, mut updated)) = (Outstanding::new(), unbounded_channel());
        open.begin(Visit {
            job: job(1),
            watched: true,
            top: 2,
            prompt_top: None,
            updates,
        });
        assert!(open.update(news(vec![-0.5, -0.25], 0)));
        assert_eq!(updated.try_recv().unwrap().ids.len(), 2);
        assert_eq!(open.update(second), sound);
        assert_eq!(updated.try_recv().unwrap().end.is_some(), !sound);
        assert_eq!(open.leave(job(1).request), sound);
    }
}

//! Visits: their answers, and the waves and weights that they make way for.

use super::*;

/// They come in the first update, or at the end of a visit that wants nothing else.
#[tokio::test]
async fn a_visit_receives_the_log_probs_of_its_prompt_once() {
    let engine = lasting();
    assert!(engine.scores_prompts());
    for (id, tokens, watched) in [(1, 0, false), (2, 0, true), (3, 6, false), (4, 6, true)] {
        let (one, mut updates) = visit(id, tokens, watched);
        engine.visit(vec![Visit {
            prompt_top: Some(2),
            ..one
        }]);
        let mut first = true;
        let mut made = 0;
        loop {
            let news = updates.recv().await.unwrap();
            assert_eq!(news.prompt.is_some(), std::mem::take(&mut first));
            // Its prompt has three tokens.
            let scored = |scores: &trainer::engine::PromptScores| (scores.logprobs.len(), scores.top.len()) == (2, 2);
            assert!(news.prompt.as_deref().is_none_or(scored));
            made += news.ids.len();
            if let Some(end) = news.end {
                assert_eq!(end, Ok(broker::protocol::turn::Finish::Length));
                break;
            }
        }
        assert_eq!(made, tokens as usize);
    }
    idle(&engine).await;
}

#[tokio::test]
async fn a_wave_is_the_same_with_visitors_who_then_resume() {
    let jobs = || (10..30).map(|id| job(id, 4)).collect::<Vec<_>>();
    let alone = lasting();
    let undisturbed = wave(&alone, jobs()).await;
    let (first, mut updates) = visit(1, 300, true);
    alone.visit(vec![first]);
    let (whole, pieces) = visited(&mut updates).await;
    assert!(pieces > 100, "tokens arrive as they are made: {pieces}");

    let engine = lasting();
    let ((watched, mut updates), (other, mut other_updates)) = (visit(1, 300, true), visit(2, 200, false));
    engine.visit(vec![watched, other]);
    let mut begun = Vec::new();
    for _ in 0..5 {
        begun.extend(updates.recv().await.unwrap().ids);
        assert_eq!(wave(&engine, jobs()).await, undisturbed, "no visitor delays a wave");
    }
    assert!(begun.len() < 300, "the waves came in between");
    let (rest, _) = visited(&mut updates).await;
    assert_eq!([begun, rest].concat(), whole, "the same tokens as without waves");
    let (ids, pieces) = visited(&mut other_updates).await;
    assert_eq!(
        (ids.len(), pieces),
        (200, 1),
        "a visitor that does not watch receives one update"
    );
    idle(&engine).await;
}

#[tokio::test]
async fn a_visitor_that_leaves_is_forgotten_and_leaves_no_work() {
    let engine = lasting();
    let ((first, mut updates), (second, mut second_updates)) = (visit(1, 60_000, true), visit(2, 4, true));
    let id = first.job.request;
    engine.visit(vec![first]);
    updates.recv().await.unwrap();
    engine.visit(vec![second]);
    assert_eq!(visited(&mut second_updates).await.0.len(), 4);
    engine.leave(id);
    engine.leave(id);
    idle(&engine).await;
    while let Some(update) = updates.recv().await {
        assert!(update.end.is_none());
    }
    let (long, mut updates) = visit(3, 9, false);
    let refused = GenerationJob {
        prompt_ids: Arc::from([]),
        ..long.job.clone()
    };
    engine.visit(vec![Visit { job: refused, ..long }]);
    assert!(matches!(updates.recv().await.unwrap().end, Some(Err(failure)) if !failure.retry));
    idle(&engine).await;
}

/// Under `drain` new weights wait for jobs in progress, but not for visitors.
#[tokio::test]
async fn weights_do_not_wait_for_a_visitor() {
    let (engine, shape) = engine_with(1 << 16, Some(Vec::new()), Swap::Drain);
    let (long, mut updates) = visit(1, 60_000, true);
    let id = long.job.request;
    engine.visit(vec![long]);
    updates.recv().await.unwrap();
    let mut versions = engine.versions();
    let published = Published::new(weights(&shape), version(7));
    engine.pulse.take(1);
    engine.commands.send(Command::Swap(published)).unwrap();
    versions.changed().await.unwrap();
    assert_eq!(*versions.borrow_and_update(), version(7));
    let newer = |update: VisitUpdate| update.spans.iter().any(|span| span.version == version(7));
    while !newer(updates.recv().await.unwrap()) {}
    engine.leave(id);
    idle(&engine).await;
}

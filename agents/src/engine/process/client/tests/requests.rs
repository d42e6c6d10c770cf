//! Requests over a connection: waves, large ones and visits.

use super::*;
use crate::base::ports::HeldPort;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wave_has_the_same_bits_in_another_or_restarted_process() {
    let mut scene = scene();
    let expected = play(&*scene.embedded(), wave(), true).await;
    let held = HeldPort::new();
    let address = held.address().to_string();
    let serving = scene.engine(&address).await;
    let (engine, mut sink) = scene.agent("r-1", &[serving.address]);
    // Asked before there are any weights: it waits.
    let (done, mut finished) = unbounded_channel();
    engine.submit(wave(), true, done.clone());
    sink.publish(&scene.prepared.served().unwrap(), version(1)).unwrap();
    assert_eq!(answers(&mut finished, 12).await, expected);
    serves(&*engine, version(1)).await;
    serving.close().await;
    drop(serving);
    engine.submit(wave(), true, done);
    let again = scene.engine(&address).await;
    assert_eq!(
        answers(&mut finished, 12).await,
        expected,
        "the new engine has only the fetched weights"
    );
    again.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_too_large_fails_and_the_session_continues() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let (engine, mut sink) = scene.agent("r-1", &[serving.address]);
    sink.publish(&scene.prepared.served().unwrap(), version(1)).unwrap();
    serves(&*engine, version(1)).await;
    let huge = GenerationJob {
        prompt_ids: vec![40; (broker::protocol::engine::LARGEST >> 2) + 1].into(),
        ..job(1, 3)
    };
    for wave in [false, true] {
        let (done, mut finished) = unbounded_channel();
        engine.submit(vec![job(2, 3), huge.clone(), job(3, 3)], wave, done);
        let failed = loop {
            let list = finished.recv().await.unwrap();
            if let Some(one) = list.into_iter().find(|one| one.job.request == huge.request) {
                break one.result.unwrap_err();
            }
        };
        assert!(!failed.retry && failed.cause.reason.contains("too large"), "{failed}");
    }
    assert_eq!(play(&*engine, vec![job(5, 3)], false).await.len(), 1);
    assert_eq!(
        play(&*engine, wave(), true).await.len(),
        12,
        "and the next wave is whole"
    );
    assert_eq!(health(&serving).await["session"], true);
    assert!(*engine.presence().borrow());
    let presences = engine.presences();
    let found: Vec<_> = presences
        .iter()
        .map(|one| (one.engine.as_str(), (one.answers)()))
        .collect();
    assert_eq!(found, [(format!("http://{}", serving.address).as_str(), true)]);
    serving.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn visits_stream_their_tokens_and_end_with_the_engine() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let (engine, mut sink) = scene.agent("r-1", &[serving.address]);
    let visit = |id: u8, tokens: u32| {
        let (updates, updated) = unbounded_channel();
        let visit = Visit {
            job: job(id, tokens),
            watched: true,
            top: 2,
            prompt_top: None,
            updates,
        };
        engine.visit(vec![visit]);
        updated
    };
    let mut early = visit(1, 3);
    let end = early.recv().await.unwrap().end.unwrap();
    assert!(end.unwrap_err().retry, "there are no weights yet");
    sink.publish(&scene.prepared.served().unwrap(), version(1)).unwrap();
    serves(&*engine, version(1)).await;
    let mut updated = visit(2, 4);
    let (mut ids, mut end) = (Vec::new(), None);
    while end.is_none() {
        let news = updated.recv().await.unwrap();
        assert_eq!(news.top.len(), news.ids.len());
        assert!(
            news.top
                .iter()
                .all(|place| place.len() == 2 && place[0].logprob >= place[1].logprob)
        );
        ids.extend(news.ids);
        end = news.end;
    }
    let alone = play(&*scene.embedded(), vec![job(2, 4)], false).await;
    assert_eq!(ids, alone[0].1);
    // Requests that its frames cannot carry fail instead of losing a part.
    assert!(!engine.scores_prompts());
    let (updates, mut updated) = unbounded_channel();
    engine.visit(vec![Visit {
        job: job(4, 1),
        watched: false,
        top: 0,
        prompt_top: Some(0),
        updates,
    }]);
    let end = updated.recv().await.unwrap().end.unwrap();
    assert!(end.is_err_and(|failure| !failure.retry));
    serving.close().await;
    let mut late = visit(3, 4);
    let end = loop {
        if let Some(end) = late.recv().await.unwrap().end {
            break end;
        }
    };
    assert!(end.is_err_and(|failure| failure.retry));
}

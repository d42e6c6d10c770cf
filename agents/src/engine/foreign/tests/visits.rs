//! Tests of an agent's HTTP front over its servers.

use broker::ids::WeightVersion;
use tokio::time::timeout;

use super::*;
use crate::engine::{Visit, VisitUpdate};

const PATIENCE: Duration = Duration::from_secs(60);
/// Most likely tokens that every visit requests.
const TOP: u8 = 3;

fn visit(bench: &Bench, job: GenerationJob, watched: bool) -> UnboundedReceiver<VisitUpdate> {
    let (updates, updated) = unbounded_channel();
    let top = TOP;
    bench.fleet.visit(vec![Visit {
        job,
        watched,
        top,
        prompt_top: None,
        updates,
    }]);
    updated
}

async fn next(updated: &mut UnboundedReceiver<VisitUpdate>) -> VisitUpdate {
    timeout(PATIENCE, updated.recv())
        .await
        .expect("an update arrives")
        .unwrap()
}

/// Returns all updates of a visit, joined, and their number.
async fn all(mut updated: UnboundedReceiver<VisitUpdate>) -> (GenerationOutput, usize) {
    let mut made = GenerationOutput {
        output_ids: Vec::new(),
        logprobs: Vec::new(),
        logprobs_of: broker::protocol::turn::LogProbs::Sampled,
        top: Vec::new(),
        spans: Vec::new(),
        oldest_kv: WeightVersion::default(),
        reused: 0,
        finish: broker::protocol::turn::Finish::Length,
        times: None,
    };
    for pieces in 1.. {
        let news = next(&mut updated).await;
        made.output_ids.extend(news.ids);
        made.logprobs.extend(news.logprobs);
        made.top.extend(news.top);
        for span in news.spans {
            match made.spans.last_mut() {
                Some(last) if last.version == span.version => last.end = span.end,
                _ => made.spans.push(span),
            }
        }
        if let Some(end) = news.end {
            made.finish = end.unwrap();
            assert!(updated.recv().await.is_none(), "no update follows the end");
            return (made, pieces);
        }
    }
    unreachable!()
}

/// Compares the most likely tokens of each position with those of the weights of version 1.
fn check_top(bench: &Bench, job: &GenerationJob, made: &GenerationOutput) {
    let model = Model::open(&bench.home.folder(1)).unwrap();
    assert_eq!(made.top.len(), made.output_ids.len());
    for (place, top) in made.top.iter().enumerate() {
        let context = [&job.prompt_ids[..], &made.output_ids[..place]].concat();
        let mut all: Vec<_> = model.logprobs(&context, 1.0).into_iter().zip(0u32..).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        assert_eq!(top.len(), usize::from(TOP));
        for (one, (logprob, id)) in top.iter().zip(all) {
            assert!(
                one.id == id && (one.logprob - logprob).abs() < 1e-4,
                "{one:?}, {id}, {logprob}"
            );
        }
    }
}

/// Returns the limits of the calls, from either interface.
fn asked(bench: &Bench) -> Vec<u64> {
    let bodies = bench.fake().shared.asked.lock().unwrap();
    let tokens = |body: &serde_json::Value| {
        let native = body.pointer("/sampling_params/max_new_tokens");
        native.or_else(|| body.get("max_tokens")).unwrap().as_u64().unwrap()
    };
    bodies.iter().map(tokens).collect()
}

/// It uses the served weights, like a job, with true log-probs; a watching visitor sees it grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visit_is_served_in_pieces_with_true_logprobs() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        for watched in [true, false] {
            let before = asked(&bench).len();
            let (made, pieces) = all(visit(&bench, job(1, 40), watched)).await;
            bench.check(&job(1, 40), &made);
            check_top(&bench, &job(1, 40), &made);
            assert_eq!(spans(&made), [(1, 0, 40)]);
            assert_eq!(asked(&bench)[before..], [32, 8]);
            assert_eq!(pieces, if watched { 2 } else { 1 });
        }
        // Training's jobs are requested in one piece, and progress next to it.
        let (visited, made) = tokio::join!(all(visit(&bench, job(2, 40), true)), bench.make(job(3, 40)));
        bench.check(&job(2, 40), &visited.0);
        bench.check(&job(3, 40), &made.unwrap());
        assert!(asked(&bench).contains(&40));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visit_that_is_left_or_dropped_ends_its_call() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        bench.fake().allow(3);
        let updated = visit(&bench, job(1, 30), true);
        bench.fake().until_running(1).await;
        bench.fleet.leave(job(1, 30).request);
        bench.fake().until_running(0).await;
        drop(updated);
        let updated = visit(&bench, job(2, 30), true);
        bench.fake().until_running(1).await;
        drop(updated);
        bench.fake().until_running(0).await;
        // Its places are free.
        bench.fake().allow(usize::MAX);
        assert!(bench.make(job(3, 4)).await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visit_continues_with_new_weights_and_reports_them() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        bench.fake().allow(4);
        let updated = visit(&bench, job(1, 12), true);
        bench.fake().until_made(4).await;
        bench.serve(2).await;
        bench.fake().allow(usize::MAX);
        let (made, _) = all(updated).await;
        assert_eq!(spans(&made), [(1, 0, 4), (2, 4, 12)]);
        bench.check(&job(1, 12), &made);
    }
}

/// A visit's calls are short if the server finishes them before it takes new weights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_that_let_calls_finish_wait_for_one_piece() {
    let bench = Bench::with(EngineKind::Sglang, 1, |settings| settings.drains = true).await;
    bench.serve(1).await;
    bench.fake().allow(4);
    let updated = visit(&bench, job(1, 40), false);
    bench.fake().until_made(4).await;
    bench.announce(2);
    let mut news = bench.fleet.news();
    while bench.fleet.reading() != Some(version(2)) {
        news.changed().await.unwrap();
    }
    bench.fake().allow(usize::MAX);
    bench.until_serving(2).await;
    let (made, _) = all(updated).await;
    assert_eq!(spans(&made), [(1, 0, 32), (2, 32, 40)]);
    bench.check(&job(1, 40), &made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visit_fails_with_its_servers_or_an_impossible_request() {
    let bench = Bench::new(EngineKind::Vllm).await;
    bench.serve(1).await;
    let long = GenerationJob {
        prompt_ids: vec![65; CONTEXT].into(),
        ..job(1, 4)
    };
    let failure = next(&mut visit(&bench, long, true)).await.end.unwrap().unwrap_err();
    assert!(!failure.retry && failure.cause.reason.contains("48"), "{failure}");
    bench.fake().allow(2);
    let mut updated = visit(&bench, job(2, 30), true);
    bench.fake().until_running(1).await;
    bench.fake().kill().await;
    let failure = next(&mut updated).await.end.unwrap().unwrap_err();
    assert!(failure.retry && failure.cause.reason.contains("servers"), "{failure}");
    let failure = next(&mut visit(&bench, job(3, 4), true))
        .await
        .end
        .unwrap()
        .unwrap_err();
    assert!(failure.retry, "{failure}");
}

/// The server is well, but has no weights to use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visit_fails_if_the_only_server_loads_no_weights() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        *bench.fake().shared.refuses.lock().unwrap() = usize::MAX;
        bench.announce(1);
        let mut updated = visit(&bench, job(1, 4), true);
        let failure = next(&mut updated).await.end.unwrap().unwrap_err();
        assert!(failure.retry && failure.cause.reason.contains("refused"), "{failure}");
        // Weights that it can load recover it.
        *bench.fake().shared.refuses.lock().unwrap() = 0;
        bench.serve(2).await;
        let (made, _) = all(visit(&bench, job(2, 4), true)).await;
        bench.check(&job(2, 4), &made);
    }
}

/// Dropping the client ends its visits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn visits_end_with_their_fleet() {
    let bench = Bench::new(EngineKind::Sglang).await;
    bench.serve(1).await;
    bench.fake().allow(3);
    let mut updated = visit(&bench, job(1, 30), false);
    bench.fake().until_running(1).await;
    let Bench {
        home: _home,
        fakes,
        fleet,
    } = bench;
    drop(fleet);
    assert!(timeout(PATIENCE, updated.recv()).await.unwrap().is_none());
    fakes[0].until_running(0).await;
}

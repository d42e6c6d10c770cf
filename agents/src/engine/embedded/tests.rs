use std::path::Path;
use std::time::Duration;

use broker::protocol::failure::FailureCode;
use broker::protocol::turn::{LogProbs, Message, Sampling};
use configs::{ModelConfig, Swap, TokenizerConfig};
use trainer::engine::EngineOptions;
use trainer::model::ModelShape;
use trainer::model::{Init, Weights};

use super::super::VisitUpdate;
use super::*;
use crate::run_folder::tests::{config_in, thinking_in};
use crate::testing::{self, version};
use broker::ids::GroupId;

mod unsampled;
mod visitors;

/// Returns an engine with a tiny model with room for 16 tokens.
fn engine() -> (Arc<EmbeddedEngine>, ModelShape) {
    engine_with(16, None, Swap::InPlace)
}

/// Returns an engine with this room; a turn ends with `stop`, or with the tokenizer's stop tokens.
fn engine_with(max_context: usize, stop: Option<Vec<u32>>, swap: Swap) -> (Arc<EmbeddedEngine>, ModelShape) {
    let folder = tempfile::tempdir().unwrap();
    rollout::text::make::write_tokenizer(folder.path(), &TokenizerConfig::Bytes).unwrap();
    engine_in(folder.path(), max_context, stop, swap)
}

/// Returns an engine with the tokenizer of a folder.
fn engine_in(
    folder: &Path,
    max_context: usize,
    stop: Option<Vec<u32>>,
    swap: Swap,
) -> (Arc<EmbeddedEngine>, ModelShape) {
    let config = config_in(folder);
    let (_, settings) = config.agents.first_key_value().unwrap();
    let ModelConfig::Random(mut random) = settings.model.clone() else {
        panic!("the test's model is random");
    };
    random.max_context = max_context;
    let text = Arc::new(TextCodec::open(folder).unwrap());
    let shape = ModelShape::from_random(&random, text.vocab_size(), &text.stop_ids()).unwrap();
    let options = EngineOptions {
        swap,
        ..EngineOptions::from(settings)
    };
    let engine = Engine::new(&shape, Published::new(weights(&shape), version(0)), options).unwrap();
    let stop = stop.unwrap_or_else(|| text.stop_ids());
    let engine = EmbeddedEngine::start_with("test", engine, version(0), text, stop.into()).unwrap();
    (engine, shape)
}

fn weights(shape: &ModelShape) -> Weights {
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.2,
    };
    Weights::random(shape, init, 1).unwrap()
}

fn job(id: u8, prompt: usize) -> GenerationJob {
    GenerationJob {
        group: GroupId([1; 16]),
        ..testing::job(id, &vec![65; prompt], 2)
    }
}

async fn wave(engine: &EmbeddedEngine, jobs: Vec<GenerationJob>) -> Vec<(u8, Result<Vec<u32>, EngineFailure>)> {
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    engine.submit(jobs, true, done);
    let list = finished.recv().await.unwrap();
    let mut list: Vec<_> = list
        .into_iter()
        .map(|one| (one.job.request.0[0], one.result.map(|made| made.output_ids)))
        .collect();
    list.sort_by_key(|(id, _)| *id);
    list
}

#[tokio::test]
async fn one_sink_serves_all_replicas() {
    let ((first, shape), (second, _)) = (engine(), engine());
    let mut sink = first.sink_with(std::slice::from_ref(&second), Device::Cpu, Dtype::F32);
    sink.publish(&weights(&shape), version(1)).unwrap();
    for engine in [first, second] {
        let mut versions = engine.versions();
        versions.wait_for(|served| *served == version(1)).await.unwrap();
    }
}

/// Memory of a retired engine is free when the thread has dropped its senders.
#[tokio::test]
async fn an_ended_engine_drops_its_work() {
    let (engine, _) = engine_with(4096, Some(Vec::new()), Swap::InPlace);
    let mut refusals = engine.refusals();
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    let mut endless = job(1, 3);
    Arc::make_mut(&mut endless.sampling).max_new_tokens = 4000;
    engine.submit(vec![endless], false, done);
    engine.end();
    drop(engine);
    assert!(finished.recv().await.is_none(), "its work ended with it");
    assert!(refusals.changed().await.is_err());
}

/// The other jobs form exactly the wave that they would form without it.
#[tokio::test]
async fn a_prompt_above_the_context_fails_alone_and_not_the_wave() {
    let (engine, _) = engine();
    let whole = wave(&engine, vec![job(1, 3), job(2, 16), job(3, 4)]).await;
    let Err(failure) = &whole[1].1 else { panic!("{whole:?}") };
    assert_eq!(failure.cause.code, FailureCode::Context);
    assert!(!failure.retry, "a retry would be as long");
    let without = wave(&engine, vec![job(1, 3), job(3, 4)]).await;
    assert!(without.iter().all(|(_, result)| result.is_ok()));
    assert_eq!([&whole[0], &whole[2]], [&without[0], &without[1]]);
    let none = wave(&engine, vec![job(4, 16)]).await;
    assert!(none[0].1.is_err(), "a wave of nothing but bad requests ends too");
}

/// The prompt ends with `<think>`, so none is sampled, and the text that follows is still
/// reasoning.
#[tokio::test]
async fn a_stop_text_in_reasoning_that_the_prompt_began_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    thinking_in(folder.path());
    let (engine, _) = engine_in(folder.path(), 64, Some(Vec::new()), Swap::InPlace);
    let text = TextCodec::open(folder.path()).unwrap();
    for (begins, ends) in [(true, false), (false, true)] {
        let prompt = text.chat(&[Message::user("A")], begins).unwrap();
        assert_eq!(text.leaves_open(&prompt), begins);
        let asked = |id: u8, stop: Vec<String>| {
            let job = job(id, 1);
            GenerationJob {
                prompt_ids: prompt.clone().into(),
                sampling: Arc::new(Sampling {
                    max_new_tokens: 12,
                    stop,
                    ..(*job.sampling).clone()
                }),
                seed: 7,
                ..job
            }
        };
        let free = wave(&engine, vec![asked(1, Vec::new())]).await.remove(0).1.unwrap();
        let first: String = text.text(&free).chars().take(1).collect();
        assert!(!first.is_empty() && free.len() == 12);
        let made = wave(&engine, vec![asked(2, vec![first])]).await.remove(0).1.unwrap();
        assert!(free.starts_with(&made));
        assert_eq!(made.len() < free.len(), ends, "{made:?} of {free:?}");
        assert_eq!(text.decode(&prompt, &made).is_empty(), begins);
    }
}

#[tokio::test]
async fn log_probs_are_sampled_ones_for_turns_and_full_for_visits() {
    let (engine, _) = engine();
    let with = |id: u8, change: fn(&mut Sampling)| {
        let mut job = job(id, 3);
        change(Arc::make_mut(&mut job.sampling));
        job
    };
    let jobs = [
        with(1, |_| ()),
        with(2, |sampling| sampling.top_k = 1),
        with(3, |sampling| sampling.top_p = 0.5),
        with(4, |sampling| sampling.temperature = 0.0),
    ];
    for (job, of) in jobs.iter().zip([
        LogProbs::Sampled,
        LogProbs::Truncated,
        LogProbs::Truncated,
        LogProbs::Raw,
    ]) {
        let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
        engine.submit(vec![job.clone()], true, done);
        let made = finished.recv().await.unwrap().remove(0).result.unwrap();
        assert_eq!(made.logprobs_of, of);
        let (sender, mut updates) = tokio::sync::mpsc::unbounded_channel();
        engine.visit(vec![Visit {
            job: job.clone(),
            watched: false,
            top: 0,
            prompt_top: None,
            updates: sender,
        }]);
        let (mut ids, mut whole) = (Vec::new(), Vec::new());
        while let Some(news) = updates.recv().await {
            ids.extend(news.ids);
            whole.extend(news.logprobs);
            if news.end.is_some() {
                break;
            }
        }
        assert_eq!(ids, made.output_ids, "the same draws");
        for (logprob, whole) in made.logprobs.iter().zip(&whole) {
            match of {
                LogProbs::Truncated => assert!(logprob > whole && *logprob <= 0.0, "{logprob} {whole}"),
                _ => assert!((logprob - whole).abs() < 1e-5, "{logprob} {whole}"),
            }
        }
        if job.sampling.top_k == 1 {
            assert!(
                made.logprobs.iter().all(|logprob| logprob.abs() < 1e-6),
                "{:?}",
                made.logprobs
            );
        }
    }
}

#[tokio::test]
async fn weights_that_do_not_fit_are_reported_and_old_ones_kept() {
    let (engine, shape) = engine();
    let mut updates = engine.refusals();
    let other = ModelShape {
        layers: shape.layers + 1,
        ..shape.clone()
    };
    let swap = |weights, step| {
        engine
            .commands
            .send(Command::Swap(Published::new(weights, version(step))))
            .unwrap()
    };
    swap(weights(&other), 1);
    updates.changed().await.unwrap();
    assert_eq!(updates.borrow_and_update().as_ref().unwrap().version, version(1));
    assert_eq!(*engine.versions().borrow(), version(0));
    assert!(wave(&engine, vec![job(1, 3)]).await[0].1.is_ok());
    let mut versions = engine.versions();
    swap(weights(&shape), 2);
    versions.changed().await.unwrap();
    assert_eq!(*versions.borrow_and_update(), version(2), "the next ones are loaded");
}

fn visit(id: u8, tokens: u32, watched: bool) -> (Visit, tokio::sync::mpsc::UnboundedReceiver<VisitUpdate>) {
    let (sender, updates) = tokio::sync::mpsc::unbounded_channel();
    let mut job = job(id, 3);
    let sampling = Sampling {
        max_new_tokens: tokens,
        ..(*job.sampling).clone()
    };
    job.sampling = Arc::new(sampling);
    let visit = Visit {
        job,
        watched,
        top: 0,
        prompt_top: None,
        updates: sender,
    };
    (visit, updates)
}

/// Returns the ids of a visit to its end, and the number of updates.
async fn visited(updates: &mut tokio::sync::mpsc::UnboundedReceiver<VisitUpdate>) -> (Vec<u32>, usize) {
    let (mut ids, mut pieces) = (Vec::new(), 0);
    while let Some(update) = updates.recv().await {
        pieces += 1;
        ids.extend(&update.ids);
        if let Some(end) = update.end {
            end.unwrap();
            return (ids, pieces);
        }
    }
    panic!("a visit that was not left has an end");
}

async fn idle(engine: &EmbeddedEngine) {
    for _ in 0..2000 {
        if engine.pulse().look().work == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?} is still to be done", engine.pulse().look());
}

/// Returns an engine without an end of turn, so that a visit lasts; with room for very many tokens.
fn lasting() -> Arc<EmbeddedEngine> {
    engine_with(1 << 16, Some(Vec::new()), Swap::InPlace).0
}

/// Waiting weights are served when the jobs before them have ended, even if no request follows.
#[tokio::test]
async fn weights_that_waited_are_served_when_no_request_comes() {
    let (engine, shape) = engine_with(1 << 12, Some(Vec::new()), Swap::Drain);
    let (short, mut long) = (job(1, 3), job(2, 3));
    long.sampling = Arc::new(Sampling {
        max_new_tokens: 3000,
        ..(*long.sampling).clone()
    });
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    let mut versions = engine.versions();
    engine.submit(vec![short, long], false, done);
    // When the short one ends, the long one is in progress.
    assert!(finished.recv().await.unwrap().remove(0).result.is_ok());
    let published = Published::new(weights(&shape), version(7));
    engine.pulse.take(1);
    engine.commands.send(Command::Swap(published)).unwrap();
    let made = finished.recv().await.unwrap().remove(0).result.unwrap();
    assert_eq!(made.spans.last().unwrap().version, version(0), "it was finished first");
    versions.changed().await.unwrap();
    assert_eq!(*versions.borrow(), version(7));
}

use configs::{ModelConfig, TokenizerConfig};
use trainer::engine::EngineOptions;
use trainer::model::ModelShape;
use trainer::model::{Init, Weights};

use super::*;
use crate::folder::tests::config_in;
use broker::ids::GroupId;
use broker::protocol::turn::Sampling;

/// A tiny model with room for 16 tokens, and its engine.
fn engine() -> (Arc<EmbeddedEngine>, ModelShape) {
    let folder = tempfile::tempdir().unwrap();
    let config = config_in(folder.path());
    let (_, settings) = config.agents.first_key_value().unwrap();
    let ModelConfig::Random(mut random) = settings.model.clone() else {
        panic!("the test's model is random");
    };
    random.max_context = 16;
    rollout::text::make::write_tokenizer(folder.path(), &TokenizerConfig::Bytes).unwrap();
    let text = Arc::new(TextCodec::open(folder.path()).unwrap());
    let shape = ModelShape::from_random(&random, text.vocab_size(), &text.stop_ids()).unwrap();
    let options = EngineOptions::from(&settings.engine);
    let engine = Engine::new(&shape, Published::new(weights(&shape), version(0)), options).unwrap();
    (EmbeddedEngine::start("test", engine, version(0), text).unwrap(), shape)
}

fn weights(shape: &ModelShape) -> Weights {
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.2,
    };
    Weights::random(shape, init, 1).unwrap()
}

fn version(step: u64) -> WeightVersion {
    WeightVersion { lineage: 1, step }
}

fn job(id: u8, prompt: usize) -> Job {
    Job {
        request: RequestId([id; 16]),
        group: GroupId([1; 16]),
        member: 0,
        prompt_ids: vec![65; prompt].into(),
        sampling: Arc::new(Sampling {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_new_tokens: 2,
            stop: Vec::new(),
        }),
        seed: id.into(),
        keep: false,
    }
}

async fn wave(engine: &EmbeddedEngine, jobs: Vec<Job>) -> Vec<(u8, Result<Vec<u32>, EngineFailure>)> {
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

/// The others are the very wave that they would be without it.
#[tokio::test]
async fn a_prompt_above_the_context_ends_its_own_turn_and_not_the_wave() {
    let (engine, _) = engine();
    let whole = wave(&engine, vec![job(1, 3), job(2, 16), job(3, 4)]).await;
    let Err(failure) = &whole[1].1 else { panic!("{whole:?}") };
    assert_eq!(failure::code(&failure.reason), failure::CONTEXT);
    assert!(!failure.retry, "it would be as long again");
    let without = wave(&engine, vec![job(1, 3), job(3, 4)]).await;
    assert!(without.iter().all(|(_, result)| result.is_ok()));
    assert_eq!([&whole[0], &whole[2]], [&without[0], &without[1]]);
    let none = wave(&engine, vec![job(4, 16)]).await;
    assert!(none[0].1.is_err(), "a wave of nothing but bad requests ends too");
}

#[tokio::test]
async fn weights_that_do_not_fit_are_told_and_the_old_ones_serve_on() {
    let (engine, shape) = engine();
    let mut told = engine.refusals();
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
    told.changed().await.unwrap();
    assert_eq!(told.borrow_and_update().as_ref().unwrap().version, version(1));
    assert_eq!(*engine.versions().borrow(), version(0));
    assert!(wave(&engine, vec![job(1, 3)]).await[0].1.is_ok());
    let mut versions = engine.versions();
    swap(weights(&shape), 2);
    versions.changed().await.unwrap();
    assert_eq!(*versions.borrow_and_update(), version(2), "the next ones are taken");
}

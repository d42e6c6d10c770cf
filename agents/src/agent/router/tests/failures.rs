//! Requests that cannot be answered, and agents that end.

use broker::protocol::failure::FailureCode;
use configs::ModelConfig;
use trainer::engine::{Engine, EngineOptions};
use trainer::model::{Init, ModelShape, Weights};
use trainer::weights::Published;

use super::*;
use crate::engine::embedded::EmbeddedEngine;

/// Checks that two turn requests come again, and that none was answered.
async fn two_come_again(bus: &MemoryBus, topology: &Topology) {
    let left = async |queue| bus.depth(&queue).await;
    assert_eq!(left(topology.turns(&agent())).await, Some(2), "they come again");
    let answered = left(topology.results("new")).await;
    assert_eq!(answered, Some(0), "no request is answered");
}

/// Without an answer the request would come again, and its result would be too large again, for
/// ever.
#[test]
fn a_result_above_the_bus_limit_is_answered_as_failed() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::new(600).await;
        bench.ask("new", None, &[1]).await;
        let frame = bench.answer("new").await;
        let TurnOutcome::Failed { failure, retry: false } = &frame.results[0].result.outcome else {
            panic!("{frame:?}");
        };
        assert_eq!(failure.code, FailureCode::TooLarge);
        bench.nothing_comes_again().await;
    });
}

/// A prompt that leaves no room for a token is a failed turn. A wave goes on without it.
#[test]
fn a_prompt_above_the_capped_context_is_answered_as_failed() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::new(usize::MAX).await;
        let capped = |cap| Sampling {
            max_new_tokens: 50,
            max_context: Some(cap),
            ..sampling(1)
        };
        let wave = Some(Wave { id: 1, total: 2 });
        bench.ask_by(capped(1000), "new", wave, &[1]).await;
        let frame = bench.answer("new").await;
        let TurnOutcome::Failed { failure, retry: false } = &frame.results[0].result.outcome else {
            panic!("{frame:?}");
        };
        assert_eq!(failure.code, FailureCode::Context);
        bench.ask_by(capped(1001), "new", wave, &[2]).await;
        let frame = bench.answer("new").await;
        assert!(
            matches!(frame.results[0].result.outcome, TurnOutcome::Done(_)),
            "{frame:?}"
        );
        bench.nothing_comes_again().await;
    });
}

/// A tiny model with room for the prompt, on its own thread.
fn tiny() -> Arc<dyn EngineClient> {
    let folder = tempfile::tempdir().unwrap();
    let config = config_in(folder.path());
    let (_, settings) = config.agents.first_key_value().unwrap();
    let ModelConfig::Random(mut random) = settings.model.clone() else {
        panic!("the test's model is random");
    };
    random.max_context = 1024;
    rollout::text::make::write_tokenizer(folder.path(), &configs::TokenizerConfig::Bytes).unwrap();
    let text = Arc::new(TextCodec::open(folder.path()).unwrap());
    let shape = ModelShape::from_random(&random, text.vocab_size(), &text.stop_ids()).unwrap();
    let weights = Weights::random(&shape, Init::from(&random), 1).unwrap();
    let version = WeightVersion { lineage: 1, step: 7 };
    let options = EngineOptions::from(settings);
    let engine = Engine::new(&shape, Published::new(weights, version), options).unwrap();
    EmbeddedEngine::start("test", engine, version, text).unwrap()
}

/// A job that began after a stop would be blamed for the death that follows.
#[test]
fn a_stopped_agent_begins_no_more_jobs() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::new(usize::MAX).await;
        bench.ask("new", None, &[1]).await;
        assert_eq!(members(&bench.answer("new").await), [1]);
        let mut acked = bench.acked.subscribe();
        acked.wait_for(|acked| *acked == 1).await.unwrap();
        bench.router.send(RouterMessage::Stop).await.unwrap();
        let marked = std::fs::read(&bench.marks).unwrap();
        bench.ask("new", None, &[2]).await;
        bench.ask("new", Some(Wave { id: 1, total: 1 }), &[3]).await;
        drop(bench.asked);
        two_come_again(&bench.bus, &bench.topology).await;
        assert_eq!(std::fs::read(&bench.marks).unwrap(), marked, "no group is begun");
    });
}

/// Reported to the coordinator, each failure would use up one of its conversation's few tries.
#[test]
fn weights_with_infinite_logits_end_the_agent_unanswered() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::over(tiny(), usize::MAX).await;
        // Finite logits divided by this temperature are infinite.
        let cold = || Sampling {
            temperature: 1e-44,
            ..sampling(1)
        };
        for _ in 0..2 {
            bench.ask_by(cold(), "new", None, &[1, 2]).await;
            let mut answered = 0;
            while answered < 2 {
                for result in bench.answer("new").await.results {
                    let TurnOutcome::Failed { failure, retry: true } = &result.result.outcome else {
                        panic!("{result:?}");
                    };
                    let version = WeightVersion { lineage: 1, step: 7 };
                    assert_eq!(failure.code, FailureCode::NotFinite { version });
                    answered += 1;
                }
            }
        }
        assert!(
            bench.gave_up.borrow().is_none(),
            "two requests may be at fault themselves"
        );
        bench.ask_by(cold(), "new", None, &[3]).await;
        let why = bench.gave_up.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        assert!(why.contains("agent a") && why.contains("weights 1.7"), "{why}");
        bench.ask("new", None, &[4]).await;

        let mut acked = bench.acked.subscribe();
        acked.wait_for(|acked| *acked == 2).await.unwrap();
        drop(bench.asked);
        two_come_again(&bench.bus, &bench.topology).await;
    });
}

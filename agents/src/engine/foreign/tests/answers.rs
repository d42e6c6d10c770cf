//! Tests that a server's answer reaches its asker unchanged.

use broker::protocol::failure::FailureCode;
use broker::protocol::turn::{Finish, Message};

use super::*;
use crate::engine::foreign::fake::How;
use crate::run_folder::tests::thinking_in;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_come_with_true_logprobs_of_the_weights_that_made_them() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        let jobs: Vec<GenerationJob> = (0..8).map(|id| job(id, 8)).collect();
        let mut finished = bench.submit(jobs);
        let mut outputs = Vec::new();
        for _ in 0..8 {
            let Finished { job, result } = finished.recv().await.unwrap().remove(0);
            let made = result.unwrap();
            bench.check(&job, &made);
            let ended = made
                .output_ids
                .last()
                .is_some_and(|id| bench.home.text().stop_ids().contains(id));
            assert_eq!(made.finish, if ended { Finish::Stop } else { Finish::Length });
            assert!(made.output_ids.len() == 8 || ended);
            assert_eq!(made.oldest_kv, version(1));
            outputs.push(made.output_ids);
        }
        outputs.sort();
        outputs.dedup();
        assert_eq!(outputs.len(), 8, "each has different random numbers");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_temperature_is_that_of_the_logprobs() {
    for kind in KINDS {
        let bench = Bench::with(kind, 1, |settings| settings.trained_temperature = Some(0.7)).await;
        bench.serve(1).await;
        let cool = GenerationJob {
            sampling: Arc::new(Sampling {
                temperature: 0.7,
                ..sampling(6)
            }),
            ..job(1, 6)
        };
        let made = bench.make(cool.clone()).await.unwrap();
        bench.check(&cool, &made);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_texts_and_the_end_of_the_context_end_an_answer() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        let free = bench.make(job(1, 8)).await.unwrap();
        let said = bench.home.text().decode(&job(1, 8).prompt_ids, &free.output_ids);
        let stop: String = said.chars().take(2).collect();
        assert!(!stop.is_empty() && free.output_ids.len() > 2, "{said:?}");
        let stopping = GenerationJob {
            sampling: Arc::new(Sampling {
                stop: vec![stop],
                ..sampling(8)
            }),
            ..job(1, 8)
        };
        let made = bench.make(stopping).await.unwrap();
        assert_eq!(made.finish, Finish::Stop);
        assert!(free.output_ids.starts_with(&made.output_ids) && made.output_ids.len() < free.output_ids.len());

        // A prompt that leaves less room than the token limit, and one that leaves none.
        let long = |tokens: usize| GenerationJob {
            prompt_ids: vec![65; tokens].into(),
            ..job(2, 8)
        };
        let made = bench.make(long(CONTEXT - 3)).await.unwrap();
        assert!(made.output_ids.len() <= 3 && (made.finish == Finish::Stop || made.output_ids.len() >= 2));
        let failure = bench.make(long(CONTEXT)).await.unwrap_err();
        assert!(
            failure.cause.code == FailureCode::Context && !failure.retry,
            "{failure}"
        );
    }
}

/// The servers stop at it, and are asked to continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_text_in_reasoning_from_the_prompt_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    thinking_in(folder.path());
    let text = Arc::new(TextCodec::open(folder.path()).unwrap());
    let prompt = text.chat(&[Message::user("A")], true).unwrap();
    for kind in KINDS {
        let home = Home::new();
        let fakes = vec![Fake::start(kind, &home.folder(0))];
        let clients = vec![client(&fakes[0], kind, None)];
        let fleet = Fleet::start(clients, home.settings(), text.clone(), None)
            .await
            .unwrap();
        let bench = Bench { home, fakes, fleet };
        bench.serve(1).await;
        let asked = |stop: Vec<String>| GenerationJob {
            prompt_ids: prompt.clone().into(),
            sampling: Arc::new(Sampling { stop, ..sampling(8) }),
            ..job(1, 8)
        };
        let free = bench.make(asked(Vec::new())).await.unwrap();
        let first: String = text.text(&free.output_ids).chars().take(1).collect();
        assert!(!first.is_empty());
        let made = bench.make(asked(vec![first])).await.unwrap();
        let ended = made.output_ids.last().is_some_and(|id| text.stop_ids().contains(id));
        assert!(
            ended || (made.finish, made.output_ids.len()) == (Finish::Length, 8),
            "{made:?}"
        );
        assert_eq!(text.decode(&prompt, &made.output_ids), "");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_logprobs_are_rejected_where_they_would_be_wrong() {
    let home = Home::new();
    for (kind, fix) in [
        (EngineKind::Vllm, "processed_logprobs"),
        (EngineKind::Sglang, "ORIGINAL_LOGPROB"),
    ] {
        let raw = How {
            raw: true,
            ..How::default()
        };
        let fake = Fake::start_as(kind, &home.folder(0), raw);
        let start = |temperature| {
            let settings = Settings {
                trained_temperature: temperature,
                ..home.settings()
            };
            Fleet::start(vec![client(&fake, kind, None)], settings, home.text(), None)
        };
        let error = start(Some(0.7)).await.map(drop).unwrap_err().to_string();
        assert!(
            error.contains(fix) && error.contains("raw") && error.contains(&fake.url()),
            "{error}"
        );
        assert!(
            start(Some(1.0)).await.is_ok(),
            "at temperature 1 there is no difference"
        );
        assert!(start(None).await.is_ok(), "no agent trains on them");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsuitable_server_is_rejected_at_the_start() {
    let home = Home::new();
    for kind in KINDS {
        let locked = How {
            key: Some("the-key-of-the-server".into()),
            ..How::default()
        };
        let fake = Fake::start_as(kind, &home.folder(0), locked);
        let start = |key, max_new_tokens| {
            let settings = Settings {
                max_new_tokens,
                ..home.settings()
            };
            Fleet::start(vec![client(&fake, kind, key)], settings, home.text(), None)
        };
        let error = start(Some("the-key-of-another"), 8)
            .await
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("DYAD_ENGINE_TOKEN") && !error.contains("the-key"),
            "{error}"
        );
        let key = Some("the-key-of-the-server");
        let error = start(key, CONTEXT as u32).await.map(drop).unwrap_err().to_string();
        assert!(error.contains("max_new_tokens"), "{error}");
        assert!(start(key, 8).await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_another_vocabulary_is_rejected_before_it_gets_weights() {
    let home = Home::new();
    for kind in KINDS {
        let fake = Fake::start(kind, &home.folder(0));
        let settings = Settings {
            vocab: 4,
            ..home.settings()
        };
        let started = Fleet::start(vec![client(&fake, kind, None)], settings, home.text(), None).await;
        let error = started.map(drop).unwrap_err().to_string();
        assert!(
            error.contains("another model") && error.contains(&fake.url()),
            "{error}"
        );
        assert!(fake.loads().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partner_that_never_trains_uses_the_weights_in_place() {
    for kind in KINDS {
        let home = Home::new();
        let fake = Fake::start(kind, &home.folder(2));
        let servers = vec![client(&fake, kind, None)];
        let fleet = Fleet::start(servers, home.settings(), home.text(), Some(version(2))).await;
        let bench = Bench {
            fakes: vec![fake],
            fleet: fleet.unwrap(),
            home,
        };
        let made = bench.make(job(1, 8)).await.unwrap();
        bench.check(&job(1, 8), &made);
        bench.fake().forget();
        assert!(bench.make(job(2, 8)).await.is_ok(), "whatever it calls them");
        assert!(bench.fake().loads().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waves_are_rejected_with_a_reason() {
    let bench = Bench::new(EngineKind::Sglang).await;
    let (done, mut finished) = unbounded_channel();
    bench.fleet.submit(vec![job(1, 2), job(2, 2)], true, done);
    let list = finished.recv().await.unwrap();
    assert_eq!(list.len(), 2);
    let failure = list[0].result.as_ref().unwrap_err();
    assert!(failure.cause.reason.contains("sync") && !failure.retry);
}

//! Tests of new weights: the fate of calls in progress, and the reported weights of each token.

use broker::ids::RunId;
use broker::protocol::turn::Finish;
use configs::{AgentName, Dtype};
use trainer::weights::WeightSink;
use trainer::weights::disk::DiskSink;

use super::*;
use crate::engine::foreign;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_continues_with_new_weights_per_token() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        let before = *bench.fake().shared.made.borrow();
        bench.fake().allow(3);
        let mut finished = bench.submit((0..4).map(|id| job(id, 8)).collect());
        for (pieces, step) in [(1, 2), (2, 3)] {
            bench.fake().until_made(before + 4 * 3 * pieces).await;
            bench.serve(step).await;
        }
        for _ in 0..4 {
            let Finished { job, result } = finished.recv().await.unwrap().remove(0);
            let made = result.unwrap();
            bench.check(&job, &made);
            assert_eq!(
                spans(&made),
                [(1, 0, 3), (2, 3, 6), (3, 6, 8)],
                "tokens made before count"
            );
            assert_eq!((made.oldest_kv, made.finish), (version(1), Finish::Length));
        }
        assert_eq!(bench.fake().torn(), 0, "weights changed under no call");
        let asked = bench.fake().shared.asked.lock().unwrap().clone();
        let seeds: std::collections::BTreeSet<u64> = asked.iter().rev().take(12).filter_map(seed).collect();
        assert_eq!(seeds.len(), 12, "each piece has different random numbers");
    }
}

fn seed(body: &serde_json::Value) -> Option<u64> {
    body["seed"]
        .as_u64()
        .or_else(|| body["sampling_params"]["sampling_seed"].as_u64())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_finishes_generations_with_their_first_weights() {
    for kind in KINDS {
        let bench = Bench::with(kind, 1, |settings| settings.drains = true).await;
        bench.serve(1).await;
        bench.fake().allow(2);
        let mut first = bench.submit(vec![job(1, 8)]);
        bench.fake().until_running(1).await;
        bench.announce(2);
        let mut second = bench.submit(vec![job(2, 8)]);
        bench.fake().allow(usize::MAX);
        let first = first.recv().await.unwrap().remove(0);
        let made = first.result.unwrap();
        bench.check(&first.job, &made);
        assert_eq!(spans(&made), [(1, 0, made.output_ids.len() as u32)]);
        bench.until_serving(2).await;
        let second = second.recv().await.unwrap().remove(0);
        bench.check(&second.job, &second.result.unwrap());
        assert_eq!(bench.fake().torn(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adapters_are_loaded_and_unloaded_during_calls() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let announce = |step| {
            bench
                .fleet
                .announce(bench.home.adapter(step), format!("dyad-x-1.{step}"))
        };
        announce(1);
        bench.until_serving(1).await;
        bench.fake().allow(2);
        let mut under_way = bench.submit(vec![job(1, 8)]);
        bench.fake().until_running(1).await;
        announce(2);
        bench.until_serving(2).await;
        assert!(bench.fake().shared.unloaded.lock().unwrap().is_empty(), "it is in use");
        assert_eq!(bench.fleet.oldest(), Some(version(1)), "and so is its folder");
        bench.fake().allow(usize::MAX);
        for (made, step) in [
            (under_way.recv().await.unwrap().remove(0).result.unwrap(), 1),
            (bench.make(job(1, 8)).await.unwrap(), 2),
        ] {
            assert_eq!(spans(&made), [(step, 0, made.output_ids.len() as u32)]);
            let model = Model::with_adapter(
                &bench.home.folder(0),
                &bench.home.home.path().join(format!("adapter-{step}")),
            );
            bench.check_span(&model.unwrap(), &job(1, 8), &made, 0..made.output_ids.len());
        }
        announce(3);
        bench.until_serving(3).await;
        let unloaded = bench.fake().shared.unloaded.lock().unwrap().clone();
        assert_eq!(unloaded, ["dyad-x-1.1", "dyad-x-1.2"], "no call uses them any more");
        assert_eq!(bench.fleet.oldest(), Some(version(3)));
    }
}

/// A repaired or restored ledger gives a version a second time; servers and the folder outlive the
/// process that gave it first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_given_a_second_time_serves_its_new_weights() {
    let (run, agent) = (RunId::new("x").unwrap(), AgentName::new("a").unwrap());
    for (kind, adapters) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let home = Home::new();
        let fake = Fake::start(kind, &home.folder(0));
        let root = home.home.path().join("weights");
        for life in 1..3 {
            let servers = vec![client(&fake, kind, None)];
            let fleet = Fleet::start(servers, home.settings(), home.text(), None).await.unwrap();
            let (announce, run, agent) = (fleet.clone(), run.clone(), agent.clone());
            let announce = Box::new(move |written: Written| {
                let label = foreign::label(&run, &agent, &written);
                announce.announce(written, label);
            });
            let shape = home.shape(&home.folder(0));
            let mut sink = DiskSink::new(&root, shape, Dtype::F32, "base".into(), announce, Box::new(|| None)).unwrap();
            let weights = if adapters {
                home.adapter_weights(life)
            } else {
                home.weights(life)
            };
            sink.publish(&weights, version(1)).unwrap();
            let bench = Bench {
                home: Home::new(),
                fakes: vec![fake.clone()],
                fleet,
            };
            bench.until_serving(1).await;
            let made = bench.make(job(1, 6)).await.unwrap();
            let model = if adapters {
                Model::with_adapter(&home.folder(0), &home.adapter(life).folder)
            } else {
                Model::open(&home.folder(life))
            };
            bench.check_span(&model.unwrap(), &job(1, 6), &made, 0..made.output_ids.len());
        }
    }
}

/// Neither a server that was away nor one that fails to unload keeps adapters for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adapters_do_not_pile_up_in_a_server() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let announce = |step| {
            bench
                .fleet
                .announce(bench.home.adapter(step), format!("dyad-x-1.{step}"))
        };
        let unloaded = || bench.fake().shared.unloaded.lock().unwrap().clone();
        announce(1);
        bench.until_serving(1).await;
        bench.fake().shared.well.send_replace(false);
        let mut news = bench.fleet.news();
        while bench.fleet.serving().is_some() {
            news.changed().await.unwrap();
        }
        announce(2);
        bench.fake().shared.well.send_replace(true);
        bench.until_serving(2).await;
        assert_eq!(unloaded(), ["dyad-x-1.1"]);
        *bench.fake().shared.clings.lock().unwrap() = 1;
        announce(3);
        bench.until_serving(3).await;
        assert_eq!(unloaded().len(), 1);
        announce(4);
        bench.until_serving(4).await;
        assert_eq!(unloaded(), ["dyad-x-1.1", "dyad-x-1.2", "dyad-x-1.3"]);
    }
}

/// vLLM returns 200 even if it did not empty its cache; SGLang returns 400, with the new weights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_serve_only_after_the_old_cache_is_emptied() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        *bench.fake().shared.keeps.lock().unwrap() = 1;
        bench.serve(2).await;
        assert_eq!(bench.fake().torn(), 0, "no label covered an old cache");
        assert_eq!(bench.fake().loads().len(), 3, "it was tried again");
        let refusal = bench.fleet.refusals().borrow().clone();
        assert!(refusal.is_none(), "{refusal:?}");
        let made = bench.make(job(1, 4)).await.unwrap();
        bench.check(&job(1, 4), &made);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partner_that_does_not_train_reloads_its_adapter() {
    for kind in KINDS {
        let bench = Bench::with(kind, 1, |settings| settings.trained_temperature = None).await;
        *bench.fake().shared.refuses.lock().unwrap() = 2;
        let mut refusals = bench.fleet.refusals();
        bench.fleet.announce(bench.home.adapter(1), "dyad-x-1.1".into());
        refusals.changed().await.unwrap();
        let refusal = refusals.borrow_and_update().clone().unwrap();
        assert!(refusal.reason.contains("out of memory"), "{refusal:?}");
        // No second announcement is made.
        bench.until_serving(1).await;
        assert!(bench.make(job(1, 4)).await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_weights_are_ignored_and_only_the_newest_are_loaded() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(2).await;
        bench.announce(1);
        bench.serve(3).await;
        let loads = bench.fake().loads();
        assert_eq!(loads, [(bench.home.folder(2), true), (bench.home.folder(3), true)]);
        let made = bench.make(job(1, 4)).await.unwrap();
        bench.check(&job(1, 4), &made);
        assert_eq!(made.spans[0].version, version(3));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_weights_are_reported_and_may_be_sent_again() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        // vLLM returns HTTP 500, which may be temporary, so the load is retried a few times.
        let times = if kind == EngineKind::Vllm { 6 } else { 1 };
        *bench.fake().shared.refuses.lock().unwrap() = times;
        let mut refusals = bench.fleet.refusals();
        bench.announce(2);
        refusals.changed().await.unwrap();
        let refusal = refusals.borrow_and_update().clone().unwrap();
        assert_eq!(refusal.version, version(2));
        assert!(refusal.reason.contains("out of memory") && refusal.reason.contains(&bench.fake().url()));
        let waiting = bench.submit(vec![job(1, 4)]);
        bench.serve(2).await;
        let made = { waiting }.recv().await.unwrap().remove(0).result.unwrap();
        assert_eq!(made.spans[0].version, version(2));
        assert_eq!(bench.fake().torn(), 0);
    }
}

/// At any timing, no token is reported with weights that did not make it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_swaps_under_load_mislabel_nothing() {
    for kind in KINDS {
        let bench = Bench::with(kind, 2, |settings| settings.slots = 3).await;
        bench.serve(0).await;
        let mut finished = bench.submit((0..40).map(|id| job(id, 8)).collect());
        let mut versions = bench.fleet.versions();
        let mut left = 40;
        for step in 1..4 {
            for _ in 0..8 {
                let Finished { job, result } = finished.recv().await.unwrap().remove(0);
                bench.check(&job, &result.unwrap());
                left -= 1;
            }
            bench.announce(step);
        }
        while left > 0 {
            let Finished { job, result } = finished.recv().await.unwrap().remove(0);
            bench.check(&job, &result.unwrap());
            left -= 1;
        }
        versions.wait_for(|serving| *serving == version(3)).await.unwrap();
        assert!(bench.fakes.iter().all(|fake| fake.torn() == 0));
    }
}

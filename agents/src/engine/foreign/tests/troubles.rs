//! Tests of failures and their consequences.

use broker::protocol::failure::FailureCode;

use std::sync::atomic::Ordering;

use super::*;
use crate::engine::foreign::fake::{FakeFault, How};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_call_is_retried_and_a_lasting_failure_reported() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        for fault in [
            FakeFault::Dropped,
            FakeFault::Failing,
            FakeFault::Half,
            FakeFault::Truncated,
            FakeFault::NoLogprob,
            FakeFault::Fewer,
            FakeFault::Foreign,
        ] {
            bench.fake().fail_next(&[fault; 2]);
            let made = bench
                .make(job(1, 6))
                .await
                .unwrap_or_else(|failure| panic!("{fault:?}: {failure}"));
            bench.check(&job(1, 6), &made);
        }
        bench.fake().fail_next(&[FakeFault::NoLogprob; 5]);
        let failure = bench.make(job(1, 6)).await.unwrap_err();
        assert!(failure.retry && failure.cause.code == FailureCode::Engine, "{failure}");
        assert!(
            failure.cause.reason.contains("log-prob") && failure.cause.reason.contains(&bench.fake().url()),
            "{failure}"
        );
        assert!(bench.make(job(1, 6)).await.is_ok(), "the next job is not affected");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_gets_its_weights_before_it_answers() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        bench.fake().allow(2);
        let mut finished = bench.submit((0..3).map(|id| job(id, 8)).collect());
        bench.fake().until_running(3).await;
        bench.fake().kill().await;
        // No job fails in between: work waits.
        bench.announce(2);
        bench.fake().allow(usize::MAX);
        bench.fake().start_again();
        for _ in 0..3 {
            let Finished { job, result } = finished.recv().await.unwrap().remove(0);
            let made = result.unwrap();
            bench.check(&job, &made);
            assert!(spans(&made).iter().all(|span| span.0 == 2), "{:?}", made.spans);
        }
        assert_eq!(bench.fake().loads().last(), Some(&(bench.home.folder(2), true)));
    }
}

/// The old weights are back before any health check: only the server's label reveals it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unexpected_old_weights_are_detected_and_tokens_dropped() {
    for (kind, quiet) in [
        (EngineKind::Sglang, false),
        (EngineKind::Vllm, false),
        (EngineKind::Vllm, true),
    ] {
        let home = Home::new();
        let how = How {
            quiet,
            ..How::default()
        };
        let fake = Fake::start_as(kind, &home.folder(0), how);
        let servers = vec![client(&fake, kind, None)];
        let fleet = Fleet::start(servers, home.settings(), home.text(), None).await.unwrap();
        let bench = Bench {
            home,
            fakes: vec![fake],
            fleet,
        };
        bench.serve(1).await;
        bench.fake().forget();
        assert_eq!(bench.fake().label(), "default");
        let made = bench.make(job(1, 6)).await.unwrap();
        bench.check(&job(1, 6), &made);
        assert_eq!(made.spans[0].version, version(1));
        assert_eq!(bench.fake().loads().len(), 2, "they were loaded again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_adapter_is_loaded_again() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.fleet.announce(bench.home.adapter(1), "dyad-x-1.1".into());
        bench.until_serving(1).await;
        bench.fake().forget();
        assert!(bench.make(job(1, 6)).await.is_ok());
        assert_eq!(bench.fake().loads().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_server_alone_does_not_answer() {
    let bench = Bench::with(EngineKind::Vllm, 2, |_| {}).await;
    bench.serve(1).await;
    let mut news = bench.fleet.news();
    bench.fakes[1].kill().await;
    let expected = [(bench.fakes[0].url(), true), (bench.fakes[1].url(), false)];
    let presences = bench.fleet.presences();
    let found = || presences.iter().map(|one| (one.engine.clone(), (one.answers)()));
    while !found().eq(expected.clone()) {
        news.changed().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_server_takes_over_from_a_dead_or_hanging_one() {
    for kind in KINDS {
        for hangs in [false, true] {
            let bench = Bench::with(kind, 2, |_| {}).await;
            bench.serve(1).await;
            let (one, other) = (&bench.fakes[0], &bench.fakes[1]);
            one.allow(2);
            other.allow(2);
            let mut finished = bench.submit(vec![job(0, 8), job(1, 8), job(2, 8), job(3, 8)]);
            // A group goes to one engine.
            let (dead, alive) = tokio::select! {
                () = one.until_running(4) => (one, other),
                () = other.until_running(4) => (other, one),
            };
            if hangs {
                // Its calls stay open, and its health check fails.
                dead.shared.well.send_replace(false);
            } else {
                dead.kill().await;
            }
            alive.allow(usize::MAX);
            for _ in 0..4 {
                let Finished { job, result } = finished.recv().await.unwrap().remove(0);
                bench.check(&job, &result.unwrap());
            }
            // And others do its work until it is back.
            assert!(bench.make(job(4, 4)).await.is_ok());
            assert_eq!(bench.fleet.oldest(), Some(version(1)));
        }
    }
}

/// A slow answer is an answer: no call ends while the server reports that it is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_is_waited_for_while_it_is_well() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        bench.fake().allow(1);
        let mut finished = bench.submit(vec![job(1, 4)]);
        bench.fake().until_running(1).await;
        let mut looks = bench.fake().shared.looks.subscribe();
        let before = *looks.borrow();
        looks.wait_for(|looks| *looks > before + 9).await.unwrap();
        assert!(finished.try_recv().is_err());
        bench.fake().allow(usize::MAX);
        let made = finished.recv().await.unwrap().remove(0).result.unwrap();
        bench.check(&job(1, 4), &made);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_calls_than_slots_are_made_at_once() {
    let bench = Bench::with(EngineKind::Vllm, 1, |settings| settings.slots = 3).await;
    bench.serve(1).await;
    bench.fake().allow(0);
    let mut finished = bench.submit((0..9).map(|id| job(id, 2)).collect());
    bench.fake().until_running(3).await;
    assert_eq!(*bench.fake().shared.running.borrow(), 3);
    let mut running = bench.fake().shared.running.subscribe();
    let most = tokio::spawn(async move {
        let mut most = 0;
        while running.changed().await.is_ok() {
            most = most.max(*running.borrow_and_update());
            if most > 3 {
                break;
            }
        }
        most
    });
    bench.fake().allow(usize::MAX);
    for _ in 0..9 {
        finished.recv().await.unwrap().remove(0).result.unwrap();
    }
    assert!(!most.is_finished(), "never more than three");
    most.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_an_asker_is_dropped() {
    let bench = Bench::new(EngineKind::Sglang).await;
    bench.serve(1).await;
    bench.fake().allow(1);
    let finished = bench.submit(vec![job(1, 8)]);
    bench.fake().until_running(1).await;
    drop(finished);
    // The call's connection is closed, and the server stops.
    bench.fake().until_running(0).await;
}

/// A server may be replaced by another one with other start options.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_its_weights_is_checked_again() {
    for kind in KINDS {
        let bench = Bench::with(kind, 1, |settings| settings.trained_temperature = Some(0.7)).await;
        bench.serve(1).await;
        let mut refusals = bench.fleet.refusals();
        bench.fake().shared.raw.store(true, Ordering::Relaxed);
        bench.fake().forget();
        let cool = Sampling {
            temperature: 0.7,
            ..sampling(6)
        };
        let mut finished = bench.submit(vec![GenerationJob {
            sampling: Arc::new(cool),
            ..job(1, 6)
        }]);
        tokio::select! {
            changed = refusals.changed() => changed.unwrap(),
            _ = finished.recv() => panic!("{kind:?}: its raw log-probs were taken"),
        }
        let refusal = refusals.borrow_and_update().clone().unwrap();
        assert!(refusal.reason.contains("raw logits"), "{refusal:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_weights_changed_by_others_is_rejected() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        let mut refusals = bench.fleet.refusals();
        bench.fake().shared.meddled.store(true, Ordering::Relaxed);
        let mut finished = bench.submit(vec![job(1, 2)]);
        let mut tokens = bench.fake().shared.made.subscribe();
        tokio::select! {
            changed = refusals.changed() => changed.unwrap(),
            _ = tokens.wait_for(|tokens| *tokens > 500) => panic!("{kind:?}: it goes on for ever"),
        }
        let refusal = refusals.borrow_and_update().clone().unwrap();
        assert_eq!(refusal.version, version(1));
        assert!(refusal.reason.contains("another program changes"), "{refusal:?}");
        assert_eq!(bench.fake().loads().len(), 5, "the first time and four more");
        // Announced again, they are loaded again.
        bench.fake().shared.meddled.store(false, Ordering::Relaxed);
        bench.announce(1);
        let made = finished.recv().await.unwrap().remove(0).result.unwrap();
        bench.check(&job(1, 2), &made);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_too_long_is_not_read_to_its_end() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        for (fault, said) in [
            (FakeFault::Endless, "longer than"),
            (FakeFault::Complaining, "HTTP 500"),
        ] {
            bench.fake().fail_next(&[fault; 5]);
            let failure = bench.make(job(1, 6)).await.unwrap_err();
            assert!(failure.retry && failure.cause.reason.contains(said), "{failure}");
            assert!(failure.cause.reason.len() < 1000, "{failure}");
        }
    }
}

//! Waves of requests, with repeats and gone coordinators.

use super::*;

/// The first coordinator died before its wave was complete. The second coordinator repeats the
/// requests that it took over. No coordinator waits for the request that it gave up (here member
/// 2).
#[test]
fn a_gone_coordinator_s_wave_is_taken_over_and_rest_dropped() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::new(usize::MAX).await;
        bench.ask("old", Some(Wave { id: 9, total: 3 }), &[1, 2]).await;
        bench.ask("new", Some(Wave { id: 1, total: 1 }), &[1]).await;
        assert_eq!(members(&bench.answer("new").await), [1]);
        assert_eq!(
            members(&bench.answer("old").await),
            [1],
            "the first asker is answered too"
        );
        bench.nothing_comes_again().await;
    });
}

#[test]
fn a_wave_waits_for_all_requests_despite_repeats() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::new(usize::MAX).await;
        let wave = Some(Wave { id: 1, total: 2 });
        bench.ask("new", wave, &[1]).await;
        bench.ask("new", wave, &[1]).await;
        let mut results = bench.bus.consume(&bench.topology.results("new"), 9).await.unwrap();
        let early = tokio::time::timeout(std::time::Duration::from_millis(50), results.next()).await;
        assert!(early.is_err(), "a request that came twice is not a wave of two");
        drop(results);
        bench.ask("new", wave, &[2]).await;
        assert_eq!(members(&bench.answer("new").await), [1, 2]);
        bench.nothing_comes_again().await;
    });
}

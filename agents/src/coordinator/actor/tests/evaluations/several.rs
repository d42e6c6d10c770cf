//! Several coordinators: each evaluation is made once.

use super::*;

#[tokio::test(start_paused = true)]
async fn coordinators_evaluate_one_after_the_other_and_nothing_twice() {
    let mut bench = bench(|_| {}).await;
    let lease = lease(bench.coordinator.env.config.run.lease.0);
    bench.receives(other("another", 1, Some("another/1"), None));
    assert_eq!(bench.asks(), None, "it is left to the other");
    tokio::time::advance(lease).await;
    assert!(bench.asks().is_some(), "which is gone");
    bench.receives(other("another", 2, Some("another/2"), None));
    assert_eq!(bench.asks(), None, "of two that ask at once the lesser name goes on");
    assert!(!bench.coordinator.evals.is_running());
    let made = Evaluated { step: 0, last: false };
    bench.receives(other("another", 3, None, Some(made)));
    assert_eq!(bench.asks(), None);
    assert!(!bench.coordinator.evals.is_running(), "that one is made");
    assert_eq!(bench.coordinator.evals.newest(), Some(made));
    assert!(bench.coordinator.evals.is_due(10), "the next is not");
}

/// Without holds, both may have begun before they received each other's heartbeats.
#[tokio::test(start_paused = true)]
async fn without_holds_coordinators_play_no_evaluation_twice_either() {
    let mut bench = bench(|config| config.eval.hold = false).await;
    let lease = lease(bench.coordinator.env.config.run.lease.0);
    bench.receives(plays("another", 1));
    assert_eq!(bench.asks(), None);
    assert!(!bench.coordinator.evals.is_running(), "it is left to the other");
    tokio::time::advance(lease).await;
    assert_eq!(bench.asks(), None);
    assert!(bench.coordinator.evals.is_running(), "which is gone");
    // Our incarnation is "us".
    bench.receives(plays("zoe", 1));
    assert_eq!(bench.asks(), None);
    assert!(bench.coordinator.evals.is_running(), "the lesser name goes on");

    bench.open("t").await;
    bench.receives(plays("another", 2));
    assert_eq!(bench.asks(), None);
    assert!(!bench.coordinator.evals.is_running(), "and the other gives it up");
    let left = bench.coordinator.play.iter().map(|(_, open)| open.purpose);
    assert!(
        left.eq([Purpose::Train]),
        "with all that was played of it, and nothing else"
    );
    let made = Evaluated { step: 0, last: false };
    bench.receives(other("another", 3, None, Some(made)));
    assert_eq!(bench.asks(), None);
    assert!(!bench.coordinator.evals.is_running(), "that one is made");
    assert!(bench.evaluated().is_empty(), "by the other");
}

/// The other coordinator writes its own.
#[tokio::test(start_paused = true)]
async fn an_evaluation_that_is_given_up_leaves_no_transcripts() {
    let mut bench = bench_of(false, |config| (config.eval.hold, config.eval.tasks) = (false, Some(3))).await;
    tokio::time::advance(LISTEN).await;
    let lease = lease(bench.coordinator.env.config.run.lease.0);
    assert_eq!(bench.asks(), None);
    bench.play_some(1, |_, made| made);
    assert!(bench.coordinator.evals.is_running());
    assert_eq!(bench.written(), 0, "another may have begun it too");
    bench.receives(plays("another", 1));
    assert_eq!(bench.asks(), None);
    assert!(!bench.coordinator.evals.is_running(), "it is left to the other");
    assert_eq!(bench.written(), 0);

    tokio::time::advance(lease).await;
    assert_eq!(bench.asks(), None);
    assert!(bench.coordinator.evals.is_running(), "which is gone");
    bench.play_some(1, |_, made| made);
    assert_eq!(bench.written(), 0);
    tokio::time::advance(lease).await;
    bench.play_some(1, |_, made| made);
    assert!(bench.coordinator.evals.is_running());
    assert_eq!(bench.written(), 2, "no other coordinator can have begun it");
    bench.play_some(1, |_, made| made);
    assert_eq!((bench.written(), bench.evaluated().len()), (3, 1));

    let mut rounds = self::bench(|config| config.run.mode = Mode::Sync).await;
    assert_eq!(rounds.asks(), None);
    rounds.play_some(1, |_, made| made);
    assert_eq!(rounds.written(), 1, "a run in rounds has one coordinator");
    let mut alone = self::bench(|config| config.eval.hold = false).await;
    assert_eq!(alone.asks(), None);
    alone.play_some(1, |_, made| made);
    assert_eq!(alone.written(), 1, "and so has one in one process");
}

#[tokio::test]
async fn what_is_over_before_a_lease_is_written_too() {
    let mut bench = bench(|config| config.eval.hold = false).await;
    assert_eq!(bench.asks(), None);
    bench.play(|_, made| made);
    assert_eq!((bench.written(), bench.evaluated().len()), (2, 1));
}

/// The evaluation took longer than agents hold for it, and goes on.
#[tokio::test]
async fn an_evaluation_past_its_hold_is_not_played_twice() {
    let mut bench = bench(|_| {}).await;
    bench.receives(plays("zoe", 1));
    assert_eq!(bench.asks(), None, "whatever its name");
    assert!(!bench.coordinator.evals.is_running());
    bench.receives(other("zoe", 2, None, None));
    assert!(bench.asks().is_some(), "it gave it up");
    bench.receives(plays("zoe", 3));
    assert_eq!(bench.asks(), None, "it had begun before it received our question");
}

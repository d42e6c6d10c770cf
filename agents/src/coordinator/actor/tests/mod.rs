//! Leases, dead tasks and other coordinators, as a coordinator handles them call by call.

mod evaluations;
mod phases;
mod programs;
mod rounds;
mod suites;

use broker::AgentName;
use broker::bus::Bus;
use broker::bus::letter::{HEADER_CLASS, HEADER_REASON};
use broker::ids::{Attempt, GroupId, WeightVersion};
use broker::protocol::bundle::{Bundle, BundleContent};
use broker::protocol::control::{Beat, Command, CoordinatorBeat, RunPhase, RunState};
use broker::protocol::failure::Failure;
use broker::protocol::reserve::{ReserveAnswer, ReserveAnswerFrame, ReserveVerdict};
use broker::protocol::turn::TurnOutcome;
use broker::store::{Claim, Lease, Store};

use crate::coordinator::actor::bench::{Bench, beat, candidate, committed, result, settle, speaker};
use crate::coordinator::admission::Admitting;
use crate::coordinator::input::CommitDone;
use crate::testing::coordinator_beat;

/// The group was lost and claimed again while a commit was under way. The new claim has read what
/// the old lease wrote: applied here, it would count twice.
#[tokio::test]
async fn a_late_commit_of_a_lost_lease_is_not_applied() {
    let mut bench = Bench::new(|_| {}).await;
    let (group, lease) = bench.open("t").await;
    let late = Lease {
        fence: lease.fence - 1,
        ..lease
    };
    bench.coordinator.on_committed(vec![committed(late, 7)], &mut bench.ctx);
    assert!(bench.group(&group).run.events(0).is_empty());
    assert_eq!(bench.coordinator.figures.counters().stale_results, 1);
    bench
        .coordinator
        .on_committed(vec![committed(lease, 8)], &mut bench.ctx);
    assert_eq!(bench.group(&group).run.events(0).len(), 1);
    assert_eq!(bench.coordinator.figures.counters().stale_results, 1);
}

/// A repeated answer stands for no other turn: a turn that is still missing is asked for again.
#[tokio::test]
async fn two_copies_of_an_answer_hide_no_lost_request() {
    let mut bench = Bench::new(|_| {}).await;
    let (group, lease) = bench.open("t").await;
    let run = |bench: &Bench| bench.group(&group).run.outstanding();
    bench.change(group, |_| ());
    bench.coordinator.flush(&mut bench.ctx);
    assert_eq!(run(&bench), 4, "four speakers");
    for _ in 0..2 {
        bench
            .coordinator
            .on_committed(vec![committed(lease, 7)], &mut bench.ctx);
    }
    bench.coordinator.flush(&mut bench.ctx);
    assert_eq!(run(&bench), 4, "three speakers and a listener");
    bench.change(group, |open| open.run.give_up(1, Failure::other("for the test")));
    assert_eq!(run(&bench), 3, "nothing is awaited of a conversation that was given up");
}

/// A turn that can never be generated ends its own conversation and no other one of the group.
#[tokio::test]
async fn an_impossible_turn_ends_only_its_own_conversation() {
    let mut bench = Bench::new(|config| config.workflow.min_group = 0.5).await;
    let (group, lease) = bench.open("t").await;
    let failed = |member, retry| {
        let key = speaker(member);
        let failure = Failure::context("70 tokens");
        CommitDone {
            results: vec![(key.clone(), result(lease, &key, TurnOutcome::Failed { failure, retry }))],
            outcome: Ok(vec![]),
            ..committed(lease, 0)
        }
    };
    let run = |bench: &Bench, member: u16| {
        let wanted = bench.group(&group).run.wanted();
        wanted.iter().any(|one| one.key.member == member)
    };
    bench.coordinator.on_committed(vec![failed(1, true)], &mut bench.ctx);
    assert!(run(&bench, 1), "a failure of the machinery is asked again");
    bench.coordinator.on_committed(vec![failed(0, false)], &mut bench.ctx);
    assert!(!run(&bench, 0) && run(&bench, 1));
}

/// Its agent died three times while it worked on the task. The task is in the dead letters as it
/// was published, and every ledger receives the reason.
#[tokio::test]
async fn a_task_that_kills_is_dead_and_closes_its_rows() {
    let mut bench = Bench::new(|_| {}).await;
    let (group, lease) = bench.open("t").await;
    let key = speaker(0);
    let failure = Failure::crashed("3 deaths");
    let failed = TurnOutcome::Failed { failure, retry: false };
    let done = CommitDone {
        results: vec![(key.clone(), result(lease, &key, failed))],
        outcome: Ok(vec![]),
        ..committed(lease, 0)
    };
    bench.coordinator.on_committed(vec![done], &mut bench.ctx);
    assert!(bench.group(&group).run.is_done(), "nothing more is asked for it");
    bench.coordinator.flush(&mut bench.ctx);
    let topology = bench.coordinator.env.topology.clone();
    let mut dead = bench.bus.consume(&topology.dead(), 1).await.unwrap();
    let letter = dead.next().await.unwrap();
    assert_eq!(&letter.body[..], b"as published");
    assert_eq!(letter.message_id.as_deref(), Some("t"));
    assert!(letter.header(HEADER_REASON).unwrap().contains("3 deaths"));
    for agent in ["a", "b"] {
        let queue = topology.samples(&AgentName::new(agent).unwrap());
        let part = bench.bus.consume(&queue, 1).await.unwrap().next().await.unwrap();
        let bundle: Bundle = broker::codec::decode(&part.body).unwrap();
        let BundleContent::Dead { reason } = &bundle.content else {
            panic!("{bundle:?}");
        };
        assert!(reason.starts_with("dead: "), "{reason}");
    }
}

/// Its generations failed as often as they may. Closed without samples, a published task would be
/// lost without a report.
#[tokio::test]
async fn a_task_that_the_machinery_failed_is_dead_after_its_tries() {
    let mut bench = Bench::new(|config| config.workflow.group_size = 4).await;
    let (group, lease) = bench.open("t").await;
    let failed = |member| {
        let key = speaker(member);
        let version = WeightVersion { lineage: 1, step: 3 };
        let failure = Failure::not_finite(version, "the logits are not finite");
        let failed = TurnOutcome::Failed { failure, retry: true };
        CommitDone {
            results: vec![(key.clone(), result(lease, &key, failed))],
            outcome: Ok(vec![]),
            ..committed(lease, 0)
        }
    };
    let tries = bench.coordinator.env.config.workflow.retries;
    for one in 1..=tries {
        bench
            .coordinator
            .on_committed((0..4).map(failed).collect(), &mut bench.ctx);
        assert_eq!(bench.group(&group).run.is_done(), one == tries, "try {one}");
    }
    bench.coordinator.flush(&mut bench.ctx);
    let topology = bench.coordinator.env.topology.clone();
    let mut dead = bench.bus.consume(&topology.dead(), 1).await.unwrap();
    let letter = dead.next().await.unwrap();
    assert_eq!(
        (&letter.body[..], letter.message_id.as_deref()),
        (&b"as published"[..], Some("t"))
    );
    assert_eq!(letter.header(HEADER_CLASS), Some("unplayed"));
    let reason = letter.header(HEADER_REASON).unwrap();
    assert!(reason.contains("1.3") && reason.contains("last of 3 tries"), "{reason}");
    for agent in ["a", "b"] {
        let queue = topology.samples(&AgentName::new(agent).unwrap());
        let part = bench.bus.consume(&queue, 1).await.unwrap().next().await.unwrap();
        let bundle: Bundle = broker::codec::decode(&part.body).unwrap();
        assert!(
            matches!(&bundle.content, BundleContent::Dead { reason } if reason.starts_with("dead: ")),
            "{bundle:?}"
        );
    }
    assert_eq!(bench.coordinator.figures.counters().dead_tasks, 1);
    assert!(
        bench.coordinator.figures.failed("not_finite") > 0,
        "it stays in the figures"
    );
}

/// A task without results closes without samples where the run's own source has more. The publisher
/// of a task receives the reason.
#[tokio::test]
async fn a_published_task_without_results_is_in_the_dead_letters() {
    for (order, letters) in [(7, 0), (crate::ledger::PUBLISHED, 1)] {
        let mut bench = Bench::new(|config| config.workflow.group_size = 4).await;
        let (group, _) = bench.open("t").await;
        bench.change(group, |open| {
            open.order = order;
            (0..4).for_each(|member| open.run.give_up(member, Failure::context("70 tokens")));
        });
        bench.coordinator.flush(&mut bench.ctx);
        let topology = &bench.coordinator.env.topology;
        // Bundles are sent after the letter.
        let queue = topology.samples(&AgentName::new("a").unwrap());
        bench.bus.consume(&queue, 1).await.unwrap().next().await.unwrap();
        assert_eq!(bench.bus.depth(&topology.dead()).await, Some(letters), "order {order}");
    }
}

/// Failures are in no record. A failed turn that is asked again may succeed: the successor would
/// come to another outcome than the one by which an agent may have closed its row, begin a new
/// attempt, and the agents would hold different attempts.
#[tokio::test]
async fn who_takes_a_decided_group_over_sends_what_was_decided() {
    for failure in [Failure::engine("out of memory"), Failure::context("70 tokens")] {
        let mut bench = Bench::new(|config| config.workflow.group_size = 4).await;
        let (group, lease) = bench.open("t").await;
        let failed = |member| {
            let key = speaker(member);
            let failure = failure.clone();
            let failed = TurnOutcome::Failed { failure, retry: false };
            CommitDone {
                results: vec![(key.clone(), result(lease, &key, failed))],
                outcome: Ok(vec![]),
                ..committed(lease, 0)
            }
        };
        let failures = (0..4).map(failed).collect();
        bench.coordinator.on_committed(failures, &mut bench.ctx);
        bench.coordinator.flush(&mut bench.ctx);
        settle().await;
        let topology = bench.coordinator.env.topology.clone();
        let queue = topology.samples(&AgentName::new("a").unwrap());
        let mut sent = bench.bus.consume(&queue, 2).await.unwrap();
        let first = sent.next().await.unwrap().body;

        let open = bench.take_open(&group);
        let claim = bench.store.claim(group, "successor", Attempt([2; 16]), None).await;
        bench
            .coordinator
            .admission
            .begin_claim(group, Admitting::reserved(open));
        bench.coordinator.on_claimed(group, claim, &mut bench.ctx);
        assert!(bench.group(&group).run.is_done(), "nothing is asked again");
        bench.coordinator.flush(&mut bench.ctx);
        settle().await;
        assert_eq!(sent.next().await.unwrap().body, first);
    }
}

/// The channel broke before any ledger had the task: it comes again while the first delivery waits
/// for its agents' answers. Acked as known, it would be in no queue and in no ledger, and lost with
/// this process.
#[tokio::test]
async fn a_repeated_task_stays_queued_until_custody() {
    let mut bench = Bench::new(|config| config.run.mode = configs::Mode::Async).await;
    bench.beats(0);
    bench.coordinator.lifecycle.set_phase(RunPhase::Running);
    let tasks = bench.coordinator.env.topology.tasks();
    bench.publish_task("t").await;
    for _ in 0..2 {
        let mut consumer = bench.bus.consume(&tasks, 1).await.unwrap();
        let delivery = consumer.next().await.unwrap();
        bench.coordinator.admission.add(candidate("t", delivery));
        bench.coordinator.admit();
        settle().await;
    }
    assert_eq!(bench.bus.depth(&tasks).await, Some(1), "it comes again if we die now");

    let mut consumer = bench.bus.consume(&tasks, 1).await.unwrap();
    let delivery = consumer.next().await.unwrap();
    bench.coordinator.admission.add(candidate("t", delivery.clone()));
    bench.coordinator.admit();
    let answers = ReserveAnswerFrame {
        agent: "a".into(),
        answers: vec![ReserveAnswer {
            group: GroupId::new(&bench.coordinator.env.run, "t"),
            verdict: ReserveVerdict::Granted,
        }],
    };
    bench.coordinator.on_answers(answers, delivery, &mut bench.ctx);
    settle().await;
    drop(consumer);
    assert_eq!(bench.bus.depth(&tasks).await, Some(0), "the first ledger has it");
}

/// A beat that has moved says that its owner lives. A beat that has gone back says that the store
/// has been set back, and the owner may be long gone.
#[tokio::test]
async fn an_owner_with_an_older_beat_is_watched_on() {
    let mut bench = Bench::new(|_| {}).await;
    let (group, _) = bench.open("t").await;
    let open = bench.take_open(&group);
    bench
        .coordinator
        .admission
        .begin_claim(group, Admitting::reserved(open));
    for (fence, beat, watched) in [(2, 9, true), (2, 7, true), (1, 9, true), (1, 10, false)] {
        let theirs = Claim::Theirs {
            owner: "another".into(),
            beat,
            fence,
        };
        bench.coordinator.on_claimed(group, Ok(theirs), &mut bench.ctx);
        let watches = bench.coordinator.admission.claims(&group);
        assert_eq!(watches, watched, "fence {fence}, beat {beat}");
    }
}

/// A run that fails to start drops actors that have not begun.
#[test]
fn a_coordinator_dropped_before_its_start_does_not_panic() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bench = runtime.block_on(Bench::new(|_| {}));
    let waiting = bench.ctx.into_future(bench.coordinator);
    drop(runtime);
    drop(waiting);
}

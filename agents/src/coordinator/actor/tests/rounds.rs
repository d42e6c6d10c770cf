//! Rounds of a synchronous run, broken and whole.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use broker::AgentName;
use broker::bus::Bus;
use broker::codec;
use broker::ids::GroupId;
use broker::protocol::bundle::{Bundle, BundleContent};
use broker::protocol::control::RunPhase;
use broker::protocol::failure::Failure;
use broker::protocol::task::Task;
use broker::store::Lease;
use configs::Mode;
use rollout::group::Assembled;

use crate::coordinator::actor::bench::{Bench, committed, task};
use crate::coordinator::closing::Decided;
use crate::coordinator::closing::journal::{path, resend, write_round};
use crate::ledger::tests::part;
use crate::turn::tasks::Candidate;

fn decided(index: u64, lease: Lease) -> Decided {
    let name = |name: &str| AgentName::new(name).unwrap();
    let bundle = part(index, 1, index as u8, 0, 1);
    let empty = Bundle {
        content: BundleContent::Empty { reason: "few".into() },
        ..bundle.clone()
    };
    let assembled = Assembled {
        bundles: BTreeMap::from([(name("a"), bundle), (name("b"), empty)]),
        summary: rollout::group::GroupSummary::default(),
    };
    Decided::with_bundles(lease, assembled)
}

/// The process died between the first bundle of a round and the last: all bundles are sent again.
#[tokio::test]
async fn a_journal_brings_back_every_bundle_of_the_round() {
    let mut bench = Bench::new(|config| config.run.mode = Mode::Sync).await;
    let (_, lease) = bench.open("t").await;
    let env = bench.coordinator.env.clone();
    assert!(resend(&env).await.unwrap().is_empty(), "there is none yet");
    write_round(&env, &[decided(1, lease), decided(2, lease)]).await;
    let groups = resend(&env).await.unwrap();
    assert_eq!(groups.len(), 2);
    for agent in ["a", "b"] {
        let queue = env.topology.samples(&AgentName::new(agent).unwrap());
        assert_eq!(bench.bus.depth(&queue).await, Some(2), "agent {agent}");
    }
    let file = path(&env);
    let mut bytes = fs::read(&file).unwrap();
    bytes[40] ^= 1;
    fs::write(&file, bytes).unwrap();
    let error = format!("{:#}", resend(&env).await.unwrap_err());
    assert!(error.contains("damaged") && error.contains("digest"), "{error}");
}

fn handed_back(id: &str, order: u64) -> Candidate {
    let task: Arc<Task> = task(id);
    Candidate {
        body: codec::encode_json(task.as_ref()).into(),
        task,
        id: id.into(),
        order: Some(order),
        delivery: None,
        held: true,
    }
}

/// If the groups of a broken round began one by one, their waves would differ from the round's.
#[tokio::test]
async fn a_broken_round_is_begun_when_all_of_it_is_here() {
    let mut bench = Bench::new(|config| {
        config.run.mode = Mode::Sync;
        for agent in config.agents.values_mut() {
            agent.train.batch_groups = 4;
        }
    })
    .await;
    bench.beats(2);
    let coordinator = &mut bench.coordinator;
    coordinator.lifecycle.set_phase(RunPhase::Running);
    coordinator.admission.add(handed_back("t0", 0));
    assert!(coordinator.broken_round().0.is_empty(), "the ledgers hold two");
    coordinator.admission.add(handed_back("t0", 0));
    assert!(
        coordinator.broken_round().0.is_empty(),
        "the same one again is no other"
    );
    coordinator.admission.add(handed_back("t1", 1));
    let (held, fill) = coordinator.broken_round();
    let ids: Vec<&str> = held.iter().map(|candidate| candidate.id.as_str()).collect();
    assert_eq!(
        (ids, fill),
        (vec!["t0", "t1"], 2),
        "and two more make the round of four"
    );
}

/// Bundles of a decided round may have been sent: played again, it would come to other attempts.
#[tokio::test]
async fn a_round_that_was_decided_is_not_played_again() {
    let mut bench = Bench::new(|config| config.run.mode = Mode::Sync).await;
    let (decided, lease) = bench.open("t0").await;
    bench.open("t1").await;
    bench
        .coordinator
        .on_committed(vec![committed(lease, 7)], &mut bench.ctx);
    let outcome = bytes::Bytes::from_static(b"a=1");
    bench.change(decided, |open| open.decided = Some(outcome));
    bench.coordinator.rounds.patch();
    bench.coordinator.restart_broken_round(&mut bench.ctx);
    assert!(bench.coordinator.play.has(&decided) && bench.coordinator.admission.none_is_claimed());
}

/// An agent that restarts hands back all reserved rows, and closes some of them a moment later.
#[tokio::test]
async fn what_was_handed_back_and_has_closed_since_takes_no_room() {
    let mut bench = Bench::new(|config| {
        config.run.mode = Mode::Sync;
        for agent in config.agents.values_mut() {
            agent.train.batch_groups = 4;
        }
    })
    .await;
    bench.beats(0);
    let coordinator = &mut bench.coordinator;
    coordinator.lifecycle.set_phase(RunPhase::Running);
    for order in 0..3 {
        coordinator.admission.add(handed_back(&format!("t{order}"), order));
    }
    let (held, fill) = coordinator.broken_round();
    assert_eq!((held.len(), fill), (3, 4), "the next round is whole");
}

/// One of two groups has an earlier turn; the other would be a wave alone.
#[tokio::test]
async fn a_round_with_an_earlier_group_is_played_from_its_start() {
    for broken in [true, false] {
        let mut bench = Bench::new(|config| config.run.mode = Mode::Sync).await;
        let (begun, lease) = bench.open("t0").await;
        let (fresh, _) = bench.open("t1").await;
        bench
            .coordinator
            .on_committed(vec![committed(lease, 7)], &mut bench.ctx);
        if broken {
            bench.coordinator.rounds.patch();
        }
        bench.coordinator.flush(&mut bench.ctx);
        let coordinator = &bench.coordinator;
        assert_eq!(coordinator.admission.claims(&begun), broken);
        assert_eq!(
            !coordinator.play.has_wave(),
            broken,
            "nothing is asked before all are back"
        );
        assert!(coordinator.play.has(&fresh), "what has not begun need not begin again");
        assert!(!coordinator.rounds.is_patched());
    }
}

/// A group that has ended in a round that breaks is played again: counted at its end, it would be
/// in the figures twice.
#[tokio::test]
async fn a_group_counts_when_its_round_is_sent() {
    for broken in [true, false] {
        let mut bench = Bench::new(|config| config.run.mode = Mode::Sync).await;
        let (ended, _) = bench.open("t0").await;
        let (playing, _) = bench.open("t1").await;
        let end = |bench: &mut Bench, group| {
            bench.change(group, |open| {
                (0..4).for_each(|member| open.run.give_up(member, Failure::other("for the test")));
            });
            bench.coordinator.close(group, &mut bench.ctx);
            bench.coordinator.send_round(&mut bench.ctx);
            bench.coordinator.figures.counters().groups
        };
        assert_eq!(end(&mut bench, ended), 0, "it waits for the other");
        if broken {
            bench.coordinator.rounds.patch();
            bench.coordinator.restart_broken_round(&mut bench.ctx);
            assert!(bench.coordinator.admission.claims(&ended));
            assert_eq!(bench.coordinator.figures.counters().groups, 0);
        } else {
            assert_eq!(end(&mut bench, playing), 2);
        }
    }
}

/// A takeover sends what another coordinator has decided, and has written into its figures.
#[tokio::test]
async fn what_another_has_decided_is_in_its_figures() {
    for (stands, counted) in [(None, 1), (Some(bytes::Bytes::from_static(b"a=1")), 0)] {
        let mut bench = Bench::new(|config| config.run.mode = Mode::Async).await;
        let (group, _) = bench.open("t").await;
        bench.change(group, |open| open.decided = stands);
        bench.coordinator.play.mark_dead(group, Failure::other("for the test"));
        bench.coordinator.close(group, &mut bench.ctx);
        let counters = bench.coordinator.figures.counters();
        assert_eq!((counters.groups, counters.dead_tasks), (counted, counted));
    }
}

/// A dead task of a round that breaks is played again, like its groups.
#[tokio::test]
async fn a_dead_task_counts_when_its_round_is_sent() {
    let mut bench = Bench::new(|config| config.run.mode = Mode::Sync).await;
    let (dead, _) = bench.open("t0").await;
    let (playing, _) = bench.open("t1").await;
    let mut close = |group: GroupId| {
        bench.coordinator.play.mark_dead(group, Failure::other("for the test"));
        bench.coordinator.close(group, &mut bench.ctx);
        bench.coordinator.send_round(&mut bench.ctx);
        bench.coordinator.figures.counters().dead_tasks
    };
    assert_eq!(close(dead), 0, "it waits for the other");
    assert_eq!(close(playing), 2);
}

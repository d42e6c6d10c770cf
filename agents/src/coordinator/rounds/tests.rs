use broker::bus::Bus;
use broker::protocol::bundle::BundleContent;
use broker::protocol::failure::Failure;
use broker::protocol::task::Task;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::coordinator::bench::{Bench, committed, task};
use crate::ledger::tests::part;

fn decided(index: u64, lease: Lease) -> Decided {
    let name = |name: &str| AgentName::new(name).unwrap();
    let bundle = part(index, 1, index as u8, 0, 1);
    let empty = Bundle {
        content: BundleContent::Empty { reason: "few".into() },
        ..bundle.clone()
    };
    Decided {
        lease,
        members: Vec::new(),
        assembled: Assembled {
            bundles: BTreeMap::from([(name("a"), bundle), (name("b"), empty)]),
            summary: rollout::group::GroupSummary::default(),
        },
        outcome: bytes::Bytes::new(),
        stands: None,
        letter: None,
    }
}

/// The process died between the first bundle of a round and the last: what was decided is sent again, whole.
#[tokio::test]
async fn a_journal_brings_back_every_bundle_of_the_round() {
    let mut bench = Bench::new(|config| config.run.mode = Mode::Sync).await;
    let (_, lease) = bench.open("t").await;
    let env = bench.coordinator.env.clone();
    assert!(resend(&env).await.unwrap().is_empty(), "there is none yet");
    journal(&env, &[decided(1, lease), decided(2, lease)], 1 << 20).await;
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

/// Begun as they come, the groups of a broken round would make other waves than the round did.
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
    coordinator.run.phase = RunPhase::Running;
    coordinator.reclaimed.push_back(handed_back("t0", 0));
    assert!(coordinator.broken_round().0.is_empty(), "the ledgers hold two");
    coordinator.reclaimed.push_back(handed_back("t0", 0));
    assert!(
        coordinator.broken_round().0.is_empty(),
        "the same one again is no other"
    );
    coordinator.reclaimed.push_back(handed_back("t1", 1));
    let (held, fill) = coordinator.broken_round();
    let ids: Vec<&str> = held.iter().map(|candidate| candidate.id.as_str()).collect();
    assert_eq!(
        (ids, fill),
        (vec!["t0", "t1"], 2),
        "and two more make the round of four"
    );
}

/// Of a decided round bundles may have been sent: played again it would come to other attempts.
#[tokio::test]
async fn a_round_that_was_decided_is_not_played_again() {
    let mut bench = Bench::new(|config| config.run.mode = Mode::Sync).await;
    let (decided, lease) = bench.open("t0").await;
    bench.open("t1").await;
    bench
        .coordinator
        .on_committed(vec![committed(lease, 7)], &mut bench.ctx);
    let open = bench.coordinator.open.get_mut(&decided).unwrap();
    open.decided = Some(bytes::Bytes::from_static(b"a=1"));
    bench.coordinator.patched = true;
    bench.coordinator.restart_broken_round(&mut bench.ctx);
    assert!(bench.coordinator.open.contains_key(&decided) && bench.coordinator.claiming.is_empty());
}

/// An agent that starts anew hands back all that it finds reserved, and closes some of it a moment later.
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
    coordinator.run.phase = RunPhase::Running;
    for order in 0..3 {
        coordinator
            .reclaimed
            .push_back(handed_back(&format!("t{order}"), order));
    }
    let (held, fill) = coordinator.broken_round();
    assert_eq!((held.len(), fill), (3, 4), "the next round is whole");
}

/// Of two groups one has a turn from before; the other would be a wave of its own.
#[tokio::test]
async fn a_round_with_a_group_from_before_is_played_from_its_beginning() {
    for broken in [true, false] {
        let mut bench = Bench::new(|config| config.run.mode = Mode::Sync).await;
        let (begun, lease) = bench.open("t0").await;
        let (fresh, _) = bench.open("t1").await;
        bench
            .coordinator
            .on_committed(vec![committed(lease, 7)], &mut bench.ctx);
        bench.coordinator.patched = broken;
        bench.coordinator.flush(&mut bench.ctx);
        let coordinator = &bench.coordinator;
        assert_eq!(coordinator.claiming.contains_key(&begun), broken);
        assert_eq!(
            coordinator.wave.is_none(),
            broken,
            "nothing is asked before all are back"
        );
        assert!(
            coordinator.open.contains_key(&fresh),
            "what has not begun need not begin anew"
        );
        assert!(!coordinator.patched);
    }
}

/// A group that has ended in a round that breaks is played again: counted as it ended, it would be in the figures twice.
#[tokio::test]
async fn a_group_counts_when_its_round_is_sent() {
    for broken in [true, false] {
        let mut bench = Bench::new(|config| config.run.mode = Mode::Sync).await;
        let (ended, _) = bench.open("t0").await;
        let (playing, _) = bench.open("t1").await;
        let end = |bench: &mut Bench, group| {
            let open = bench.coordinator.open.get_mut(&group).unwrap();
            (0..4).for_each(|member| open.run.give_up(member, Failure::other("for the test")));
            bench.coordinator.close(group, &mut bench.ctx);
            bench.coordinator.send_round(&mut bench.ctx);
            bench.coordinator.counters.groups
        };
        assert_eq!(end(&mut bench, ended), 0, "it waits for the other");
        if broken {
            bench.coordinator.patched = true;
            bench.coordinator.restart_broken_round(&mut bench.ctx);
            assert!(bench.coordinator.claiming.contains_key(&ended));
            assert_eq!(bench.coordinator.counters.groups, 0);
        } else {
            assert_eq!(end(&mut bench, playing), 2);
        }
    }
}

/// A takeover sends what another has decided, and has written into its figures.
#[tokio::test]
async fn what_another_has_decided_is_in_its_figures() {
    for (stands, counted) in [(None, 1), (Some(bytes::Bytes::from_static(b"a=1")), 0)] {
        let mut bench = Bench::new(|config| config.run.mode = Mode::Async).await;
        let (group, _) = bench.open("t").await;
        let open = bench.coordinator.open.get_mut(&group).unwrap();
        open.decided = stands;
        open.bury(Failure::other("for the test"));
        bench.coordinator.close(group, &mut bench.ctx);
        let counters = bench.coordinator.counters;
        assert_eq!((counters.groups, counters.dead_tasks), (counted, counted));
    }
}

/// As the groups of a round that breaks, a dead task of it is played again.
#[tokio::test]
async fn a_dead_task_counts_when_its_round_is_sent() {
    let mut bench = Bench::new(|config| config.run.mode = Mode::Sync).await;
    let (dead, _) = bench.open("t0").await;
    let (playing, _) = bench.open("t1").await;
    let mut close = |group: GroupId| {
        let open = bench.coordinator.open.get_mut(&group).unwrap();
        open.bury(Failure::other("for the test"));
        bench.coordinator.close(group, &mut bench.ctx);
        bench.coordinator.send_round(&mut bench.ctx);
        bench.coordinator.counters.dead_tasks
    };
    assert_eq!(close(dead), 0, "it waits for the other");
    assert_eq!(close(playing), 2);
}

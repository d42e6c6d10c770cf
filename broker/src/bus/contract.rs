//! The contract of every bus, as cases that run over any two handles to one broker.
//!
//! Each case uses its own run, so cases may run in parallel on one broker. A case panics where the
//! contract is broken: only tests call it.

// Cases are tests in the library, so that every implementation can run them.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

mod dead_letters;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

pub use self::dead_letters::{
    a_rejected_message_is_in_the_dead_letters, the_dead_letter_helper_keeps_bytes_and_reason,
};
use super::{Bus, Consumer, Delivery, Outgoing, PublishError};
use crate::ids::RunId;
use crate::protocol::Kind;
use crate::topology::{Address, Queue, Speaker, Topology};
use configs::AgentName;

/// The longest wait for an answer; far longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time to watch for something that must not come.
const GLANCE: Duration = Duration::from_millis(200);

/// Returns a topology that no other case uses.
#[must_use]
pub fn fresh_topology() -> Topology {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Topology::new(RunId::new(&format!("contract-{}-{number}", std::process::id())).unwrap())
}

/// Returns a durable message with `id` as its id and its body.
#[must_use]
pub fn message(to: Address, id: &str) -> Outgoing {
    Outgoing {
        to,
        kind: Kind::Task,
        message_id: id.to_owned(),
        correlation_id: None,
        headers: Vec::new(),
        body: Bytes::from(id.to_owned()),
        durable: true,
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("this never happened: {what}"),
    }
}

/// Returns the next delivery, which must come.
pub async fn next(consumer: &mut Box<dyn Consumer>) -> Delivery {
    within("a delivery", consumer.next()).await.unwrap()
}

fn id(delivery: &Delivery) -> &str {
    delivery.message_id.as_deref().unwrap()
}

async fn until_depth(bus: &dyn Bus, queue: &Queue, depth: Option<u64>) {
    within(&format!("{} holds {depth:?}", queue.name), async {
        while bus.depth(queue).await != depth {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn setup(bus: &dyn Bus) -> Topology {
    let topology = fresh_topology();
    let agents = ["a", "b"].map(|name| AgentName::new(name).unwrap());
    bus.declare(&topology, &agents).await.unwrap();
    topology
}

async fn publish_all(bus: &dyn Bus, to: &Address, ids: impl IntoIterator<Item = u32>) {
    let sends = ids
        .into_iter()
        .map(|id| bus.publish(message(to.clone(), &id.to_string())));
    for sent in join_all(sends).await {
        sent.unwrap();
    }
}

/// A confirmed message is in its queue, with all its properties.
pub async fn a_confirmed_message_is_in_its_queue(bus: &dyn Bus, _peer: &dyn Bus) {
    let topology = setup(bus).await;
    bus.declare(&topology, &[]).await.unwrap();
    let mut sent = message(topology.to(&topology.tasks()), "one");
    sent.kind = Kind::Bundle;
    sent.correlation_id = Some("other".into());
    sent.headers = vec![("dyad-run".into(), "ein Lauf \u{1F680}".into())];
    sent.body = (0..=255u8).collect::<Vec<_>>().into();
    bus.publish(sent.clone()).await.unwrap();
    until_depth(bus, &topology.tasks(), Some(1)).await;
    let mut consumer = bus.consume(&topology.tasks(), 1).await.unwrap();
    let got = next(&mut consumer).await;
    assert_eq!((got.kind, got.body.clone()), (Some(Kind::Bundle), sent.body));
    assert_eq!(got.message_id.as_deref(), Some("one"));
    assert_eq!(got.correlation_id, sent.correlation_id);
    assert_eq!(got.header("dyad-run"), Some("ein Lauf \u{1F680}"));
    assert!(!got.redelivered && *got.queue == *topology.tasks().name);
    assert!(got.ack().await);
    assert!(!got.ack().await, "an answer counts once");
    until_depth(bus, &topology.tasks(), Some(0)).await;
}

/// A message without an ack comes again, in its old place, marked as redelivered.
pub async fn unacked_messages_come_again_in_place(bus: &dyn Bus, _peer: &dyn Bus) {
    let topology = setup(bus).await;
    let queue = topology.tasks();
    publish_all(bus, &topology.to(&queue), 1..=5).await;
    let mut consumer = bus.consume(&queue, 3).await.unwrap();
    let held = [
        next(&mut consumer).await,
        next(&mut consumer).await,
        next(&mut consumer).await,
    ];
    assert_eq!(held.each_ref().map(id), ["1", "2", "3"]);
    assert!(held[1].ack().await);
    drop(consumer);
    until_depth(bus, &queue, Some(4)).await;
    assert!(!held[0].ack().await, "its consumer was dropped");
    let mut again = bus.consume(&queue, 9).await.unwrap();
    for expected in ["1", "3", "4", "5"] {
        let got = next(&mut again).await;
        assert_eq!(id(&got), expected);
        assert!(got.redelivered || ["4", "5"].contains(&expected));
        assert!(got.ack().await);
    }
}

/// No more than `prefetch` deliveries are without an ack.
pub async fn prefetch_bounds_what_is_out(bus: &dyn Bus, _peer: &dyn Bus) {
    let topology = setup(bus).await;
    let queue = topology.tasks();
    publish_all(bus, &topology.to(&queue), 1..=10).await;
    let mut consumer = bus.consume(&queue, 3).await.unwrap();
    let first = next(&mut consumer).await;
    let _others = [next(&mut consumer).await, next(&mut consumer).await];
    assert!(
        tokio::time::timeout(GLANCE, consumer.next()).await.is_err(),
        "a fourth was delivered"
    );
    assert!(first.ack().await);
    assert_eq!(id(&next(&mut consumer).await), "4");
}

/// `reject(true)` returns a message to its old place.
pub async fn a_requeued_message_keeps_its_place(bus: &dyn Bus, _peer: &dyn Bus) {
    let topology = setup(bus).await;
    let queue = topology.tasks();
    publish_all(bus, &topology.to(&queue), 1..=3).await;
    let mut consumer = bus.consume(&queue, 1).await.unwrap();
    let first = next(&mut consumer).await;
    assert!(!first.redelivered && first.acker.reject(true).await);
    for (expected, redelivered) in [("1", true), ("2", false), ("3", false)] {
        let got = next(&mut consumer).await;
        assert_eq!((id(&got), got.redelivered), (expected, redelivered));
        assert!(got.ack().await);
    }
}

/// A message that reaches no queue is rejected, and no other message with it.
pub async fn unroutable_messages_are_refused(bus: &dyn Bus, _peer: &dyn Bus) {
    let topology = setup(bus).await;
    let (here, gone) = (topology.results("here"), topology.results("gone"));
    bus.declare_queue(&here).await.unwrap();
    let to = |n: u32| topology.to(if n.is_multiple_of(3) { &gone } else { &here });
    let sends = (0..300).map(|n| bus.publish(message(to(n), &n.to_string())));
    let outcomes = within("all answers", join_all(sends)).await;
    for (n, outcome) in (0u32..).zip(outcomes) {
        let unroutable = Err(PublishError::Unroutable(to(n).routing_key));
        assert_eq!(
            outcome,
            if n.is_multiple_of(3) { unroutable } else { Ok(()) },
            "message {n}"
        );
    }
    until_depth(bus, &here, Some(200)).await;
    let mut transient = message(topology.to(&gone), "no listener");
    transient.durable = false;
    bus.publish(transient).await.unwrap();
    let nowhere = Address {
        exchange: format!("{}.missing", gone.exchange.name),
        routing_key: "x".into(),
    };
    let refused = within("an answer", bus.publish(message(nowhere, "no exchange"))).await;
    assert_eq!(refused, Err(PublishError::Unroutable("x".into())));
}

/// A full queue rejects publishes, keeps its messages, and accepts again after it was drained.
pub async fn a_full_queue_refuses_and_recovers(bus: &dyn Bus, _peer: &dyn Bus) {
    let topology = setup(bus).await;
    let mut queue = topology.results("small");
    queue.max_bytes = 40_000;
    bus.declare_queue(&queue).await.unwrap();
    let big = |n: u32| {
        let mut message = message(topology.to(&queue), &n.to_string());
        message.body = vec![7; 1000].into();
        message
    };
    let mut taken = BTreeSet::new();
    let refused = within("the queue is full", async {
        for n in 0u32.. {
            match bus.publish(big(n)).await {
                Ok(()) => taken.insert(n.to_string()),
                Err(error) => return Some(error),
            };
        }
        None
    })
    .await;
    assert_eq!(refused, Some(PublishError::Full(queue.routing_key.clone())));
    assert!(taken.len() >= 30, "{} fit", taken.len());
    let mut consumer = bus.consume(&queue, 5).await.unwrap();
    for _ in 0..taken.len() {
        let got = next(&mut consumer).await;
        assert!(taken.remove(id(&got)), "{} was refused, or came twice", id(&got));
        assert!(got.ack().await);
    }
    within("it accepts again", async {
        while bus.publish(big(9999)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(id(&next(&mut consumer).await), "9999");
}

/// One publisher's messages arrive in the order of its calls.
pub async fn a_queue_is_first_in_first_out(bus: &dyn Bus, peer: &dyn Bus) {
    let topology = setup(bus).await;
    let queue = topology.tasks();
    let mut consumer = peer.consume(&queue, 50).await.unwrap();
    publish_all(bus, &topology.to(&queue), 0..400).await;
    for n in 0..400 {
        let got = next(&mut consumer).await;
        assert_eq!(id(&got), n.to_string());
        assert!(got.ack().await);
    }
}

/// A single-active queue delivers everything to one consumer, until that consumer ends.
pub async fn a_single_active_consumer_fails_over(bus: &dyn Bus, peer: &dyn Bus) {
    let topology = setup(bus).await;
    let queue = topology.samples(&AgentName::new("a").unwrap());
    let mut active = bus.consume(&queue, 10).await.unwrap();
    let mut standby = peer.consume(&queue, 10).await.unwrap();
    publish_all(bus, &topology.to(&queue), 1..=4).await;
    assert!(next(&mut active).await.ack().await);
    let held = next(&mut active).await;
    assert!(
        tokio::time::timeout(GLANCE, standby.next()).await.is_err(),
        "two are active"
    );
    drop(active);
    for expected in ["2", "3", "4"] {
        let got = next(&mut standby).await;
        assert_eq!(id(&got), expected);
        assert!(got.ack().await);
    }
    assert!(!held.ack().await);
}

/// Topic and fanout exchanges reach every listener with a matching binding.
pub async fn listeners_get_what_they_asked_for(bus: &dyn Bus, peer: &dyn Bus) {
    let topology = setup(bus).await;
    let agent = |name| AgentName::new(name).unwrap();
    let all = topology.inference("everything");
    let mut some = topology.inference("speakers of a");
    some.routing_key = topology.to_inference(&agent("a"), "speaker").routing_key;
    let (one, two) = (topology.control("one"), topology.control("two"));
    for (handle, queue) in [(bus, &all), (peer, &some), (bus, &one), (peer, &two)] {
        handle.declare_queue(queue).await.unwrap();
    }
    let mut ears = [
        bus.consume(&all, 9).await.unwrap(),
        peer.consume(&some, 9).await.unwrap(),
        bus.consume(&one, 9).await.unwrap(),
        peer.consume(&two, 9).await.unwrap(),
    ];
    let transient = |to: Address, id: &str| Outgoing {
        durable: false,
        ..message(to, id)
    };
    for (who, role, id) in [
        ("b", "speaker", "b-s"),
        ("a", "listener", "a-l"),
        ("a", "speaker", "a-s"),
    ] {
        bus.publish(transient(topology.to_inference(&agent(who), role), id))
            .await
            .unwrap();
    }
    bus.publish(transient(topology.to_control(Speaker::Operator), "beat"))
        .await
        .unwrap();
    for (ear, expected) in ears
        .iter_mut()
        .zip([&["b-s", "a-l", "a-s"][..], &["a-s"], &["beat"], &["beat"]])
    {
        for wanted in expected {
            let got = next(ear).await;
            assert_eq!(id(&got), *wanted);
            assert!(got.ack().await);
        }
    }
}

/// An exclusive queue belongs to its owner, drops its oldest message when full, and ends with its
/// consumer.
pub async fn an_exclusive_queue_belongs_to_one(bus: &dyn Bus, peer: &dyn Bus) {
    let topology = setup(bus).await;
    let mut queue = topology.control("mine");
    queue.max_bytes = 3_500;
    bus.declare_queue(&queue).await.unwrap();
    assert!(peer.consume(&queue, 1).await.is_err(), "another process consumes it");
    for n in 0..6 {
        let mut beat = message(topology.to_control(Speaker::Operator), &n.to_string());
        beat.body = vec![0; 1000].into();
        bus.publish(beat).await.unwrap();
    }
    let mut consumer = bus.consume(&queue, 1).await.unwrap();
    assert_eq!(id(&next(&mut consumer).await), "3", "the oldest was dropped");
    drop(consumer);
    until_depth(bus, &queue, None).await;
}

/// Closing one handle ends its consumers and returns its deliveries to other handles.
pub async fn closing_gives_everything_back(bus: &dyn Bus, peer: &dyn Bus) {
    let topology = setup(bus).await;
    let queue = topology.tasks();
    publish_all(bus, &topology.to(&queue), 1..=2).await;
    let mut consumer = bus.consume(&queue, 5).await.unwrap();
    let held = next(&mut consumer).await;
    within("the bus is closed", bus.close()).await;
    assert!(within("the consumer ends", consumer.next()).await.is_none());
    assert!(!held.ack().await);
    let refused = bus.publish(message(topology.to(&queue), "late")).await;
    assert_eq!(refused, Err(PublishError::Closed));
    let mut other = peer.consume(&queue, 5).await.unwrap();
    let got = next(&mut other).await;
    assert!(id(&got) == "1" && got.redelivered);
    assert_eq!(id(&next(&mut other).await), "2");
}

/// Many tasks publish at once, and every confirmed message arrives.
pub async fn concurrent_publishers_are_all_confirmed(bus: &dyn Bus, peer: &dyn Bus) {
    let topology = setup(bus).await;
    let queue = topology.tasks();
    let to = topology.to(&queue);
    let publisher = |who: u32| {
        let to = &to;
        async move {
            for n in 0..50 {
                bus.publish(message(to.clone(), &format!("{who}/{n}"))).await.unwrap();
            }
        }
    };
    let mut consumer = peer.consume(&queue, 200).await.unwrap();
    let receive = async {
        let mut seen = BTreeSet::new();
        while seen.len() < 64 * 50 {
            let got = next(&mut consumer).await;
            assert!(seen.insert(id(&got).to_owned()) || got.redelivered);
            assert!(got.ack().await);
        }
    };
    tokio::join!(receive, join_all((0..64).map(publisher)));
    until_depth(bus, &queue, Some(0)).await;
}

//! Tests of the bus in memory that the contract does not ask of every bus.

use super::*;
use crate::ids::RunId;
use crate::protocol::Kind;
use bytes::Bytes;
use std::task::{Context, Waker};

fn task(topology: &Topology, id: u32) -> Outgoing {
    Outgoing {
        to: topology.to(&topology.tasks()),
        kind: Kind::Task,
        message_id: id.to_string(),
        correlation_id: None,
        headers: vec![],
        body: Bytes::from_static(b"body"),
        durable: true,
    }
}

#[tokio::test]
async fn a_cancelled_wait_loses_no_message() {
    let topology = Topology::new(RunId::new("r").unwrap());
    let bus = MemoryBus::new();
    bus.declare(&topology, &[]).await.unwrap();
    let mut one = bus.consume(&topology.tasks(), 1).await.unwrap();
    let mut two = bus.consume(&topology.tasks(), 1).await.unwrap();
    for id in 0..200 {
        // `one` waits, is woken by the publish, and its wait is dropped before it runs.
        let mut waiting = one.next();
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        bus.publish(task(&topology, id)).await.unwrap();
        drop(waiting);
        let delivery = two.next().await.unwrap();
        assert_eq!(delivery.message_id, Some(id.to_string()));
        assert!(delivery.ack().await);
        assert!(!delivery.ack().await, "a second ack proves nothing");
    }
}

#[tokio::test]
async fn a_message_that_always_comes_back_is_given_up() {
    let topology = Topology::new(RunId::new("r").unwrap());
    let bus = MemoryBus::new();
    bus.declare(&topology, &[]).await.unwrap();
    bus.publish(task(&topology, 7)).await.unwrap();
    let mut consumer = bus.consume(&topology.tasks(), 1).await.unwrap();
    for _ in 0..=crate::topology::DELIVERY_LIMIT {
        assert!(consumer.next().await.unwrap().acker.reject(true).await);
    }
    let dead = bus.consume(&topology.dead(), 1).await.unwrap().next().await.unwrap();
    assert_eq!(dead.header(crate::bus::letter::HEADER_REASON), Some("delivery_limit"));
    assert_eq!(bus.depth(&topology.tasks()).await, Some(0));
}

#[tokio::test]
async fn closing_one_handle_gives_its_deliveries_to_the_other() {
    let topology = Topology::new(RunId::new("r").unwrap());
    let (bus, listener) = (MemoryBus::new(), topology.control("x"));
    let peer = bus.peer();
    bus.declare(&topology, &[]).await.unwrap();
    bus.declare_queue(&listener).await.unwrap();
    assert!(peer.consume(&listener, 1).await.is_err(), "exclusive");
    bus.publish(task(&topology, 1)).await.unwrap();
    let mut consumer = bus.consume(&topology.tasks(), 9).await.unwrap();
    let held = consumer.next().await.unwrap();
    bus.close().await;
    assert!(consumer.next().await.is_none());
    assert!(!held.ack().await);
    assert_eq!(bus.publish(task(&topology, 2)).await, Err(PublishError::Closed));
    assert_eq!(peer.depth(&listener).await, None);
    let again = peer.consume(&topology.tasks(), 9).await.unwrap().next().await.unwrap();
    assert!(again.redelivered);
}

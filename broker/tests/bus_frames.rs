//! Frames of a connection are large enough for the headers of any message.
#![cfg(feature = "amqp")]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::{Bus, Outgoing};
use broker::ids::RunId;
use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
use broker::local::shared;
use broker::protocol::Kind;
use broker::topology::Topology;
use bytes::Bytes;

/// A RabbitMQ of this test, if none is shared.
struct Rabbit {
    url: String,
    _own: Option<(tempfile::TempDir, PrivateRabbit)>,
}

impl Rabbit {
    async fn start() -> Self {
        if let Some(url) = shared::take() {
            return Self { url, _own: None };
        }
        let folder = tempfile::tempdir().unwrap();
        let node = PrivateRabbit::start(folder.path(), RabbitOptions::default())
            .await
            .unwrap();
        Self {
            url: node.url(),
            _own: Some((folder, node)),
        }
    }

    async fn connect(&self) -> Arc<AmqpBus> {
        AmqpBus::connect(&self.url, AmqpOptions::default()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_with_long_headers_arrives_whole() {
    let rabbit = Rabbit::start().await;
    let (bus, topology) = (rabbit.connect().await, Topology::new(RunId::new("frames").unwrap()));
    bus.declare(&topology, &[]).await.unwrap();
    // Any publisher may send it. The headers of a message are never split into frames.
    let long = "x".repeat(100_000);
    let message = Outgoing {
        to: topology.to(&topology.tasks()),
        kind: Kind::Task,
        message_id: "long".into(),
        correlation_id: None,
        headers: vec![("note".into(), long.clone())],
        body: Bytes::from("y".repeat(300_000)),
        durable: true,
    };
    bus.publish(message.clone()).await.unwrap();
    let mut tasks = bus.consume(&topology.tasks(), 1).await.unwrap();
    let received = tokio::time::timeout(Duration::from_secs(30), tasks.next()).await;
    let received = received.unwrap().unwrap();
    assert_eq!(received.header("note"), Some(long.as_str()));
    assert_eq!(received.body, message.body);
}

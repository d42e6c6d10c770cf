//! The alarm of a broker that accepts no publishes.

use std::time::Duration;

use bytes::Bytes;

use super::{Bus, BusHealth, Outgoing};
use crate::protocol::Kind;
use crate::topology::Address;

/// Time for the broker to report its alarm.
const PATIENCE: Duration = Duration::from_millis(600);
/// Interval of looks at the connection's state.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Explains an alarm and what ends it.
#[must_use]
pub fn advice(reason: &str) -> String {
    format!("accepts no messages ({reason}): free disk space or memory on its host, and everything goes on")
}

/// Returns the broker's reason to accept no publishes (memory or disk alarm), or `None` if it
/// accepts them.
///
/// RabbitMQ reports an alarm only to connections that publish. So this publishes an empty message
/// to the default exchange, where no queue takes it.
pub async fn alarm(bus: &dyn Bus) -> Option<String> {
    let probe = bus.publish(Outgoing {
        to: Address {
            exchange: String::new(),
            routing_key: "dyad.probe".into(),
        },
        kind: Kind::Heartbeat,
        message_id: "probe".into(),
        correlation_id: None,
        headers: Vec::new(),
        body: Bytes::new(),
        durable: false,
    });
    let reported = async {
        let _ = probe.await;
        loop {
            if let BusHealth::Blocked(reason) = bus.health() {
                return reason;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(PATIENCE, reported).await.ok()
}

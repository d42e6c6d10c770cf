//! A bus that counts its messages and times their confirms.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use broker::AgentName;
use broker::bus::{Bus, BusError, BusHealth, Consumer, Delivery, Outgoing, PublishError};
use broker::protocol::Kind;
use broker::topology::{Plane, Queue, Topology};
use prometheus_client::metrics::histogram::Histogram;

use super::series::messages::BusSeries;
use super::table::{Labelled, Total};

/// Passes everything on to another bus.
pub(crate) struct ObservedBus {
    bus: Arc<dyn Bus>,
    seconds: Labelled<Histogram, 1>,
    messages: Labelled<Total, 3>,
    /// Confirms by plane, made when the plane is first used.
    confirms: [std::sync::OnceLock<Histogram>; PLANES.len()],
    sent: [std::sync::OnceLock<Total>; PLANES.len()],
    received: Arc<Received>,
}

/// Counts deliveries of all consumers.
struct Received {
    messages: Labelled<Total, 3>,
    by_plane: [std::sync::OnceLock<Total>; PLANES.len()],
}

/// The planes with messages of their own kind, and dead letters.
const PLANES: [Plane; 8] = [
    Plane::Tasks,
    Plane::Reserve,
    Plane::Turns,
    Plane::Results,
    Plane::Samples,
    Plane::Inference,
    Plane::Control,
    Plane::Questions,
];

/// Returns the place in [`PLANES`] of the plane that a kind of message takes. Tasks on their way to
/// the dead letters or back from an agent count as tasks, answers of participants as results.
fn place(kind: Kind) -> usize {
    match kind {
        Kind::Task => 0,
        Kind::Reserve | Kind::ReserveAnswer => 1,
        Kind::TurnRequest => 2,
        Kind::TurnResult => 3,
        Kind::Bundle => 4,
        Kind::Inference | Kind::Ended => 5,
        Kind::Heartbeat | Kind::Command => 6,
        Kind::Question => 7,
    }
}

/// Returns the word for the end of a publish.
fn word(published: &Result<(), PublishError>) -> &'static str {
    match published {
        Ok(()) => "ok",
        Err(PublishError::Unroutable(_)) => "unroutable",
        Err(PublishError::Full(_)) => "full",
        Err(PublishError::Unknown) => "unknown",
        Err(PublishError::TooLarge { .. }) => "too_large",
        Err(PublishError::Closed) => "closed",
    }
}

impl ObservedBus {
    pub(super) fn new(bus: Arc<dyn Bus>, series: &BusSeries) -> Self {
        Self {
            bus,
            seconds: series.publish.clone(),
            messages: series.messages.clone(),
            confirms: Default::default(),
            sent: Default::default(),
            received: Arc::new(Received {
                messages: series.messages.clone(),
                by_plane: Default::default(),
            }),
        }
    }

    fn count_sent(&self, place: usize, published: &Result<(), PublishError>) {
        let plane = PLANES[place].as_str();
        let with = |outcome| self.messages.of([plane, "sent", outcome]);
        match published {
            Ok(()) => {
                let first = || {
                    // A full queue is an alert, which needs a 0 to rise from.
                    with("full");
                    with("ok")
                };
                self.sent[place].get_or_init(first).inc()
            }
            failed => with(word(failed)).inc(),
        };
    }

    fn count_confirm(&self, place: usize, begun: Instant) {
        let confirms = self.confirms[place].get_or_init(|| self.seconds.of([PLANES[place].as_str()]));
        confirms.observe(begun.elapsed().as_secs_f64());
    }
}

#[async_trait]
impl Bus for ObservedBus {
    async fn declare(&self, topology: &Topology, agents: &[AgentName]) -> Result<(), BusError> {
        self.bus.declare(topology, agents).await
    }

    async fn declare_queue(&self, queue: &Queue) -> Result<(), BusError> {
        self.bus.declare_queue(queue).await
    }

    async fn publish(&self, message: Outgoing) -> Result<(), PublishError> {
        // Only durable messages have a confirm.
        let (place, begun) = (place(message.kind), message.durable.then(Instant::now));
        let published = self.bus.publish(message).await;
        self.count_sent(place, &published);
        if let Some(begun) = begun.filter(|_| published.is_ok()) {
            self.count_confirm(place, begun);
        }
        published
    }

    async fn consume(&self, queue: &Queue, prefetch: u16) -> Result<Box<dyn Consumer>, BusError> {
        let consumer = self.bus.consume(queue, prefetch).await?;
        Ok(Box::new(ObservedConsumer {
            consumer,
            received: self.received.clone(),
        }))
    }

    async fn depth(&self, queue: &Queue) -> Option<u64> {
        self.bus.depth(queue).await
    }

    async fn listeners(&self, queue: &Queue) -> Option<u64> {
        self.bus.listeners(queue).await
    }

    async fn exists(&self, queue: &Queue) -> Result<bool, BusError> {
        self.bus.exists(queue).await
    }

    async fn delete_queue(&self, queue: &Queue) -> Result<(), BusError> {
        self.bus.delete_queue(queue).await
    }

    fn health(&self) -> BusHealth {
        self.bus.health()
    }

    fn reconnects(&self) -> u64 {
        self.bus.reconnects()
    }

    async fn close(&self) {
        self.bus.close().await;
    }
}

struct ObservedConsumer {
    consumer: Box<dyn Consumer>,
    received: Arc<Received>,
}

#[async_trait]
impl Consumer for ObservedConsumer {
    async fn next(&mut self) -> Option<Delivery> {
        let delivery = self.consumer.next().await?;
        if let Some(kind) = delivery.kind {
            let (place, received) = (place(kind), &self.received);
            let of_plane = || received.messages.of([PLANES[place].as_str(), "received", "ok"]);
            received.by_plane[place].get_or_init(of_plane).inc();
        }
        Some(delivery)
    }
}

#[cfg(test)]
mod tests {
    use broker::bus::memory::MemoryBus;
    use broker::ids::RunId;

    use super::*;
    use crate::base::outgoing;
    use crate::observe::Observer;

    #[tokio::test]
    async fn messages_are_counted_by_plane_and_outcome() {
        let run = RunId::new("counted").unwrap();
        let observer = Observer::new(&run);
        let bus = observer.watch_bus(MemoryBus::new());
        let topology = Topology::new(run);
        bus.declare(&topology, &[]).await.unwrap();
        let message = || outgoing::durable(topology.to(&topology.tasks()), Kind::Task, "{}");
        bus.publish(message()).await.unwrap();
        let mut consumer = bus.consume(&topology.tasks(), 1).await.unwrap();
        consumer.next().await.unwrap();
        let gone = topology.to(&topology.results("gone"));
        let lost = outgoing::durable(gone, Kind::TurnResult, "");
        bus.publish(lost).await.unwrap_err();
        let page = observer.page();
        for line in [
            "dyad_bus_messages_total{run=\"counted\",plane=\"tasks\",direction=\"sent\",outcome=\"ok\"} 1",
            "dyad_bus_messages_total{run=\"counted\",plane=\"tasks\",direction=\"received\",outcome=\"ok\"} 1",
            "dyad_bus_messages_total{run=\"counted\",plane=\"results\",direction=\"sent\",outcome=\"unroutable\"} 1",
            "dyad_bus_publish_seconds_count{run=\"counted\",plane=\"tasks\"} 1",
            "dyad_bus_blocked{run=\"counted\"} 0",
            "dyad_bus_reconnects_total{run=\"counted\"} 0",
        ] {
            assert!(page.contains(line), "{line}:\n{page}");
        }
    }

    #[test]
    fn each_kind_has_the_plane_of_its_queue() {
        let planes = Kind::ALL.map(|kind| PLANES[place(kind)].as_str());
        assert_eq!((planes[0], planes[3], planes[10]), ("tasks", "turns", "questions"));
        let run = RunId::new("off").unwrap();
        assert!(Observer::default().series().is_none() && Observer::new(&run).series().is_some());
    }
}

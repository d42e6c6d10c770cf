//! Committed turns and ended conversations as events, from the broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use broker::bus::{Bus, Consumer, Delivery};
use broker::codec;
use broker::protocol::Kind;
use broker::protocol::inference::{SharedEnd, SharedTurn};
use broker::topology::Topology;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::outbox::Outbox;
use super::{TICK, event};
use crate::base::log_scope;
use crate::dashboard::answer::ApiError;
use crate::dashboard::sampler::Sampler;

/// Deliveries that the broker sends ahead.
const PREFETCH: u16 = 256;
/// Characters of a failure's reason that are sent.
const LONGEST_STATUS: usize = 400;
/// Characters of a turn that are sent.
const LONGEST: usize = 64 << 10;

/// Begins to send the turns that are committed from now on, and the ends of conversations.
///
/// # Errors
/// The broker rejects the queue.
pub(super) async fn begin(bus: Arc<dyn Bus>, topology: &Topology, send: Outbox) -> Result<(), ApiError> {
    /// Makes queues of one process differ.
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let number = OPENED.fetch_add(1, Ordering::Relaxed);
    // The user of an onlooker may declare queues of this name.
    let queue = topology.inference(&format!("onlooker-{}x{number}", std::process::id()));
    let refused = |error: broker::bus::BusError| ApiError::new(503, error.to_string());
    bus.declare_queue(&queue).await.map_err(refused)?;
    let consumer = bus.consume(&queue, PREFETCH).await.map_err(refused)?;
    log_scope::spawn(async move {
        forward(consumer, send).await;
        let _ = bus.delete_queue(&queue).await;
    });
    Ok(())
}

/// Sends turns until the page or the bus is gone.
async fn forward(mut consumer: Box<dyn Consumer>, send: Outbox) {
    let mut sampler = Sampler::default();
    let mut dropped = 0u64;
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            delivery = consumer.next() => {
                let Some(delivery) = delivery else { return };
                delivery.ack().await;
                dropped += forward_message(&delivery, &mut sampler, &send);
            }
            _ = tick.tick() => {
                let (turns_per_s, one_of) = sampler.tick();
                let rate = json!({"turns_per_s": turns_per_s, "one_of": one_of});
                // If there is no room, the page gets the rate of a later second.
                let _ = send.try_send(event("rate", &rate));
                if dropped > 0 && send.try_send(event("dropped", &json!({"n": dropped}))) {
                    dropped = 0;
                }
            }
            () = send.closed() => return,
        }
    }
}

/// Sends the shown part of a message. Returns the number of turns for which there was no room.
fn forward_message(delivery: &Delivery, sampler: &mut Sampler, send: &Outbox) -> u64 {
    if delivery.kind == Some(Kind::Ended) {
        for end in read::<SharedEnd>(delivery) {
            if sampler.shows(end.group, end.member) {
                let end = SharedEnd {
                    status: end.status.chars().take(LONGEST_STATUS).collect(),
                    ..end
                };
                let end = serde_json::to_value(end).unwrap_or_default();
                // A page without room shows the conversation without its end.
                let _ = send.try_send(event("rewards", &end));
            }
        }
        return 0;
    }
    let mut dropped = 0;
    for turn in read::<SharedTurn>(delivery) {
        if sampler.keeps(turn.group, turn.member) {
            dropped += u64::from(!send.try_send(event("turn", &shown(turn))));
        }
    }
    dropped
}

/// Reads the entries of a message; none if it is no message of this kind.
fn read<T: DeserializeOwned>(delivery: &Delivery) -> Vec<T> {
    codec::decode_json(&delivery.body).unwrap_or_default()
}

fn shown(mut turn: SharedTurn) -> Value {
    if turn.text.len() > LONGEST {
        turn.text = turn.text.chars().take(LONGEST / 4).collect::<String>() + " ...";
    }
    serde_json::to_value(turn).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use broker::AgentName;
    use broker::bus::memory::MemoryBus;
    use broker::ids::{GroupId, RunId, WeightVersion};
    use broker::protocol::Kind;
    use broker::protocol::turn::{Finish, LogProbs};

    use super::*;
    use crate::base::outgoing::{self, Addressed as _};

    fn turn(member: u16, text: &str) -> SharedTurn {
        SharedTurn {
            group: GroupId([7; 16]),
            task: "t".into(),
            member,
            role: configs::RoleName::new("speaker").unwrap(),
            seat: 0,
            turn: 0,
            agent: AgentName::new("a").unwrap(),
            text: text.into(),
            finish: Finish::Stop,
            tokens: 1,
            mean_logprob: -0.5,
            logprobs_of: LogProbs::Sampled,
            version: WeightVersion { lineage: 1, step: 4 },
        }
    }

    /// Returns a bus, and a consumer of these turns, which an agent has sent over it.
    async fn sent(turns: &[SharedTurn]) -> (Arc<dyn Bus>, Box<dyn Consumer>) {
        let bus: Arc<dyn Bus> = MemoryBus::new();
        let topology = Topology::new(RunId::new("r-1").unwrap());
        let agent = AgentName::new("a").unwrap();
        bus.declare(&topology, std::slice::from_ref(&agent)).await.unwrap();
        let queue = topology.inference("test");
        bus.declare_queue(&queue).await.unwrap();
        let consumer = bus.consume(&queue, 8).await.unwrap();
        let to = topology.to_inference(&agent, "speaker");
        let message = outgoing::durable(to, Kind::Inference, codec::encode_json(&turns));
        bus.publish(message.transient()).await.unwrap();
        (bus, consumer)
    }

    #[tokio::test]
    async fn committed_turns_reach_the_page_as_json() {
        let (_bus, consumer) = sent(&[turn(3, "<script>\n")]).await;
        let (send, mut receive) = Outbox::new(8, 1 << 20);
        let forwarding = tokio::spawn(forward(consumer, send));
        let mut found = String::new();
        while !found.contains("event: turn") {
            found = String::from_utf8(receive.recv().await.unwrap().event.to_vec()).unwrap();
        }
        let data = found.strip_prefix("event: turn\ndata: ").unwrap().trim_end();
        let shown: SharedTurn = serde_json::from_str(data).unwrap();
        assert_eq!(shown, turn(3, "<script>\n"), "one line, whatever the text");
        drop(receive);
        forwarding.await.unwrap();
    }

    #[tokio::test]
    async fn ends_reach_the_page_with_their_rewards() {
        let (bus, consumer) = sent(&[turn(3, "x")]).await;
        let end = SharedEnd {
            group: GroupId([7; 16]),
            member: 3,
            status: "completed".into(),
            rewards: [("speaker".to_owned(), 0.5)].into(),
        };
        let to = Topology::new(RunId::new("r-1").unwrap()).to_ended();
        let message = outgoing::durable(to, Kind::Ended, codec::encode_json(&[&end]));
        bus.publish(message.transient()).await.unwrap();
        let (send, mut receive) = Outbox::new(8, 1 << 20);
        let forwarding = tokio::spawn(forward(consumer, send));
        let mut found = String::new();
        while !found.starts_with("event: rewards") {
            found = String::from_utf8(receive.recv().await.unwrap().event.to_vec()).unwrap();
        }
        let data = found.strip_prefix("event: rewards\ndata: ").unwrap().trim_end();
        assert_eq!(serde_json::from_str::<SharedEnd>(data).unwrap(), end);
        drop(receive);
        forwarding.await.unwrap();
    }

    #[tokio::test]
    async fn slow_page_learns_how_many_turns_were_left_out() {
        let turns: Vec<SharedTurn> = (0..30).map(|member| turn(member, "x")).collect();
        let (_bus, consumer) = sent(&turns).await;
        let (send, mut receive) = Outbox::new(4, 1 << 20);
        let forwarding = tokio::spawn(forward(consumer, send));
        // The receiver waits until all turns were forwarded or dropped.
        tokio::time::sleep(TICK / 2).await;
        let (mut shown, mut dropped) = (0, 0);
        while dropped == 0 {
            let event = String::from_utf8(receive.recv().await.unwrap().event.to_vec()).unwrap();
            shown += usize::from(event.starts_with("event: turn"));
            if let Some(count) = event.strip_prefix("event: dropped\ndata: {\"n\":") {
                dropped = count.trim_end().trim_end_matches('}').parse().unwrap();
            }
        }
        assert_eq!(shown + dropped, 30);
        drop(receive);
        forwarding.await.unwrap();
    }

    #[test]
    fn long_turns_are_cut() {
        let shown = shown(turn(0, &"\u{e9}".repeat(LONGEST)));
        assert_eq!(shown["text"].as_str().unwrap().chars().count(), LONGEST / 4 + 4);
    }
}

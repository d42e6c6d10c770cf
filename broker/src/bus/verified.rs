//! Reads messages and verifies their writers. On the control and results planes the routing key
//! names the writer, and no other claim counts.
//!
//! With the users of `dyad topology export`, RabbitMQ itself rejects a key with another user's
//! name. With one user for all processes, as on a private server, this check only catches mistakes.

use super::Delivery;
use crate::codec::{self, CodecError};
use crate::protocol::control::{Beat, Command};
use crate::topology::{Speaker, Topology};

/// The reason why a message is rejected.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Unreadable(#[from] CodecError),
    #[error(
        "it claims to be from {claimed:?} but has the routing key {key:?} of another sender: check whether that sender's credentials \
         are misused"
    )]
    Forged { claimed: String, key: String },
}

/// Reads a heartbeat and checks that its key names its sender.
///
/// # Errors
/// It is no heartbeat, or its key names another sender.
pub fn beat(topology: &Topology, delivery: &Delivery) -> Result<Beat, VerifyError> {
    let beat = codec::decode_json::<Beat>(&delivery.body)?;
    check_speaker(topology, delivery, speaker(&beat)).map(|()| beat)
}

/// Returns the sender that a heartbeat claims.
#[must_use]
pub fn speaker(beat: &Beat) -> Speaker<'_> {
    match beat {
        Beat::Agent(beat) => Speaker::Agent(&beat.agent),
        Beat::Coordinator(_) => Speaker::Coordinator,
    }
}

/// Reads an operator's order and checks that its key is an operator's.
///
/// # Errors
/// It is no order, or its key names another sender.
pub fn command(topology: &Topology, delivery: &Delivery) -> Result<Command, VerifyError> {
    let command = codec::decode_json::<Command>(&delivery.body)?;
    check_speaker(topology, delivery, Speaker::Operator).map(|()| command)
}

/// Checks that a result for this coordinator arrived under the key of the agent that it names.
///
/// # Errors
/// Its key names another sender.
pub fn result(topology: &Topology, delivery: &Delivery, incarnation: &str, agent: &str) -> Result<(), VerifyError> {
    check_key(&topology.to_results(incarnation, agent).routing_key, delivery, agent)
}

/// Checks that an answer for this coordinator arrived under the key of the participant that was
/// asked.
///
/// # Errors
/// Its key names another sender.
pub fn answer(topology: &Topology, delivery: &Delivery, incarnation: &str, asked: &str) -> Result<(), VerifyError> {
    check_key(&topology.to_answers(incarnation, asked).routing_key, delivery, asked)
}

fn check_speaker(topology: &Topology, delivery: &Delivery, speaker: Speaker<'_>) -> Result<(), VerifyError> {
    let name = match speaker {
        Speaker::Agent(name) => name.as_str(),
        Speaker::Coordinator => "a coordinator",
        Speaker::Operator => "an operator",
    };
    check_key(&topology.to_control(speaker).routing_key, delivery, name)
}

fn check_key(expected: &str, delivery: &Delivery, name: &str) -> Result<(), VerifyError> {
    // A queue's owner chooses the key of its dead letters, and no permission restricts it. The
    // broker marks such messages, and these planes never receive them legitimately.
    if delivery.routing_key == expected && !delivery.dead_letter {
        return Ok(());
    }
    Err(VerifyError::Forged {
        claimed: name.to_owned(),
        key: delivery.routing_key.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::memory::MemoryBus;
    use crate::bus::{Bus, Outgoing};
    use crate::ids::RunId;
    use crate::protocol::Kind;
    use crate::protocol::control::{CoordinatorBeat, RunPhase, RunState};
    use crate::topology::{Address, Queue};
    use configs::AgentName;

    /// Returns the delivery in `queue` after a publish to `to`.
    async fn arrives(queue: &Queue, to: Address, body: Vec<u8>) -> Delivery {
        let bus = MemoryBus::new();
        bus.declare_queue(queue).await.unwrap();
        let mut consumer = bus.consume(queue, 1).await.unwrap();
        bus.publish(Outgoing {
            to,
            kind: Kind::Heartbeat,
            message_id: "m".into(),
            correlation_id: None,
            headers: Vec::new(),
            body: body.into(),
            durable: true,
        })
        .await
        .unwrap();
        consumer.next().await.unwrap()
    }

    fn coordinator() -> Beat {
        Beat::Coordinator(CoordinatorBeat {
            incarnation: "c1".into(),
            seq: 1,
            phase: RunPhase::Running,
            open_groups: 0,
            finished_groups: 0,
            finished_conversations: 0,
            dead_tasks: 0,
            turns: 0,
            run: RunState::default(),
            drained: false,
            snapshot: None,
            snapshot_done: None,
            hold: None,
            evaluates_at: None,
            evaluating: false,
            evaluated: None,
            stalled: None,
            requested: Default::default(),
            pid: 1,
        })
    }

    #[tokio::test]
    async fn a_message_under_the_key_of_another_sender_is_rejected() {
        let topology = Topology::new(RunId::new("r").unwrap());
        let a = AgentName::new("a").unwrap();
        let control = topology.control("listener");
        for (speaker, accepted) in [
            (Speaker::Coordinator, true),
            (Speaker::Agent(&a), false),
            (Speaker::Operator, false),
        ] {
            let delivery = arrives(
                &control,
                topology.to_control(speaker),
                codec::encode_json(&coordinator()),
            )
            .await;
            assert_eq!(
                beat(&topology, &delivery).is_ok(),
                accepted,
                "{speaker:?} as a coordinator"
            );
            let order = codec::encode_json(&Command::Drain);
            let delivery = arrives(&control, topology.to_control(speaker), order).await;
            let by_operator = speaker == Speaker::Operator;
            assert_eq!(
                command(&topology, &delivery).is_ok(),
                by_operator,
                "{speaker:?} gives an order"
            );
        }
        let results = topology.results("c1");
        let delivery = arrives(&results, topology.to_results("c1", "a"), vec![1]).await;
        assert!(result(&topology, &delivery, "c1", "a").is_ok());
        let forged = result(&topology, &delivery, "c1", "b").unwrap_err().to_string();
        assert!(
            forged.contains("\"b\"") && forged.contains("r.c1.a.turn.finished"),
            "{forged}"
        );
    }
}

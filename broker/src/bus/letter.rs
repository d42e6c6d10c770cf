//! Dead letters: messages that could not be handled, byte for byte, with the failure in their
//! headers.
//!
//! The first failure and the number of failures survive a requeue.

use std::time::SystemTime;

use super::{Bus, Delivery, Outgoing, PublishError};
use crate::clock::rfc3339;
use crate::codec::CodecError;
use crate::protocol::Kind;
use crate::protocol::task::TaskError;
use crate::topology::Topology;

/// Header with the reason, in words for people.
pub const HEADER_REASON: &str = "dyad-reason";
/// Header with the kind of failure ([`Class`]), or RabbitMQ's word for it (`rejected`,
/// `delivery_limit`).
pub const HEADER_CLASS: &str = "dyad-class";
/// Header with the step that failed ([`Stage`]).
pub const HEADER_STAGE: &str = "dyad-stage";
/// Header with the time of the first failure, by the clock of that machine.
pub const HEADER_FIRST: &str = "dyad-first-failure";
/// Header with the number of failures: 1, plus 1 for each failure after a requeue.
pub const HEADER_ATTEMPTS: &str = "dyad-attempts";
/// Header with the queue that delivered the message.
pub const HEADER_QUEUE: &str = "dyad-queue";
/// Header with the routing key of the publish.
pub const HEADER_KEY: &str = "dyad-key";
/// Header with the message's `type`.
pub const HEADER_TYPE: &str = "dyad-type";
/// Header with the publishing user.
pub const HEADER_USER: &str = "dyad-user";

/// Headers of a single failure. All others stay with the message.
const OF_ONE_FAILURE: [&str; 7] = [
    HEADER_REASON,
    HEADER_CLASS,
    HEADER_STAGE,
    HEADER_QUEUE,
    HEADER_KEY,
    HEADER_TYPE,
    HEADER_USER,
];
/// The largest number of characters of a reason.
const REASON: usize = 1000;

/// The kind of failure that sent a message to the dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Larger than the run's message cap.
    TooLarge,
    /// Invalid UTF-8.
    NotText,
    /// Undecodable as JSON or bincode of its type.
    Malformed,
    /// Decodable, but with content that cannot be true or cannot be used here.
    Content,
    /// Written for another schema version or another workflow.
    Version,
    /// Received through a queue where it does not belong.
    Misplaced,
    /// Sent under a false name, or sealed by no coordinator of this run.
    Forged,
    /// For a group that this process never had.
    Unknown,
    /// In work each time that its process died.
    Crashed,
    /// Without a result: the infrastructure failed its conversations, or no conversation reached
    /// its end.
    Unplayed,
}

impl Class {
    /// Returns the spelling in the header.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Class::TooLarge => "too_large",
            Class::NotText => "not_text",
            Class::Malformed => "malformed",
            Class::Content => "content",
            Class::Version => "version",
            Class::Misplaced => "misplaced",
            Class::Forged => "forged",
            Class::Unknown => "unknown",
            Class::Crashed => "crashed",
            Class::Unplayed => "unplayed",
        }
    }
}

/// The step in which a message failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// A coordinator read a published task.
    Intake,
    /// A coordinator read a task that a ledger handed back.
    Reclaim,
    /// An agent read a reservation.
    Reserve,
    /// An agent read a turn request.
    Turn,
    /// A coordinator read an agent's answer.
    Result,
    /// An agent read samples.
    Samples,
    /// A coordinator played the task's group.
    Play,
}

/// The stage of failures that only RabbitMQ saw: rejected, or delivered too often.
pub const STAGE_BROKER: &str = "broker";

impl Stage {
    /// Returns the spelling in the header.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Intake => "intake",
            Stage::Reclaim => "reclaim",
            Stage::Reserve => "reserve",
            Stage::Turn => "turn",
            Stage::Result => "result",
            Stage::Samples => "samples",
            Stage::Play => "play",
        }
    }
}

/// The reason why a message was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub class: Class,
    pub reason: String,
}

impl Refusal {
    #[must_use]
    pub fn new(class: Class, reason: impl Into<String>) -> Self {
        Self {
            class,
            reason: reason.into(),
        }
    }
}

impl From<CodecError> for Refusal {
    fn from(error: CodecError) -> Self {
        let class = match error {
            CodecError::Version { .. } => Class::Version,
            CodecError::Content(_) => Class::Content,
            CodecError::Short | CodecError::Malformed(_) | CodecError::Trailing(_) => Class::Malformed,
        };
        Self::new(class, error.to_string())
    }
}

impl From<TaskError> for Refusal {
    fn from(error: TaskError) -> Self {
        let class = match error {
            TaskError::Oversize { .. } => Class::TooLarge,
            TaskError::NotUtf8 => Class::NotText,
            TaskError::NotJson(_) | TaskError::Json(_) => Class::Malformed,
            TaskError::Workflow { .. } => Class::Version,
            TaskError::LongId(_) | TaskError::BadId | TaskError::Content(_) => Class::Content,
        };
        Self::new(class, error.to_string())
    }
}

/// Returns the headers of a dead letter: the message's own ones and those of this failure.
#[must_use]
pub fn headers(before: &[(String, String)], stage: Stage, refusal: &Refusal, queue: &str) -> Vec<(String, String)> {
    let mut headers = revived(before);
    let known = |name: &str| {
        before
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.clone())
    };
    let attempts = known(HEADER_ATTEMPTS)
        .and_then(|text| text.parse::<u32>().ok())
        .unwrap_or(0);
    let first = known(HEADER_FIRST).unwrap_or_else(|| rfc3339(SystemTime::now()));
    headers.retain(|(key, _)| ![HEADER_FIRST, HEADER_ATTEMPTS].contains(&key.as_str()));
    headers.extend(
        [
            (HEADER_REASON, refusal.reason.chars().take(REASON).collect()),
            (HEADER_CLASS, refusal.class.as_str().to_owned()),
            (HEADER_STAGE, stage.as_str().to_owned()),
            (HEADER_FIRST, first),
            (HEADER_ATTEMPTS, attempts.saturating_add(1).to_string()),
            (HEADER_QUEUE, queue.to_owned()),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    headers
}

/// The broker's own record of a message that it dead-lettered by itself.
pub(super) struct GivenUp {
    /// The broker's word for the reason.
    pub(super) reason: String,
    pub(super) queue: Option<String>,
    pub(super) key: Option<String>,
    /// The time of the first failure.
    pub(super) first: Option<String>,
    pub(super) count: u64,
}

impl GivenUp {
    /// Writes the record into our headers. The first failure and the earlier count are kept.
    pub(super) fn explain(self, headers: &mut Vec<(String, String)>) {
        let find = |name: &str| {
            headers
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.clone())
        };
        let earlier = find(HEADER_ATTEMPTS)
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0);
        let known = [
            (HEADER_STAGE, Some(STAGE_BROKER.to_owned())),
            (HEADER_CLASS, Some(self.reason.clone())),
            (HEADER_FIRST, find(HEADER_FIRST).or(self.first)),
            (HEADER_REASON, Some(self.reason)),
            (HEADER_ATTEMPTS, Some(earlier.saturating_add(self.count).to_string())),
            (HEADER_QUEUE, self.queue),
            (HEADER_KEY, self.key),
        ];
        for (name, value) in known {
            headers.retain(|(key, _)| key != name);
            headers.extend(value.map(|value| (name.to_owned(), value)));
        }
    }
}

/// Returns the headers for publishing a dead letter again. The first failure and the count are
/// kept.
#[must_use]
pub fn revived(letter: &[(String, String)]) -> Vec<(String, String)> {
    let stays = |(key, _): &&(String, String)| !OF_ONE_FAILURE.contains(&key.as_str());
    letter.iter().filter(stays).cloned().collect()
}

/// Moves a delivery to the dead letters, byte for byte, with its failure in the headers. It is
/// published with a confirm and then acked. If that fails, it stays unacked and is delivered again.
///
/// # Errors
/// The dead-letter queue did not accept it.
pub async fn dead_letter(
    bus: &dyn Bus,
    topology: &Topology,
    delivery: &Delivery,
    stage: Stage,
    refusal: &Refusal,
) -> Result<(), PublishError> {
    let mut headers = headers(&delivery.headers, stage, refusal, &delivery.queue);
    headers.push((HEADER_KEY.into(), delivery.routing_key.clone()));
    if let Some(kind) = delivery.kind {
        headers.push((HEADER_TYPE.into(), kind.to_string()));
    }
    if let Some(user) = &delivery.user {
        headers.push((HEADER_USER.into(), user.clone()));
    }
    let message_id = delivery
        .message_id
        .clone()
        .unwrap_or_else(|| crate::ids::Digest::of(&delivery.body).to_string());
    bus.publish(Outgoing {
        to: topology.to(&topology.dead()),
        kind: delivery.kind.unwrap_or(Kind::Task),
        message_id,
        correlation_id: delivery.correlation_id.clone(),
        headers,
        body: delivery.body.clone(),
        durable: true,
    })
    .await?;
    crate::fail::point("letter.confirmed");
    delivery.ack().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    fn of<'a>(headers: &'a [(String, String)], name: &str) -> Vec<&'a str> {
        let found = headers.iter().filter(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    #[test]
    fn a_message_of_another_schema_is_refused_with_both() {
        for found in [codec::SCHEMA - 1, codec::SCHEMA + 1] {
            let mut bytes = codec::encode(&7u32);
            bytes[..2].copy_from_slice(&found.to_le_bytes());
            let refusal = Refusal::from(codec::decode::<u32>(&bytes).unwrap_err());
            assert_eq!(refusal.class, Class::Version);
            for version in [found, codec::SCHEMA] {
                assert!(refusal.reason.contains(&version.to_string()), "{}", refusal.reason);
            }
        }
    }

    #[test]
    fn a_repeated_failure_keeps_the_first_time_and_counts() {
        let mut before = vec![("who".to_owned(), "me".to_owned())];
        let mut first = Vec::new();
        for attempt in 1..=3 {
            let refusal = Refusal::new(Class::Content, format!("reason {attempt}"));
            let letter = headers(&before, Stage::Intake, &refusal, "q");
            assert_eq!(of(&letter, HEADER_ATTEMPTS), [attempt.to_string()]);
            assert_eq!(of(&letter, HEADER_REASON), [refusal.reason]);
            assert_eq!(of(&letter, "who"), ["me"]);
            first.push(of(&letter, HEADER_FIRST)[0].to_owned());
            before = revived(&letter);
            assert_eq!(of(&before, HEADER_REASON), Vec::<&str>::new());
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert_eq!(first[0], first[2]);
    }

    #[test]
    fn a_failure_that_only_the_broker_saw_is_counted() {
        let mut headers = [
            (HEADER_ATTEMPTS, "2"),
            (HEADER_FIRST, "then"),
            (HEADER_STAGE, "play"),
            ("who", "me"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec();
        let given_up = GivenUp {
            reason: "delivery_limit".into(),
            queue: Some("q".into()),
            key: None,
            first: Some("now".into()),
            count: 1,
        };
        given_up.explain(&mut headers);
        for (name, value) in [
            (HEADER_ATTEMPTS, "3"),
            (HEADER_FIRST, "then"),
            (HEADER_STAGE, STAGE_BROKER),
            (HEADER_CLASS, "delivery_limit"),
            (HEADER_QUEUE, "q"),
            ("who", "me"),
        ] {
            assert_eq!(of(&headers, name), [value], "{name}");
        }
    }

    #[test]
    fn forged_headers_of_a_publisher_are_overwritten() {
        let forged = [
            (HEADER_ATTEMPTS, "4294967295"),
            (HEADER_CLASS, "fine"),
            (HEADER_ATTEMPTS, "x"),
        ];
        let forged = forged.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let letter = headers(&forged, Stage::Turn, &Refusal::new(Class::Forged, "no"), "q");
        assert_eq!(of(&letter, HEADER_ATTEMPTS), ["4294967295"]);
        assert_eq!(of(&letter, HEADER_CLASS), ["forged"]);
    }
}

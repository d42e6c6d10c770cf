//! Dead letters: a message that could not be handled, byte for byte, with what it died of in its headers.
//!
//! Their marks outlive a requeue: a task that dies again says when it failed first and how often.

use std::time::SystemTime;

use super::{Bus, Delivery, Outgoing, PublishError};
use crate::clock::rfc3339;
use crate::codec::CodecError;
use crate::protocol::Kind;
use crate::protocol::task::TaskError;
use crate::topology::Topology;

/// Why, in words for people.
pub const HEADER_REASON: &str = "dyad-reason";
/// What kind of failure it was ([`Class`]), or RabbitMQ's word for it (`rejected`, `delivery_limit`).
pub const HEADER_CLASS: &str = "dyad-class";
/// What was being done ([`Stage`]).
pub const HEADER_STAGE: &str = "dyad-stage";
/// When it failed first, as the clock of that machine had it.
pub const HEADER_FIRST: &str = "dyad-first-failure";
/// How often it has failed: 1, and 1 more for each time that it was requeued and failed again.
pub const HEADER_ATTEMPTS: &str = "dyad-attempts";
/// The queue that it came from.
pub const HEADER_QUEUE: &str = "dyad-queue";
/// The routing key that it was published under.
pub const HEADER_KEY: &str = "dyad-key";
/// Its `type`.
pub const HEADER_TYPE: &str = "dyad-type";
/// Who published it.
pub const HEADER_USER: &str = "dyad-user";

/// Headers of one death; the others stay with the message for life.
const OF_THIS_DEATH: [&str; 7] = [
    HEADER_REASON,
    HEADER_CLASS,
    HEADER_STAGE,
    HEADER_QUEUE,
    HEADER_KEY,
    HEADER_TYPE,
    HEADER_USER,
];
/// Characters of a reason at most.
const REASON: usize = 1000;

/// What kind of failure put a message to the dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// More bytes than the run takes.
    TooLarge,
    /// Not UTF-8.
    NotText,
    /// Not what its type says: JSON or bincode that does not read.
    Malformed,
    /// It reads, and holds what cannot be true or used here.
    Content,
    /// Of another schema version or for another workflow.
    Version,
    /// It does not belong into the queue that it came by.
    Misplaced,
    /// It claims to be from somebody else, or of a coordinator that never had it.
    Forged,
    /// Of a group that this process never had.
    Unknown,
    /// It was being worked on each time that its process died.
    Crashed,
    /// It came to nothing: the machinery failed its conversations, or none of them came to its end.
    Unplayed,
}

impl Class {
    /// As the header spells it.
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

/// What was being done to a message when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// A published task was read.
    Intake,
    /// A task that a ledger handed back was read.
    Reclaim,
    /// An agent read a reservation.
    Reserve,
    /// An agent read a turn request.
    Turn,
    /// A coordinator read an agent's answer.
    Result,
    /// An agent read samples.
    Samples,
    /// The task's group was played.
    Play,
}

/// The word for deaths of which only RabbitMQ knows: rejected, or delivered too often.
pub const STAGE_BROKER: &str = "broker";

impl Stage {
    /// As the header spells it.
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

/// Why a message was refused.
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
            TaskError::Json(_) => Class::Malformed,
            TaskError::Workflow { .. } => Class::Version,
            TaskError::LongId(_) | TaskError::BadId | TaskError::Content(_) => Class::Content,
        };
        Self::new(class, error.to_string())
    }
}

/// The headers of a letter: those that the message came with, and what it died of.
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

/// What a broker knows of a message that it gave up by itself.
pub(super) struct GivenUp {
    /// Its word for why.
    pub(super) reason: String,
    pub(super) queue: Option<String>,
    pub(super) key: Option<String>,
    /// When, and how often.
    pub(super) first: Option<String>,
    pub(super) count: u64,
}

impl GivenUp {
    /// Says so under our names, whatever stood there but when it failed first and how often it had.
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

/// The headers of a letter that is published again: how often it has failed, and when first, stays known.
#[must_use]
pub fn revived(letter: &[(String, String)]) -> Vec<(String, String)> {
    let stays = |(key, _): &&(String, String)| !OF_THIS_DEATH.contains(&key.as_str());
    letter.iter().filter(stays).cloned().collect()
}

/// Moves a delivery to the dead letters, byte-exact, with what it died of: published with a confirm, then acked. On failure it
/// stays unacked and comes again.
///
/// # Errors
/// The dead-letter queue did not take it.
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

    fn of<'a>(headers: &'a [(String, String)], name: &str) -> Vec<&'a str> {
        let found = headers.iter().filter(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    #[test]
    fn a_letter_that_dies_again_says_when_it_failed_first_and_how_often() {
        let mut of_its_own = vec![("who".to_owned(), "me".to_owned())];
        let mut first = Vec::new();
        for attempt in 1..=3 {
            let refusal = Refusal::new(Class::Content, format!("reason {attempt}"));
            let letter = headers(&of_its_own, Stage::Intake, &refusal, "q");
            assert_eq!(of(&letter, HEADER_ATTEMPTS), [attempt.to_string()]);
            assert_eq!(of(&letter, HEADER_REASON), [refusal.reason]);
            assert_eq!(of(&letter, "who"), ["me"]);
            first.push(of(&letter, HEADER_FIRST)[0].to_owned());
            of_its_own = revived(&letter);
            assert_eq!(of(&of_its_own, HEADER_REASON), Vec::<&str>::new());
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert_eq!(first[0], first[2]);
    }

    #[test]
    fn a_message_that_the_broker_gave_up_counts_on() {
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
    fn what_a_publisher_wrote_into_our_headers_is_no_reason_to_fail() {
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

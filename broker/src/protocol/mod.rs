//! Messages between processes.
//!
//! JSON where people or other languages take part: [`task`], [`control`], dead letters, and
//! [`inference`] for onlookers. bincode after a schema version for tokens and log-probs: [`turn`],
//! [`bundle`], [`reserve`], [`engine`].
//!
//! Every change of a binary type is a new schema version; the golden files in `broker/golden/` hold
//! the bytes.

pub mod bundle;
pub mod control;
pub mod engine;
pub mod failure;
pub mod inference;
mod message;
pub mod reserve;
pub mod task;
pub mod train;
pub mod turn;
pub mod validate;

use std::fmt;

/// The `type` property of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Task,
    Reserve,
    ReserveAnswer,
    TurnRequest,
    TurnResult,
    Bundle,
    Inference,
    Ended,
    Heartbeat,
    Command,
    Question,
}

impl Kind {
    pub const ALL: [Kind; 11] = [
        Kind::Task,
        Kind::Reserve,
        Kind::ReserveAnswer,
        Kind::TurnRequest,
        Kind::TurnResult,
        Kind::Bundle,
        Kind::Inference,
        Kind::Ended,
        Kind::Heartbeat,
        Kind::Command,
        Kind::Question,
    ];

    /// Returns the name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Task => "task.v1",
            Kind::Reserve => "group.reserve.v1",
            Kind::ReserveAnswer => "group.reserved.v1",
            Kind::TurnRequest => "turn.requested.v1",
            Kind::TurnResult => "turn.finished.v1",
            Kind::Bundle => "samples.bundle.v1",
            Kind::Inference => "inference.shared.v1",
            Kind::Ended => "conversation.ended.v1",
            Kind::Heartbeat => "agent.heartbeat.v1",
            Kind::Command => "run.command.v1",
            Kind::Question => "question.asked.v1",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Returns true if the body is JSON, false if it is bincode.
    #[must_use]
    pub fn is_json(self) -> bool {
        matches!(
            self,
            Kind::Task | Kind::Inference | Kind::Ended | Kind::Heartbeat | Kind::Command | Kind::Question
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

//! Words that the agents of a game must read or say: without them a task cannot be won.

use std::sync::Arc;

use broker::RoleName;

/// A text of a task, or of the game, that an agent must know.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    pub role: RoleName,
    /// The field of the task that has it.
    pub field: &'static str,
    pub kind: NeedKind,
    /// The most tokens of the role's turn, and the key that sets it.
    pub limit: Option<(u32, &'static str)>,
}

/// The use of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum NeedKind {
    /// The role's prompt shows its words.
    Read(String),
    /// A turn wins only if it is this text.
    Say(String),
    /// A turn wins only if its last number is this one.
    SayNumber(u64),
    /// A turn counts only if it has one of these words; the key sets them.
    SayOneOf(Arc<[String]>, &'static str),
}

/// Returns the last number of a text.
#[must_use]
pub fn last_number(text: &str) -> Option<u64> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    numbers.rfind(|digits| !digits.is_empty())?.parse().ok()
}

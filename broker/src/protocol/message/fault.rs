//! The reason why JSON is no message.

use std::fmt;

use serde_json::Value;

use crate::codec::excerpt;

/// A field of a message that cannot be read, with its path and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageFault {
    /// The path within what is read, such as `[1].content`; empty for the whole of it.
    pub path: String,
    pub problem: String,
    pub kind: FaultKind,
}

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The field has a wrong value, or none.
    Wrong,
    /// The field is well formed, and a conversation cannot hold it.
    Unsupported,
    /// The reader does not know the field.
    Unknown,
}

impl MessageFault {
    #[must_use]
    pub fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
            kind: FaultKind::Wrong,
        }
    }

    /// Returns the fault of a field with a wrong value, or without one.
    pub(super) fn wrong(path: &str, found: Option<&Value>, wanted: &str) -> Self {
        match found {
            Some(found) => Self::new(path, format!("is {}: write {wanted}", excerpt(found))),
            None => Self::new(path, format!("is missing: write {wanted}")),
        }
    }

    pub(super) fn unsupported(path: &str, problem: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Unsupported,
            ..Self::new(path, problem)
        }
    }

    /// Returns the fault with its path within `place`, such as `prompt` or `messages[3]`.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        self.path = match self.path.as_str() {
            "" => place.to_owned(),
            path if path.starts_with('[') => format!("{place}{path}"),
            path => format!("{place}.{path}"),
        };
        self
    }
}

impl fmt::Display for MessageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{} ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

//! Graders: how an answer is compared with its label. Pure functions of text and label.

use serde_json::Value;

mod boxed;
mod integer;
mod math;
#[cfg(test)]
mod tests;
mod value;

/// Longest answer that is read, in bytes from its end: graders are linear, and this bounds them.
const LONGEST: usize = 1 << 16;

/// A way of comparing an answer with a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grader {
    /// The same text, but for white space around it.
    Exact,
    /// The last whole number in the text, or the one in its last `\boxed{}`.
    Integer,
    /// The last boxed or announced answer, compared as normalised LaTeX or by its value.
    Math,
}

impl Grader {
    /// By the name that `[graders.NAME] kind` gives; the error says which there are.
    pub fn new(kind: &str) -> Result<Self, String> {
        match kind {
            "exact" => Ok(Self::Exact),
            "integer" => Ok(Self::Integer),
            "math" => Ok(Self::Math),
            other => Err(format!("there is no grader {other:?}: use exact, integer or math")),
        }
    }

    /// 1 if the answer in `text` is the label's, else 0. An answer or a label that cannot be read earns 0.
    #[must_use]
    pub fn grade(self, text: &str, label: &Value) -> f32 {
        let text = tail(text, LONGEST);
        let right = match self {
            Self::Exact => label_text(label).is_some_and(|label| text.trim() == label.trim()),
            Self::Integer => integer::answer(text).is_some_and(|found| Some(found) == integer::label(label)),
            Self::Math => math::right(text, label),
        };
        f32::from(u8::from(right))
    }

    /// Whether the label is one that this grader can compare with; the error is for who published the task.
    pub fn check_label(self, label: &Value) -> Result<(), String> {
        let usable = match self {
            Self::Exact => label_text(label).is_some(),
            Self::Integer => integer::label(label).is_some(),
            Self::Math => math::is_label(label),
        };
        let wanted = match self {
            Self::Exact => "a text or a number",
            Self::Math => "a short text or a number",
            Self::Integer => "a whole number, or a text that is one",
        };
        if usable {
            Ok(())
        } else {
            Err(format!("the label is {label}; the grader compares with {wanted}"))
        }
    }
}

/// The label as text, if it is a text or a number.
fn label_text(label: &Value) -> Option<String> {
    match label {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The last `length` bytes of a text, at most, from a character's beginning on.
fn tail(text: &str, length: usize) -> &str {
    let mut start = text.len().saturating_sub(length);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

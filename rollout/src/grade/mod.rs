//! Graders: how an answer is compared with its label. Pure functions of text and label.

use configs::{GraderConfig, Take};
use serde_json::Value;

mod answer;
mod choice;
mod f1;
mod format;
mod integer;
mod matching;
mod math;
mod own;
#[cfg(test)]
mod tests;

pub use own::{Own, OwnGrader};

/// Longest answer that is read, in bytes from its end (from its beginning where the first number counts): graders are linear, and this bounds them.
const LONGEST: usize = 1 << 16;

/// The kinds of graders, as `[graders.NAME] kind` names them.
pub const KINDS: [&str; 8] = ["exact", "match", "integer", "gsm8k", "math", "choice", "f1", "format"];

/// A way of comparing an answer with a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grader {
    /// The same text, but for white space around it.
    Exact,
    /// The same words and numbers as one of the labels, but for case, punctuation and articles.
    Match,
    /// The last whole number in the text, or the one in its last `\boxed{}`; or its first number.
    Integer(Take),
    /// The number after the last `####`, else the boxed or last one, compared by value; so is the label's.
    Gsm8k,
    /// The last boxed or announced answer, compared by what it means.
    Math,
    /// The letter that was chosen, A to J.
    Choice,
    /// F1 over words, from 0 to 1, for the best of the labels.
    F1,
    /// Whether the text is `<answer>..</answer>`, after a reasoning or without one. The label is not read.
    Format,
    /// One of the program's own.
    Own(Own),
}

impl Grader {
    /// By the name that `[graders.NAME] kind` gives; the error says which there are.
    pub fn new(kind: &str) -> Result<Self, String> {
        match kind {
            "exact" => Ok(Self::Exact),
            "match" => Ok(Self::Match),
            "integer" => Ok(Self::Integer(Take::Last)),
            "gsm8k" => Ok(Self::Gsm8k),
            "math" => Ok(Self::Math),
            "choice" => Ok(Self::Choice),
            "f1" => Ok(Self::F1),
            "format" => Ok(Self::Format),
            other => crate::own::own_grader(other)
                .ok_or_else(|| format!("there is no grader {other:?}: use one of {}", KINDS.join(", "))),
        }
    }

    /// By the kind of `[graders.NAME]` and what else it says of a grader of ours.
    pub fn of(config: &GraderConfig) -> Result<Self, String> {
        Ok(match Self::new(&config.kind)? {
            Self::Integer(_) => Self::Integer(config.take),
            other => other,
        })
    }

    /// The part of an answer that is read.
    fn part(self, text: &str) -> &str {
        match self {
            Self::Integer(Take::First) => &text[..text.floor_char_boundary(LONGEST)],
            _ => tail(text, LONGEST),
        }
    }

    /// What the answer in `text` is worth, 0 to 1; all but `F1` give 0 or 1. An answer or a label that cannot be read earns 0.
    #[must_use]
    pub fn grade(self, text: &str, label: &Value) -> f32 {
        let text = self.part(text);
        let right = match self {
            Self::Exact => label_text(label).is_some_and(|label| text.trim() == label.trim()),
            Self::Match => f1::matches(text, label),
            Self::Integer(take) => {
                integer::answer(text, take).is_some_and(|found| Some(found) == integer::label(label))
            }
            Self::Gsm8k => math::gsm8k(text, label),
            Self::Math => math::right(text, label),
            Self::Choice => choice::answer(text).is_some_and(|found| Some(found) == choice_label(label)),
            Self::F1 => return f1::f1(text, label),
            Self::Format => format::is_well_formed(text),
            Self::Own(own) => return own.grade(text, label),
        };
        f32::from(u8::from(right))
    }

    /// Whether the answers in two texts are the same by this grader; `None` if it does not compare answers with each other. A text in
    /// which no answer is found is the same as nothing.
    #[must_use]
    pub fn same(self, a: &str, b: &str) -> Option<bool> {
        let (a, b) = (self.part(a), self.part(b));
        let equal = |a: Option<String>, b: Option<String>| a.is_some() && a == b;
        match self {
            Self::Exact => Some(a.trim() == b.trim()),
            Self::Match => Some(f1::matches(a, &f1::answer(b).into())),
            Self::Integer(take) => Some(equal(integer::answer(a, take), integer::answer(b, take))),
            Self::Gsm8k => Some(math::same_number(a, b)),
            Self::Math => Some(math::same_answer(a, b)),
            Self::Choice => Some(choice::answer(a).is_some_and(|found| Some(found) == choice::answer(b))),
            Self::F1 | Self::Format => None,
            Self::Own(own) => own.same(a, b),
        }
    }

    /// Whether the label is one that this grader can compare with; the error is for who published the task.
    pub fn check_label(self, label: &Value) -> Result<(), String> {
        let (usable, wanted) = match self {
            Self::Exact => (label_text(label).is_some(), "a text or a number"),
            Self::Match | Self::F1 => (
                f1::is_label(label),
                "a text that is not empty, a number, or a list of them",
            ),
            Self::Math => (math::is_label(label), "a short text or a number"),
            Self::Integer(_) => (integer::label(label).is_some(), "a whole number, or a text that is one"),
            Self::Gsm8k => (
                math::is_gsm8k_label(label),
                "a number, or a text that ends with #### and one",
            ),
            Self::Choice => (choice_label(label).is_some(), "a letter from A to J"),
            Self::Format => (true, "nothing"),
            Self::Own(own) => return own.check_label(label),
        };
        if usable {
            Ok(())
        } else {
            Err(format!("the label is {label}; the grader compares with {wanted}"))
        }
    }
}

fn choice_label(label: &Value) -> Option<char> {
    choice::letter(&label_text(label)?)
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

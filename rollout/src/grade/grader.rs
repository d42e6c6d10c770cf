//! Picks a grader by its kind.

use std::borrow::Cow;

use configs::{GraderConfig, Take};
use serde_json::Value;

use super::answer::Place;
use super::answer::correcting::after_confession;
use super::answer::tidy::{unstruck, without_html, without_tokens};
use super::answer::trailer::without_trailer;
use super::answer::turn;
use super::doubt::{self, Doubt};
use super::own::Own;
use super::verdict::{self, Verdict};
use super::{answer, choice, exact, f1, format, gsm8k, integer, label, matching, math, own};
use crate::reasoning::visible_text;

/// The kinds of graders that `[graders.NAME] kind` accepts.
pub const KINDS: [&str; 8] = ["exact", "match", "integer", "gsm8k", "math", "choice", "f1", "format"];

/// The end of a list of kinds: those that need more than a text and a label.
pub(crate) const OTHER: &str = "; [graders] also takes judge, process:FILE and remote:NAME";

/// A way of comparing an answer with a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grader {
    /// The same text, apart from white space around it.
    Exact,
    /// The same words and numbers as one of the labels, apart from case, punctuation and articles.
    Match,
    /// The marked whole number, else the last one; or the first number.
    Integer(Take),
    /// The number after the last `####`, else the marked or last number. Labels are read in the
    /// same way, and the numbers are compared by value.
    Gsm8k,
    /// The last boxed or announced answer, compared by its meaning.
    Math,
    /// The chosen letter, A to J.
    Choice,
    /// F1 over words, from 0 to 1, for the best of the labels.
    F1,
    /// The form `<answer>..</answer>`, with or without reasoning before it. The label is ignored.
    Format,
    /// A grader that the program registered.
    Own(Own),
}

impl Grader {
    /// Returns the grader of a kind, as `[graders.NAME] kind` names it.
    ///
    /// # Errors
    /// Lists the known kinds if there is no such kind.
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
            other => own::installed(other)
                .map(Self::Own)
                .ok_or_else(|| format!("there is no grader {other:?}: use one of {}{OTHER}", KINDS.join(", "))),
        }
    }

    /// Returns the grader of a `[graders.NAME]` table.
    ///
    /// # Errors
    /// Lists the known kinds if there is no such kind.
    pub fn of(config: &GraderConfig) -> Result<Self, String> {
        Ok(match Self::new(&config.kind)? {
            Self::Integer(_) => Self::Integer(config.take),
            other => other,
        })
    }

    /// Returns the part of a text that the grader reads: its end, or its beginning where the first
    /// number counts. Reasoning is left out, as a workflow leaves it out; so are tokens at the end,
    /// struck-out words, and another question behind the answer.
    pub(super) fn part(self, text: &str) -> Cow<'_, str> {
        let first = match self {
            // A longer text is one solution, and searching it would take long.
            Self::Integer(Take::Last) | Self::Gsm8k | Self::Math | Self::Choice if text.len() <= answer::LONGEST => {
                let place = |text: &str| verdict::read_answer(self, text).map(|(place, _)| place);
                let marked = |text: &str| place(text).is_some_and(|place| place != Place::Last);
                turn::first(text, marked, |text| place(text).is_some())
            }
            _ => text,
        };
        let text = match self {
            Self::Format | Self::Own(_) => text,
            _ => visible_text(first),
        };
        let part = match self {
            Self::Integer(Take::First) => answer::head(text, answer::LONGEST),
            _ => answer::tail(text, answer::LONGEST),
        };
        match self {
            Self::Exact | Self::Format | Self::Own(_) => Cow::Borrowed(part),
            Self::Integer(Take::Last) | Self::Gsm8k | Self::Math | Self::Choice => {
                without_html(unstruck(without_trailer(without_tokens(after_confession(part)))))
            }
            _ => without_html(unstruck(without_tokens(part))),
        }
    }

    /// Grades the answer in `text`, from 0 to 1. All shipped graders except [`Self::F1`] return 0
    /// or 1. An answer or a label that cannot be read earns 0.
    #[must_use]
    pub fn grade(self, text: &str, label: &Value) -> f32 {
        let text = &*self.part(text);
        let right = match self {
            Self::Exact => exact::is_right(text, label),
            Self::Match => matching::is_right(text, label),
            Self::Integer(take) => integer::is_right(text, label, take),
            Self::Gsm8k => gsm8k::is_right(text, label),
            Self::Math => math::is_right(text, label),
            Self::Choice => choice::is_right(text, label),
            Self::F1 => return f1::grade(text, label),
            Self::Format => format::is_right(text),
            Self::Own(own) => return own.grade(text, label),
        };
        f32::from(u8::from(right))
    }

    /// Returns `Some(true)` if this grader finds the same answer in both texts, and `None` if it
    /// does not compare answers with each other. A text without an answer equals no other text.
    #[must_use]
    pub fn same(self, a: &str, b: &str) -> Option<bool> {
        let (a, b) = (&*self.part(a), &*self.part(b));
        let once = |text| answer::converted::once(text).swap_remove(0);
        match self {
            Self::Exact => Some(exact::is_same(a, b)),
            Self::Match => Some(matching::is_same(a, b)),
            Self::Integer(take) => Some(integer::is_same(&once(a), &once(b), take)),
            Self::Gsm8k => Some(gsm8k::is_same(&once(a), &once(b))),
            Self::Math => Some(math::is_same(&once(a), &once(b))),
            Self::Choice => Some(choice::is_same(a, b)),
            Self::F1 | Self::Format => None,
            Self::Own(own) => own.same(a, b),
        }
    }

    /// Grades the answer in `text` and says what was read and why.
    #[must_use]
    pub fn explain(self, text: &str, label: &Value) -> Verdict {
        verdict::explain(self, text, label)
    }

    /// Returns the kind, as `[graders.NAME] kind` names it.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Match => "match",
            Self::Integer(_) => "integer",
            Self::Gsm8k => "gsm8k",
            Self::Math => "math",
            Self::Choice => "choice",
            Self::F1 => "f1",
            Self::Format => "format",
            Self::Own(own) => own.kind(),
        }
    }

    /// Checks that this grader can compare with the label, and that an answer which repeats the
    /// label would be right.
    ///
    /// # Errors
    /// Says which labels the grader accepts, for the publisher of the task.
    pub fn check_label(self, label: &Value) -> Result<(), Doubt> {
        match self {
            Self::Own(own) => own.check_label(label).map_err(Doubt::of_own),
            shipped => doubt::check(shipped, label),
        }
    }

    /// Returns true if the label has the form that this grader compares with.
    pub(super) fn reads_label(self, label: &Value) -> bool {
        match self {
            Self::Exact => exact::is_label(label),
            Self::Match | Self::F1 => label::has_text(label),
            Self::Math => math::is_label(label),
            Self::Integer(_) => integer::is_label(label),
            Self::Gsm8k => gsm8k::is_label(label),
            Self::Choice => choice::is_label(label),
            Self::Format | Self::Own(_) => true,
        }
    }

    /// Returns the labels that this grader compares with, in words.
    pub(super) fn wanted(self) -> &'static str {
        match self {
            Self::Exact => "a text or a number",
            Self::Match | Self::F1 => "a text that is not empty, a number, or a list of them",
            Self::Math => "a short text or a number",
            Self::Integer(_) => "a whole number, or a text that is one",
            Self::Gsm8k => "a number, or a text that ends with #### and one",
            Self::Choice => "a letter from A to J, not its number",
            Self::Format | Self::Own(_) => "nothing",
        }
    }
}

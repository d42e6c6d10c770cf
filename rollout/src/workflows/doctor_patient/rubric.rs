//! The patient's rubric by a rule: the facts that were asked for and given, by the words of the
//! case's facts.

use broker::protocol::task::Task;
use serde_json::Value;

/// The cost of a fault (as in the rubric of MrlX's judge).
const FAULT: f32 = 0.2;

/// The questions about a case, each with the true answer: words that occur in questions and
/// replies.
pub(super) struct Facts(Vec<(String, String)>);

impl Facts {
    /// Reads the facts under `metadata.facts`, in lower case.
    pub(super) fn of(task: &Task) -> Self {
        let facts = task.metadata.get("facts").and_then(Value::as_object);
        let pair = |(key, value): (&String, &Value)| Some((key.to_lowercase(), value.as_str()?.to_lowercase()));
        Self(facts.into_iter().flatten().filter_map(pair).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the three marks, each 1 less a fifth for each fault, and at least 0.
pub(super) struct Rubric {
    /// Faults: facts given without a question for them.
    pub(super) control: f32,
    /// Faults: facts asked for and not given.
    pub(super) complete: f32,
    /// Faults: made-up replies. These are replies to a question about the case that neither tell
    /// its fact nor apologise, and replies to any other question that do not apologise.
    pub(super) consistent: f32,
}

/// Judges the replies to questions, in their order. A reply tells a fact if it has the fact's
/// value. A value that several facts share counts for the fact that was asked for.
pub(super) fn judge<'a>(facts: &Facts, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Rubric {
    let (mut reported_unasked, mut unreported, mut made_up) = (0u32, 0u32, 0u32);
    for (question, reply) in pairs {
        let (question, reply) = (question.to_lowercase(), reply.to_lowercase());
        let (asked, others): (Vec<_>, Vec<_>) = facts.0.iter().partition(|(key, _)| has(&question, key));
        let given = asked.iter().filter(|(_, value)| has(&reply, value)).count();
        let elsewhere = |value: &String| asked.iter().any(|(_, asked)| asked == value);
        let unasked = others
            .iter()
            .filter(|(_, value)| !elsewhere(value) && has(&reply, value))
            .count();
        reported_unasked += unasked as u32;
        unreported += (asked.len() - given) as u32;
        made_up += u32::from(given == 0 && !has(&reply, "sorry"));
    }
    let mark = |faults: u32| (1.0 - FAULT * faults as f32).max(0.0);
    Rubric {
        control: mark(reported_unasked),
        complete: mark(unreported),
        consistent: mark(made_up),
    }
}

/// Returns true if the words occur in a text as whole words. Chinese has no spaces, so its words
/// count anywhere.
fn has(text: &str, words: &str) -> bool {
    let letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    !words.is_empty()
        && text.match_indices(words).any(|(at, found)| {
            let (before, after) = (text[..at].chars().next_back(), text[at + found.len()..].chars().next());
            let (first, last) = (found.chars().next(), found.chars().next_back());
            let (cut_before, cut_after) = (letter(before) && letter(first), letter(last) && letter(after));
            !cut_before && !cut_after
        })
}

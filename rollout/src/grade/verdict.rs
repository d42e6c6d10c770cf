//! Explains a grade: what was read of the answer and of the label.

use configs::Take;
use serde_json::Value;

use super::answer::{self, Place};
use super::grader::Grader;
use super::normal::setting::plain_text;
use super::{choice, gsm8k, integer, label, math};

/// A grade with its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub score: f32,
    pub why: String,
    /// The part of the text that the grader took for the answer.
    pub answer: Option<String>,
    /// The part of the label that the grader compared with.
    pub label: Option<String>,
}

/// Grades a text and says why. A label that the grader refuses earns 0.
pub(super) fn explain(grader: Grader, text: &str, label: &Value) -> Verdict {
    let said = grader.part(text);
    // If an amount has two spellings, the verdict shows the one that earns.
    let spellings = match grader {
        Grader::Integer(Take::Last) | Grader::Gsm8k | Grader::Math => answer::converted::once(&said),
        _ => vec![said.into_owned()],
    };
    let right = spellings.iter().find(|said| grader.grade(said, label) >= 1.0);
    let read = right.or(spellings.first()).and_then(|said| read_answer(grader, said));
    let place = read.as_ref().map(|(place, _)| *place);
    let answer = read.map(|(_, text)| text);
    let known = match grader {
        // One of several labels is enough: the verdict shows the one that earns.
        Grader::Match | Grader::F1 => {
            let all = label::listed(label);
            let earns = |one: &&String| right.is_some_and(|said| grader.grade(said, &Value::from(one.as_str())) >= 1.0);
            let one = all.iter().find(earns).map(|one| Value::from(one.as_str()));
            read_label(grader, one.as_ref().unwrap_or(label))
        }
        _ => read_label(grader, label),
    };
    if let Err(doubt) = grader.check_label(label) {
        return Verdict {
            score: 0.0,
            why: format!("refused label: {doubt}"),
            answer,
            label: known,
        };
    }
    let score = grader.grade(text, label);
    let why = match place {
        Some(_) if grader == Grader::Format && score >= 1.0 => "right: the text has the form".to_owned(),
        Some(_) if grader == Grader::Format => "wrong: the text is not in the form <answer>..</answer>".to_owned(),
        None => format!("no answer: the text holds nothing that {} can read", grader.kind()),
        Some(place) if score >= 1.0 => format!("right: the answer {} is the label", named(place)),
        Some(place) if score > 0.0 => format!("partly right: the answer {} shares words with the label", named(place)),
        Some(place) => format!("wrong: the answer {} is not the label", named(place)),
    };
    Verdict {
        score,
        why,
        answer,
        label: known,
    }
}

fn named(place: Place) -> String {
    match place {
        Place::Last => "at the end".to_owned(),
        place => place.to_string(),
    }
}

/// Returns the part of a text that the grader takes for the answer.
pub(super) fn read_answer(grader: Grader, text: &str) -> Option<(Place, String)> {
    let owned = |candidate: answer::Candidate<'_>| (candidate.place, candidate.text.into_owned());
    let plain = plain_text(text);
    match grader {
        Grader::Exact | Grader::Format | Grader::Own(_) => Some((Place::Last, text.trim().to_owned())),
        Grader::Match | Grader::F1 => Some((Place::Last, answer::marked(text).into_owned())),
        Grader::Integer(take) => integer::answer(text, take),
        Grader::Gsm8k => gsm8k::number(&plain).map(owned),
        Grader::Math => math::readings(&plain).into_iter().next().map(owned),
        Grader::Choice => choice::answer(text).map(|(place, letter)| (place, letter.to_string())),
    }
    .filter(|(_, text)| !text.is_empty())
}

/// Returns the part of a label that the grader compares with.
pub(super) fn read_label(grader: Grader, label: &Value) -> Option<String> {
    match grader {
        Grader::Exact | Grader::Own(_) => label::text(label),
        Grader::Match | Grader::F1 => {
            let texts = label::listed(label).into_iter();
            texts
                .map(|text| answer::marked(&text).into_owned())
                .find(|text| !text.is_empty())
        }
        Grader::Integer(_) => integer::read_label(label),
        Grader::Gsm8k => gsm8k::read_label(label),
        Grader::Math => math::read_label(label),
        Grader::Choice => choice::read_label(label).map(String::from),
        Grader::Format => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_verdict_says_what_was_read() {
        for (kind, text, label, score, why, answer, known) in [
            (
                "math",
                "so \\boxed{\\frac12}",
                json!("0.5"),
                1.0,
                "in the box",
                Some("\\frac12"),
                Some("0.5"),
            ),
            ("gsm8k", "It is 5.", json!("#### 6"), 0.0, "wrong", Some("5"), Some("6")),
            (
                "integer",
                "half of 24, or 12",
                json!(12),
                1.0,
                "right",
                Some("12"),
                Some("12"),
            ),
            (
                "math",
                "180 minutes, or 3 hours",
                json!("180"),
                1.0,
                "right",
                Some("180 minutes"),
                Some("180"),
            ),
            (
                "match",
                "<answer>B</answer>",
                json!(["a", "b"]),
                1.0,
                "right",
                Some("B"),
                Some("b"),
            ),
            (
                "format",
                "<answer>b</answer> tail",
                json!("x"),
                0.0,
                "not in the form",
                Some("<answer>b</answer> tail"),
                None,
            ),
            ("choice", "no idea", json!("B"), 0.0, "no answer", None, Some("B")),
            ("integer", "7", json!("x"), 0.0, "refused label", Some("7"), None),
        ] {
            let verdict = Grader::new(kind).unwrap().explain(text, &label);
            assert_eq!(verdict.score, score, "{verdict:?}");
            assert!(verdict.why.contains(why), "{verdict:?}");
            assert_eq!(
                (verdict.answer.as_deref(), verdict.label.as_deref()),
                (answer, known),
                "{text}"
            );
        }
    }
}

//! The form of an exchange: calls that are opened and closed, and an ending between its tags.

use broker::protocol::turn::Finish;
use serde_json::Value;

use crate::workflow::Event;
use crate::workflow::tools::call::{CLOSE, OPEN, balanced};

/// Returns true if every turn but the last is in order, and the last one ends with one
/// `<tag>..</tag>` that is not empty. The last turn must be uncut and without a call.
pub(super) fn has_form(turns: &[&Event], tag: &str) -> bool {
    let Some((last, before)) = turns.split_last() else {
        return false;
    };
    let calls = [OPEN, CLOSE].iter().any(|mark| last.text.contains(mark));
    before.iter().all(|event| balanced(&event.text))
        && last.finish == Finish::Stop
        && !calls
        && ends_with(&last.text, tag)
}

fn ends_with(text: &str, tag: &str) -> bool {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let once = |mark: &str| text.matches(mark).count() == 1;
    once(&open)
        && once(&close)
        && text.trim_end().ends_with(&close)
        && between(text, tag).is_some_and(|inside| !inside.is_empty())
}

/// Returns the text between the last `<tag>` and the `</tag>` after it, without white space around
/// it.
pub(super) fn between<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (_, inside) = text.rsplit_once(&format!("<{tag}>"))?;
    Some(inside.split(&format!("</{tag}>")).next()?.trim())
}

/// Returns true if a text has the words of a label, or of one of several labels, in their order.
pub(super) fn has_label(text: &str, label: &Value) -> bool {
    let has = |label: &Value| {
        let wanted = match label {
            Value::String(text) => words(text),
            Value::Number(number) => words(&number.to_string()),
            _ => return false,
        };
        !wanted.is_empty() && words(text).windows(wanted.len()).any(|part| part == wanted)
    };
    match label {
        Value::Array(labels) => labels.iter().any(has),
        one => has(one),
    }
}

fn words(text: &str) -> Vec<String> {
    let words = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::testing::event;
    use serde_json::json;

    const CALL: &str = "<tool_call>{\"name\":\"research\"}</tool_call>";

    fn form(texts: &[&str]) -> bool {
        let events: Vec<Event> = texts.iter().map(|text| event("main", 0, text)).collect();
        has_form(&events.iter().collect::<Vec<_>>(), "answer")
    }

    #[test]
    fn a_talk_has_form_or_not() {
        for (texts, good) in [
            (&["<answer>amber</answer>"][..], true),
            (&["I think\n<answer> amber </answer>\n"], true),
            (&[CALL, "<answer>amber</answer>"], true),
            (&[], false),
            (&["amber"], false),
            (&["<answer></answer>"], false),
            (&["<answer>amber</answer> or so"], false),
            (&["<answer>a</answer><answer>b</answer>"], false),
            (&["</answer><answer>"], false),
            (&["<tool_call>{}", "<answer>amber</answer>"], false),
            (&["<tool_call>{}</tool_call><answer>amber</answer>"], false),
        ] {
            assert_eq!(form(texts), good, "{texts:?}");
        }
        let cut = Event {
            finish: Finish::Length,
            ..event("main", 0, "<answer>amber</answer>")
        };
        assert!(!has_form(&[&cut], "answer"));
    }

    #[test]
    fn a_label_is_found_by_its_words() {
        for (text, label, found) in [
            ("It is Amber, of course.", json!("amber"), true),
            ("ambergris", json!("amber"), false),
            ("born in New York", json!(["Paris", "new york"]), true),
            ("York, New", json!("New York"), false),
            ("in 1905", json!(1905), true),
            ("anything", json!(""), false),
            ("anything", json!(null), false),
        ] {
            assert_eq!(has_label(text, &label), found, "{text}");
        }
    }
}

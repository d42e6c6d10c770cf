//! Tool calls in an agent's text: `<tool_call>{"name": .., "arguments": {..}}</tool_call>`, as the
//! templates of Qwen and Hermes teach it. A turn may have several calls, and damaged ones are
//! reported.

use serde_json::{Map, Value};

pub(crate) const OPEN: &str = "<tool_call>";
pub(crate) const CLOSE: &str = "</tool_call>";
/// The most calls read of one turn; later ones are ignored.
const MOST: usize = 16;
/// The most bytes read of one call.
const LONGEST: usize = 64 << 10;

/// One call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// Usually an object; the tool's schema decides.
    pub(crate) arguments: Value,
}

/// Returns the calls in a text, in order. An error tells the agent what is wrong with a call that
/// cannot be read.
pub(crate) fn calls(text: &str) -> Vec<Result<Call, String>> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find(OPEN)
        && found.len() < MOST
    {
        let inside = &rest[at + OPEN.len()..];
        let (call, used) = read(inside);
        found.push(call);
        rest = &inside[used..];
    }
    found
}

/// Returns true if every call in a text is opened and closed, one after the other.
pub(crate) fn balanced(text: &str) -> bool {
    let mut rest = text;
    loop {
        let (open, close) = (rest.find(OPEN), rest.find(CLOSE));
        match (open, close) {
            (None, None) => return true,
            (Some(open), Some(close)) if open < close => {
                if rest[open + OPEN.len()..close].contains(OPEN) {
                    return false;
                }
                rest = &rest[close + CLOSE.len()..];
            }
            _ => return false,
        }
    }
}

/// Reads one call after its opening mark, and returns its length in the text.
fn read(inside: &str) -> (Result<Call, String>, usize) {
    let body = unfenced(inside);
    let skipped = inside.len() - body.len();
    let mut values = serde_json::Deserializer::from_str(head(body)).into_iter::<Value>();
    // The value itself may have the closing mark in a text, so it is read before the mark is
    // searched.
    if let Some(Ok(value)) = values.next() {
        let used = skipped + values.byte_offset();
        let end = inside[used..]
            .find(CLOSE)
            .filter(|at| !inside[used..used + at].contains(OPEN));
        return (call(value), used + end.map_or(0, |at| at + CLOSE.len()));
    }
    let end = [inside.find(CLOSE), inside.find(OPEN)].into_iter().flatten().min();
    let why = "the call is no JSON object: write {\"name\": \"..\", \"arguments\": {..}}".to_owned();
    (Err(why), end.unwrap_or(inside.len()))
}

fn call(value: Value) -> Result<Call, String> {
    let Value::Object(mut fields) = value else {
        return Err("the call is no JSON object: write {\"name\": \"..\", \"arguments\": {..}}".into());
    };
    let Some(Value::String(name)) = fields.remove("name") else {
        return Err("the call has no text under \"name\"".into());
    };
    let given = fields.remove("arguments").or_else(|| fields.remove("parameters"));
    let arguments = match given {
        None | Some(Value::Null) => Value::Object(Map::new()),
        // Some models write the arguments as a text with JSON in it.
        Some(Value::String(text)) => {
            serde_json::from_str(&text).map_err(|_| "the text under \"arguments\" is no JSON object".to_owned())?
        }
        Some(other) => other,
    };
    Ok(Call { name, arguments })
}

/// Returns the text without leading white space and code fence.
fn unfenced(text: &str) -> &str {
    let text = text.trim_start();
    let Some(fenced) = text.strip_prefix("```") else {
        return text;
    };
    fenced.strip_prefix("json").unwrap_or(fenced).trim_start()
}

fn head(text: &str) -> &str {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn names(text: &str) -> Vec<Result<String, ()>> {
        calls(text)
            .into_iter()
            .map(|call| call.map(|call| call.name).map_err(drop))
            .collect()
    }

    #[test]
    fn calls_are_read_as_models_write_them() {
        let query = json!({"query": "amber"});
        for text in [
            "I look. <tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"amber\"}}\n</tool_call>",
            "<tool_call>{\"name\":\"search\",\"arguments\":{\"query\":\"amber\"}}",
            "<tool_call>```json\n{\"name\":\"search\",\"arguments\":{\"query\":\"amber\"}}\n```</tool_call>",
            "<tool_call>{\"name\":\"search\",\"parameters\":{\"query\":\"amber\"}}}</tool_call> done",
            "<tool_call>{\"name\":\"search\",\"arguments\":\"{\\\"query\\\":\\\"amber\\\"}\"}</tool_call>",
        ] {
            let found = calls(text);
            assert_eq!(found.len(), 1, "{text}");
            let call = found[0].clone().unwrap();
            assert_eq!((call.name.as_str(), &call.arguments), ("search", &query), "{text}");
        }
        assert_eq!(
            calls("<tool_call>{\"name\":\"now\"}</tool_call>")[0]
                .clone()
                .unwrap()
                .arguments,
            json!({})
        );
        assert!(calls("nothing {\"name\": \"search\"} is called").is_empty());
    }

    #[test]
    fn damage_stays_with_its_call() {
        let good = "<tool_call>{\"name\":\"a\"}</tool_call>";
        for bad in [
            "<tool_call>oops</tool_call>",
            "<tool_call>[1]</tool_call>",
            "<tool_call>{\"name\":1}</tool_call>",
            "<tool_call>",
        ] {
            assert_eq!(names(&format!("{bad}{good}")), [Err(()), Ok("a".into())], "{bad}");
            assert_eq!(names(&format!("{good}{bad}")), [Ok("a".into()), Err(())], "{bad}");
        }
        let inside = "<tool_call>{\"name\":\"a\",\"arguments\":{\"q\":\"</tool_call>\"}}</tool_call>";
        assert_eq!(names(inside), [Ok("a".into())]);
        assert_eq!(names(&good.repeat(40)).len(), MOST);
    }

    #[test]
    fn marks_are_balanced_or_not() {
        for (text, good) in [
            ("", true),
            ("<tool_call>{}</tool_call> and <tool_call>{}</tool_call>", true),
            ("<tool_call>{}", false),
            ("{}</tool_call>", false),
            ("<tool_call><tool_call></tool_call>", false),
        ] {
            assert_eq!(balanced(text), good, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_some_calls(parts in prop::collection::vec(prop::sample::select(vec![
            "<tool_call>", "</tool_call>", "{", "}", "\"name\"", ":", "\"a\"", ",", "```", "é", " ", "[[", "\"arguments\"",
        ]), 0..40)) {
            let text = parts.concat();
            let found = calls(&text);
            prop_assert!(found.len() <= text.matches(OPEN).count());
            prop_assert_eq!(found.is_empty(), !text.contains(OPEN));
        }
    }
}

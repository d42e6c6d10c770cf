//! Reads numbers from a judge's answer, which should be a JSON object.
//!
//! It may stand in a fence, after reasoning or between words. It may have Python's spelling,
//! numbers as text, or LaTeX's backslashes and quotes in its texts. If there is no object, words
//! that agree are read ([`words`]). A missing number is an error and is never guessed. Judges read
//! these errors.

use serde_json::{Map, Value};

use super::words;

/// The most places that are tried as the beginning of an object, and the most bytes that are
/// searched. Both count from the end of the text.
const TRIED: usize = 256;
const LOOKED_AT: usize = 64 << 10;

/// Returns the numbers of these names, in their order, from the last object that has them all. For
/// a single name, a bare number also counts.
pub(super) fn numbers(said: &str, names: &[&str]) -> Result<Vec<f64>, String> {
    // Open reasoning is not an answer.
    if said.rfind("<think>") > said.rfind("</think>") {
        return Err("its reasoning does not end: give it more tokens (judge.max_tokens)".into());
    }
    let said = said.rsplit("</think>").next().unwrap_or(said).trim();
    if let ([_], Ok(number)) = (names, said.parse::<f64>())
        && number.is_finite()
    {
        return Ok(vec![number]);
    }
    if said.is_empty() {
        return Err(
            "it said nothing, or nothing outside of its reasoning: give it more tokens (judge.max_tokens)".into(),
        );
    }
    let found = objects(said);
    let last = found.iter().rev().find_map(|object| of(object, names));
    let in_words = |name: &&str| words::agreed(end_of(said), name, names, words::number);
    last.or_else(|| names.iter().map(in_words).collect()).ok_or_else(|| {
        let head: String = said.chars().take(200).collect();
        format!("it has no JSON object with numbers for {}: {head:?}", names.join(", "))
    })
}

/// Returns the part of a text that is searched.
pub(crate) fn end_of(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(LOOKED_AT))..]
}

fn of(object: &Map<String, Value>, names: &[&str]) -> Option<Vec<f64>> {
    names.iter().map(|name| number(field(object, name)?)).collect()
}

/// Returns a field with this name, or with this name in another case.
fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let same = |(key, value): (&String, &'a Value)| key.trim().eq_ignore_ascii_case(name).then_some(value);
    object.get(name).or_else(|| object.iter().find_map(same))
}

fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

/// Returns every outermost object near the end of a text, in order.
pub(crate) fn objects(text: &str) -> Vec<Map<String, Value>> {
    let text = end_of(text);
    let mut begins: Vec<usize> = text.rmatch_indices('{').take(TRIED).map(|(at, _)| at).collect();
    begins.reverse();
    let mut found = Vec::new();
    let mut at = 0;
    for begin in begins {
        // Inside an object that was read.
        if begin < at {
            continue;
        }
        if let Some((object, length)) = object(&text[begin..]) {
            found.push(object);
            at = begin + length;
        }
    }
    found
}

/// Returns the object at the beginning of a text, and its length.
fn object(text: &str) -> Option<(Map<String, Value>, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(Value::Object(object))) = values.next() {
        return Some((object, values.byte_offset()));
    }
    let (mended, length) = to_json(text)?;
    match serde_json::from_str(&mended) {
        Ok(Value::Object(object)) => Some((object, length)),
        _ => None,
    }
}

/// Rewrites the object at the beginning of a text in JSON's spelling: quotes, escapes, constants,
/// no comma before an end. Returns `None` if the object does not end.
fn to_json(text: &str) -> Option<(String, usize)> {
    let mut mended = String::new();
    let mut depth = 0usize;
    let mut quote = None;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let rest = &text[at + letter.len_utf8()..];
        match (quote, letter) {
            (Some(_), '\\') => {
                let (_, escaped) = letters.next()?;
                mended.push_str(escape(escaped, rest));
                mended.push(escaped);
            }
            (Some(open), letter) if letter == open && ends_here(rest) => {
                quote = None;
                mended.push('"');
            }
            (Some(_), '"') => mended.push_str("\\\""),
            (Some(_), '\n') => mended.push_str("\\n"),
            (Some(_), letter) => mended.push(letter),
            (None, '"' | '\'') => {
                quote = Some(letter);
                mended.push('"');
            }
            (None, ',') if rest.trim_start().starts_with(['}', ']']) => {}
            (None, '{' | '[') => {
                depth += 1;
                mended.push(letter);
            }
            (None, '}' | ']') => {
                depth = depth.checked_sub(1)?;
                mended.push(letter);
                if depth == 0 {
                    return Some((mended, at + 1));
                }
            }
            (None, letter) if letter.is_ascii_uppercase() => {
                let (python, json) = [("True", "true"), ("False", "false"), ("None", "null")]
                    .into_iter()
                    .find(|(python, _)| text[at..].starts_with(python))?;
                mended.push_str(json);
                letters.nth(python.len().checked_sub(2)?)?;
            }
            (None, letter) => mended.push(letter),
        }
    }
    None
}

/// Returns the text to put before a letter after a backslash, so that JSON reads it. LaTeX has
/// backslashes too. `rest` begins with the letter.
fn escape(escaped: char, rest: &str) -> &'static str {
    let hex = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    match escaped {
        '\'' => "",
        '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => "\\",
        'u' if rest.get(1..5).is_some_and(hex) => "\\",
        _ => "\\\\",
    }
}

/// Returns true if a quote ends its text, judged by what follows it. An apostrophe and a quote
/// inside the text do not. After a comma, another value or name must follow.
fn ends_here(rest: &str) -> bool {
    let rest = rest.trim_start();
    let Some(next) = rest.strip_prefix(',').map(str::trim_start) else {
        return rest.is_empty() || rest.starts_with(['}', ']', ':']);
    };
    let constants = ["true", "false", "null", "True", "False", "None"];
    let word = |constant: &str| {
        next.strip_prefix(constant)
            .is_some_and(|rest| rest.trim_start().starts_with([',', '}', ']']))
    };
    next.starts_with(['"', '\'', '{', '[', '}', ']', '-'])
        || next.starts_with(|letter: char| letter.is_ascii_digit())
        || constants.into_iter().any(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn objects_that_are_almost_json_are_read() {
        for said in [
            r#"{"score": 7}"#,
            "```json\n{\"score\": 7}\n```",
            r#"Sure! {"score": 7} I hope that helps. {smile}"#,
            r#"{'score': 7, 'why': 'it isn't \'short\'', 'ok': True, 'none': None}"#,
            r#"{"score": " 7 "}"#,
            r#"{"Score": 7,}"#,
            r#"<think>{"score": 1}</think> {"score": 7}"#,
            r#"first {"score": 2}, no: {"score": 7}"#,
            r#"{"detail": {"score": 1}, "score": 7.0}"#,
            "{\"why\": \"two\nlines\", \"score\": 7}",
            r#"{"reason": "\sqrt{2} is right", "score": 7}"#,
            r#"{"reason": "\( x \le \frac12 \) \u00e9 \underline{x}", "score": 7}"#,
            r#"{"reason": "he said "hi" there", "score": 7}"#,
            r#"{"reason": "he said "no", and then "yes"", "score": 7}"#,
            r#"{"score": 7, "reason": "it "holds""}"#,
            "{score: 7}",
            "The answer is short.\n**Score:** 7",
            "Score = 7.0.",
            "score: 7\nyes, score: 7",
            "My final score: 7",
            "Style score: 3 {\"score\": 7}",
            "7",
            "  7.0\n",
        ] {
            assert_eq!(numbers(said, &["score"]), Ok(vec![7.0]), "{said}");
        }
        assert_eq!(numbers(r#"{"b": 2, "a": 1}"#, &["a", "b"]), Ok(vec![1.0, 2.0]));
    }

    #[test]
    fn answers_without_a_number_are_errors() {
        for said in [
            "",
            "good",
            "{",
            "{\"score\":",
            r#"{"score": null}"#,
            r#"{"score": "high"}"#,
            r#"{"score": "7/10"}"#,
            r#"{"score": NaN}"#,
            "NaN",
            r#"{"mark": 7}"#,
            r#"{"score": {"value": 7}}"#,
            r#"<think>{"score": 7}</think>"#,
            "score: 7/10",
            "score: 7-8",
            "score: 7 to 8",
            "score: 7 of the 9 points",
            "underscore: 7",
            "the score was good: 7",
            "score: 7\nscore: none",
            "score: 1.2.3",
            "score: -",
            "Style score: 7",
            "Style score: 7\nScore: 8",
            "score: 3\nno, score: 7",
            r#"{"mark": 1} style score: 7"#,
        ] {
            assert!(numbers(said, &["score"]).is_err(), "{said}");
        }
        assert!(numbers("7", &["a", "b"]).is_err());
        assert!(numbers("a: 7", &["a", "b"]).is_err());
        assert_eq!(numbers("b: 2, a: 1", &["a", "b"]), Ok(vec![1.0, 2.0]));
    }

    /// An agent's answer is read without its reasoning.
    #[test]
    fn a_judge_that_says_nothing_may_need_more_tokens() {
        for said in ["", " \n", "<think>so", "<think>so</think>", "so</think>\n"] {
            let why = numbers(said, &["score"]).unwrap_err();
            assert!(why.contains("judge.max_tokens"), "{said}: {why}");
        }
    }

    proptest! {
        /// Valid JSON is read as JSON, whatever its texts hold.
        #[test]
        fn json_is_read_as_json(why in "[ -~\n\\PC]{0,40}", score in -1000..1000_i32, first in any::<bool>()) {
            let (why, score) = (serde_json::json!(why), f64::from(score));
            let said = match first {
                true => format!("{{\"score\": {score}, \"why\": {why}}}"),
                false => format!("{{\"why\": {why}, \"score\": {score}}}"),
            };
            prop_assert_eq!(numbers(&said, &["score"]), Ok(vec![score]));
        }

        #[test]
        fn any_text_is_answered(said in "[ -~\n\\PC]{0,80}", braces in "[\\{\\}'\"\\[\\],:a-zT\\\\]{0,40}") {
            let _ = numbers(&said, &["score"]);
            let _ = numbers(&braces, &["score"]);
        }
    }
}

//! The form of questions and answers, for every transport.

use broker::codec::{parse_python_json, strict_json};

/// The longest answer, in bytes.
pub(super) const LONGEST: u64 = 1 << 20;

/// Puts an id before the other fields of the question.
pub(crate) fn with_id(question: &str, id: u64) -> Result<String, String> {
    let rest = question.strip_prefix('{').ok_or("the question is not a JSON object")?;
    Ok(format!("{{\"id\":{id},{rest}"))
}

/// Returns the answer as strict JSON, if it is JSON of Python and has the id of the question.
pub(super) fn answer_to(id: u64, answer: Vec<u8>) -> Result<String, String> {
    let answer = String::from_utf8(answer).map_err(|_| "its answer is not UTF-8".to_owned())?;
    match parse_python_json(&answer) {
        Ok(value) if value.get("id").and_then(serde_json::Value::as_u64) == Some(id) => {
            Ok(strict_json(&answer).into_owned())
        }
        Ok(_) => Err(format!(
            "its answer does not have the id of the question: {}",
            head(&answer)
        )),
        Err(error) => Err(format!("its answer is not JSON ({error}): {}", head(&answer))),
    }
}

fn head(text: &str) -> String {
    text.trim().chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::answer_to;

    #[test]
    fn an_answer_of_python_is_read_as_strict_json() {
        for (answer, read) in [
            (r#"{"id":7,"reward":1.0}"#, Ok(r#"{"id":7,"reward":1.0}"#)),
            (
                r#"{"id":7,"reward":1.0,"note":"cut \ud83d"}"#,
                Ok(r#"{"id":7,"reward":1.0,"note":"cut \ufffd"}"#),
            ),
            (
                r#"{"id":7,"reward":1.0,"loss":NaN}"#,
                Ok(r#"{"id":7,"reward":1.0,"loss":null}"#),
            ),
            (r#"{"id":8,"reward":1.0}"#, Err("does not have the id")),
            (r#"{"id":7,"#, Err("is not JSON")),
        ] {
            let found = answer_to(7, answer.as_bytes().to_vec());
            match (found, read) {
                (Ok(found), Ok(read)) => assert_eq!(found, read),
                (Err(found), Err(why)) => assert!(found.contains(why), "{found}"),
                (found, _) => panic!("{answer}: {found:?}"),
            }
        }
    }
}

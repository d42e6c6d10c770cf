//! The form of questions and answers, for every transport.

/// The longest answer, in bytes.
pub(super) const LONGEST: u64 = 1 << 20;

/// Puts an id before the other fields of the question.
pub(crate) fn with_id(question: &str, id: u64) -> Result<String, String> {
    let rest = question.strip_prefix('{').ok_or("the question is not a JSON object")?;
    Ok(format!("{{\"id\":{id},{rest}"))
}

/// Returns the answer as text, if it is JSON and has the id of the question.
pub(super) fn answer_to(id: u64, answer: Vec<u8>) -> Result<String, String> {
    let answer = String::from_utf8(answer).map_err(|_| "its answer is not UTF-8".to_owned())?;
    match serde_json::from_str::<serde_json::Value>(&answer) {
        Ok(value) if value.get("id").and_then(serde_json::Value::as_u64) == Some(id) => Ok(answer),
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

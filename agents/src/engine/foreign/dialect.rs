//! The request fields that a model behind OpenAI's interface rejects or spells differently.
//!
//! A server names such a field in its error. The call is then repeated without the field, or with
//! its other spelling, and later calls of this process begin that way.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// A field and its replacement: the other spelling, or nothing if the model's own value applies.
type Change = (&'static str, Option<&'static str>);

/// The fields that may change. A limit is never dropped, only respelled.
const CHANGES: [Change; 5] = [
    ("max_tokens", Some("max_completion_tokens")),
    ("temperature", None),
    ("top_p", None),
    ("seed", None),
    // The caller cuts the text itself.
    ("stop", None),
];
const CODES: [&str; 3] = ["unsupported_parameter", "unsupported_value", "unknown_parameter"];
/// Words of errors about the field itself.
const UNSUPPORTED: [&str; 8] = [
    "support",
    "unknown",
    "unrecognized",
    "unexpected",
    "not permitted",
    "not allowed",
    "deprecated",
    "not available",
];
/// Words of errors about a value that is out of bounds: the operator must change it.
const BOUNDS: [&str; 9] = [
    "between",
    "at most",
    "at least",
    "too large",
    "too small",
    "less than",
    "greater than",
    "maximum",
    "minimum",
];

/// The changes that servers need, by URL and model.
type Learned = HashMap<(String, String), Vec<Change>>;

/// The changes that were accepted in this process.
static LEARNED: Mutex<Option<Learned>> = Mutex::new(None);

/// A request to a server, in the form that the server accepts as far as that is known.
pub(crate) struct Spoken {
    key: (String, String),
    changes: Vec<Change>,
    body: Value,
}

impl Spoken {
    /// Changes `body` as the server at `url` needs it for this model.
    pub(crate) fn new(url: &str, model: &str, body: &Value) -> Self {
        let key = (url.to_owned(), model.to_owned());
        let learned = LEARNED.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = learned.as_ref().and_then(|all| all.get(&key)).cloned();
        drop(learned);
        let mut spoken = Self {
            key,
            changes: Vec::new(),
            body: body.clone(),
        };
        for change in changes.unwrap_or_default() {
            spoken.change(change);
        }
        spoken
    }

    pub(crate) fn body(&self) -> &Value {
        &self.body
    }

    /// Changes the field that a rejection names. Returns false if it names none that may change.
    pub(crate) fn adapt(&mut self, status: u16, answer: &str) -> bool {
        let change = [400, 422]
            .contains(&status)
            .then(|| named(&self.body, answer))
            .flatten();
        change.is_some_and(|change| {
            self.change(change);
            true
        })
    }

    /// Remembers the changes of an accepted request, for the life of this process.
    pub(crate) fn accepted(&self) {
        let mut learned = LEARNED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = learned.get_or_insert_default().entry(self.key.clone()).or_default();
        for change in self.changes.iter().filter(|change| !known.contains(change)) {
            let (field, spelling) = change;
            match spelling {
                Some(spelling) => tracing::info!(
                    url = self.key.0,
                    model = self.key.1,
                    "the model takes {spelling} instead of {field}"
                ),
                None => tracing::warn!(
                    url = self.key.0,
                    model = self.key.1,
                    "the model takes no {field}: it is left out, and the model's own value applies"
                ),
            }
        }
        known.extend(
            self.changes
                .iter()
                .filter(|change| !known.contains(change))
                .copied()
                .collect::<Vec<_>>(),
        );
    }

    fn change(&mut self, change: Change) {
        let Some(fields) = self.body.as_object_mut() else {
            return;
        };
        let (field, spelling) = change;
        if let Some(value) = fields.remove(field) {
            fields.extend(spelling.map(|spelling| (spelling.to_owned(), value)));
            self.changes.push(change);
        }
    }
}

/// Returns the change for the sent field that an error answer names.
fn named(sent: &Value, answer: &str) -> Option<Change> {
    let value: Value = serde_json::from_str(answer).unwrap_or_default();
    let said = |field: &str| {
        let places = [
            format!("/error/{field}"),
            format!("/{field}"),
            format!("/detail/0/{field}"),
        ];
        places.iter().find_map(|place| value.pointer(place)?.as_str())
    };
    let known = || CHANGES.into_iter().filter(|(field, _)| sent.get(field).is_some());
    let message = said("message").or_else(|| said("msg")).unwrap_or(answer).to_lowercase();
    let coded = said("code").is_some_and(|code| CODES.contains(&code));
    let out_of_bounds = BOUNDS.iter().any(|words| message.contains(words));
    let unsupported = coded || UNSUPPORTED.iter().any(|words| message.contains(words));
    if out_of_bounds && !unsupported {
        return None;
    }
    // `detail` is pydantic's list of problems, with the field's place.
    let place = value.pointer("/detail/0/loc").map(Value::to_string).unwrap_or_default();
    let param = said("param").map_or(place, str::to_owned);
    let in_param = known().find(|(field, _)| names(&param, field).is_some());
    let in_message = || {
        let places = known().filter_map(|change| Some((names(&message, change.0)?, change)));
        places.min_by_key(|(at, _)| *at).map(|(_, change)| change)
    };
    in_param.or_else(in_message)
}

/// Returns the position of a field's name as a whole word.
fn names(text: &str, field: &str) -> Option<usize> {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(field)
        .map(|(at, _)| at)
        .find(|at| !part(text[..*at].chars().next_back()) && !part(text[at + field.len()..].chars().next()))
}

/// Returns the text of a chat completion, which some servers split into parts. A refusal without
/// text is empty.
///
/// # Errors
/// The answer is an error with a good status, or has no text.
pub(crate) fn text_of(reply: &Value) -> Result<String, String> {
    let content = reply.pointer("/choices/0/message/content");
    let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
    match (content, reply.pointer("/error/message").and_then(Value::as_str)) {
        (Some(Value::String(text)), _) => Ok(text.clone()),
        (Some(Value::Null), _) => Ok(String::new()),
        (Some(Value::Array(parts)), _) => Ok(parts.iter().filter_map(text).collect()),
        (_, Some(error)) => Err(format!("it is an error: {error}")),
        _ => Err("it has no choices[0].message.content".into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_read_in_every_form_and_errors_are_named() {
        let reply = |content: Value| json!({"choices": [{"message": {"content": content}}]});
        assert_eq!(text_of(&reply(json!("red"))), Ok("red".into()));
        assert_eq!(text_of(&reply(Value::Null)), Ok(String::new()));
        let parts = json!([{"type": "text", "text": "re"}, {"type": "refusal"}, {"type": "text", "text": "d"}]);
        assert_eq!(text_of(&reply(parts)), Ok("red".into()));
        let error = text_of(&json!({"error": {"message": "Provider returned error"}})).unwrap_err();
        assert!(error.contains("Provider returned error"), "{error}");
        assert!(text_of(&json!({"choices": []})).is_err());
    }

    fn sent() -> Value {
        json!({"model": "m", "max_tokens": 9, "temperature": 0.0, "top_p": 0.5, "seed": 1, "stop": ["x"]})
    }

    fn error(message: &str, param: Option<&str>, code: Option<&str>) -> String {
        json!({"error": {"message": message, "param": param, "code": code}}).to_string()
    }

    #[test]
    fn a_rejected_field_is_found_in_every_form_of_error() {
        let of = |answer: &str| named(&sent(), answer).map(|(field, _)| field);
        for (answer, field) in [
            (
                error("use the other", Some("max_tokens"), Some("unsupported_parameter")),
                "max_tokens",
            ),
            (
                error(
                    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                    None,
                    None,
                ),
                "max_tokens",
            ),
            (
                error(
                    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
                    Some("temperature"),
                    Some("unsupported_value"),
                ),
                "temperature",
            ),
            (error("no", Some("seed"), None), "seed"),
            (error("Unsupported parameter: 'stop'", None, None), "stop"),
            (
                error(
                    "`temperature` and `top_p` cannot both be specified for this model",
                    None,
                    None,
                ),
                "temperature",
            ),
            (
                json!({"detail": [{"loc": ["body", "top_p"], "msg": "Extra inputs are not permitted"}]}).to_string(),
                "top_p",
            ),
            (json!({"message": "unknown field: seed"}).to_string(), "seed"),
            ("use max_completion_tokens, not max_tokens".to_owned(), "max_tokens"),
        ] {
            assert_eq!(of(&answer), Some(field), "{answer}");
        }
    }

    #[test]
    fn a_value_out_of_bounds_changes_no_field() {
        for answer in [
            error(
                "max_tokens is too large: 100000. This model takes at most 16384.",
                Some("max_tokens"),
                None,
            ),
            error(
                "temperature must be between 0 and 2",
                Some("temperature"),
                Some("invalid_value"),
            ),
            error(
                "This model's maximum context length is 8192 tokens, and max_tokens is 9000",
                None,
                None,
            ),
            error("the messages are empty", Some("messages"), None),
            error(
                "max_completion_tokens is no number",
                Some("max_completion_tokens"),
                None,
            ),
        ] {
            assert_eq!(named(&sent(), &answer), None, "{answer}");
        }
        let mut spoken = Spoken::new("u", "bounds", &sent());
        let refused = error("no", Some("seed"), Some("unsupported_parameter"));
        assert!(!spoken.adapt(500, &refused) && !spoken.adapt(200, &refused));
        assert!(
            spoken.adapt(400, &refused) && !spoken.adapt(400, &refused),
            "each field changes once"
        );
    }

    #[test]
    fn changes_are_kept_per_model_once_a_request_is_accepted() {
        let refused = error("no", Some("max_tokens"), Some("unsupported_parameter"));
        let mut spoken = Spoken::new("u", "kept", &sent());
        assert!(spoken.adapt(400, &refused));
        assert_eq!(Spoken::new("u", "kept", &sent()).body(), &sent(), "not accepted yet");
        spoken.accepted();
        let body = Spoken::new("u", "kept", &sent()).body().clone();
        assert_eq!(
            (&body["max_tokens"], &body["max_completion_tokens"]),
            (&Value::Null, &json!(9))
        );
        assert_eq!(Spoken::new("u", "other", &sent()).body(), &sent());
    }
}

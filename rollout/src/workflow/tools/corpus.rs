//! The tools of a corpus of documents, `search` and `visit`, and their arguments.

use serde::Deserialize;
use serde_json::json;

use super::Spec;

/// Documents that a search returns by default.
const TOP: usize = 5;

/// Arguments of `search`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Search {
    pub query: String,
    #[serde(default = "top")]
    pub top: usize,
}

/// Arguments of `visit`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Visit {
    pub id: String,
    /// Counted from 1.
    #[serde(default = "first")]
    pub page: usize,
}

fn top() -> usize {
    TOP
}
fn first() -> usize {
    1
}

/// Returns the tool of that name, if a corpus has it.
pub(super) fn spec(name: &str) -> Option<Result<Spec, String>> {
    let (description, parameters) = match name {
        "search" => (
            "Searches the documents. Answers with the ids, titles and parts of those that fit best.",
            json!({"type": "object", "additionalProperties": false, "required": ["query"], "properties": {
                "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "Words to look for."},
                "top": {"type": "integer", "minimum": 1, "maximum": 20, "description": "How many documents to name; 5 if not given."},
            }}),
        ),
        "visit" => (
            "Reads a document, page by page.",
            json!({"type": "object", "additionalProperties": false, "required": ["id"], "properties": {
                "id": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "The document's id, as search names it."},
                "page": {"type": "integer", "minimum": 1, "description": "Counts from 1; the first if not given."},
            }}),
        ),
        _ => return None,
    };
    Some(Spec::new(name, description, parameters))
}

//! What a tool is to a model: a name, a description and the arguments that it takes.

use jsonschema::Validator;
use serde_json::{Value, json};

/// Faults of one call's arguments that are told, and how long each is at most.
const FAULTS: usize = 3;
const LONGEST: usize = 200;

/// A tool that can be called.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    description: String,
    parameters: Value,
    validator: Validator,
}

impl Spec {
    /// `parameters` is a JSON Schema of an object. An error says what is wrong with it.
    pub(crate) fn new(name: &str, description: &str, parameters: Value) -> Result<Self, String> {
        let validator = jsonschema::validator_for(&parameters)
            .map_err(|error| format!("is no JSON Schema: {}", short(&error.to_string())))?;
        Ok(Self {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters,
            validator,
        })
    }

    /// As chat templates take it: Hugging Face's convention, which is OpenAI's.
    pub(crate) fn listed(&self) -> Value {
        json!({"type": "function", "function": {
            "name": self.name, "description": self.description, "parameters": self.parameters,
        }})
    }

    /// Why these arguments are not what it takes.
    pub(crate) fn refuse(&self, arguments: &Value) -> Option<String> {
        let faults: Vec<String> = self
            .validator
            .iter_errors(arguments)
            .take(FAULTS)
            .map(|error| short(&error.to_string()))
            .collect();
        (!faults.is_empty()).then(|| format!("{} does not take these arguments: {}", self.name, faults.join("; ")))
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_held_to_the_schema_and_faults_are_short() {
        let schema = json!({"type": "object", "required": ["query"], "additionalProperties": false,
            "properties": {"query": {"type": "string", "minLength": 1}, "top": {"type": "integer", "maximum": 20}}});
        let spec = Spec::new("search", "Finds.", schema.clone()).unwrap();
        assert_eq!(spec.refuse(&json!({"query": "x", "top": 3})), None);
        for (bad, says) in [
            (json!({}), "query"),
            (json!({"query": 5}), "string"),
            (json!({"query": "x", "top": 21}), "20"),
            (json!({"query": "x", "page": 1}), "page"),
            (json!([1]), "object"),
            (json!({"query": vec!["y"; 9000]}), "..."),
        ] {
            let said = spec.refuse(&bad).unwrap();
            assert!(said.contains(says) && said.len() < 1000, "{said}");
        }
        assert_eq!(spec.listed()["function"]["parameters"], schema);
    }

    #[test]
    fn what_is_no_schema_is_refused_and_nothing_is_fetched() {
        for bad in [json!({"type": 5}), json!({"$ref": "http://127.0.0.1:1/schema.json"})] {
            let error = Spec::new("search", "Finds.", bad).unwrap_err();
            assert!(error.starts_with("is no JSON Schema"), "{error}");
        }
    }
}

//! A tool as a model sees it: its name, its description and the arguments that it takes.

use jsonschema::Validator;
use serde_json::{Map, Value, json};

/// The most faults that are reported for one call's arguments.
const MAX_FAULTS: usize = 3;
/// The most characters reported of each fault, which may quote a long value.
const MAX_FAULT_CHARS: usize = 200;

/// The description of a tool, and the check of the arguments of its calls.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    description: String,
    parameters: Value,
    validator: Validator,
    /// Validates an incomplete set of arguments: the schema without its required properties.
    partial: Validator,
}

impl Spec {
    /// Makes the description. `parameters` is the JSON Schema of the arguments. The error says why
    /// it is not a valid schema.
    pub(crate) fn new(name: &str, description: &str, parameters: Value) -> Result<Self, String> {
        let mut incomplete = parameters.clone();
        if let Some(keywords) = incomplete.as_object_mut() {
            keywords.retain(|key, _| !["required", "minProperties"].contains(&key.as_str()));
        }
        let compiled = |schema: &Value| {
            jsonschema::validator_for(schema)
                .map_err(|error| format!("is not a valid JSON Schema: {}", shortened(&error.to_string())))
        };
        let (validator, partial) = (compiled(&parameters)?, compiled(&incomplete)?);
        Ok(Self {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters,
            validator,
            partial,
        })
    }

    /// Returns the tool in the form that chat templates take, which Hugging Face and OpenAI share.
    /// Leaves out the arguments that the task sets (`bound`).
    pub(crate) fn listed(&self, bound: Option<&Map<String, Value>>) -> Value {
        let is_free = |key: &str| !bound.is_some_and(|bound| bound.contains_key(key));
        let mut parameters = self.parameters.clone();
        if let Some(Value::Object(properties)) = parameters.get_mut("properties") {
            properties.retain(|key, _| is_free(key));
        }
        if let Some(Value::Array(required)) = parameters.get_mut("required") {
            required.retain(|key| key.as_str().is_none_or(is_free));
        }
        json!({"type": "function", "function": {
            "name": self.name, "description": self.description, "parameters": parameters,
        }})
    }

    /// Returns why these arguments do not match the tool's schema, or `None` if they match.
    pub(crate) fn refuse(&self, arguments: &Value) -> Option<String> {
        let faults = faults(&self.validator, arguments)?;
        Some(format!("{} does not take these arguments: {faults}", self.name))
    }

    /// Returns the arguments of a call: those in the agent's turn (`said`) plus those that the task
    /// sets (`bound`). The error says why the call is rejected.
    pub(crate) fn arguments(&self, said: &Value, bound: Option<&Map<String, Value>>) -> Result<Value, String> {
        let mut arguments = said.clone();
        let (Some(fields), Some(bound)) = (arguments.as_object_mut(), bound) else {
            return self.refuse(&arguments).map_or(Ok(arguments), Err);
        };
        if let Some(key) = bound.keys().find(|key| fields.contains_key(*key)) {
            return Err(format!("the task has set {key:?} of {}: leave it out", self.name));
        }
        fields.extend(bound.clone());
        if self.validator.is_valid(&arguments) {
            return Ok(arguments);
        }
        Err(self.refuse_said(said, bound))
    }

    /// Explains to the agent why its arguments plus the task's bound ones do not match the tool's
    /// schema. It reports only faults of the agent's own arguments, because faults quote values and
    /// the agent must not see bound values.
    fn refuse_said(&self, said: &Value, bound: &Map<String, Value>) -> String {
        let name = &self.name;
        if let Some(faults) = faults(&self.partial, said) {
            return format!("{name} does not take these arguments: {faults}");
        }
        let has = |key: &str| bound.contains_key(key) || said.get(key).is_some();
        let required = self.parameters.get("required").and_then(Value::as_array);
        let mut required = required.into_iter().flatten().filter_map(Value::as_str);
        match required.find(|key| !has(key)) {
            Some(key) => format!("{name} does not take these arguments: {key:?} is a required property"),
            None => format!("{name} does not take these arguments together with those that the task has set"),
        }
    }

    /// Returns why a task cannot bind these arguments, or `None` if it can.
    pub(crate) fn refuse_bound(&self, bound: &Map<String, Value>) -> Option<String> {
        let properties = self.parameters.get("properties").and_then(Value::as_object);
        let names: Vec<&str> = properties.into_iter().flat_map(Map::keys).map(String::as_str).collect();
        if let Some(key) = bound.keys().find(|key| !names.contains(&key.as_str())) {
            let known = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            return Some(format!("{} has no argument {key:?}; it has {known}", self.name));
        }
        let faults = faults(&self.partial, &Value::Object(bound.clone()))?;
        Some(format!("{} does not take the bound arguments: {faults}", self.name))
    }
}

/// Returns the first faults of a value in one line, or `None` if it has none.
fn faults(validator: &Validator, value: &Value) -> Option<String> {
    let errors = validator.iter_errors(value).take(MAX_FAULTS);
    let faults: Vec<String> = errors.map(|error| shortened(&error.to_string())).collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_FAULT_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_must_match_the_schema_and_faults_are_short() {
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
        assert_eq!(spec.listed(None)["function"]["parameters"], schema);
    }

    #[test]
    fn bound_arguments_are_hidden_and_must_match_the_schema() {
        let schema = json!({"type": "object", "required": ["query", "corpus"], "additionalProperties": false, "properties": {
            "query": {"type": "string"}, "corpus": {"$ref": "#/$defs/corpus"}}, "$defs": {"corpus": {"type": "string", "maxLength": 8}}});
        let spec = Spec::new("search", "Finds.", schema).unwrap();
        let bound = |value: Value| value.as_object().unwrap().clone();
        let case = bound(json!({"corpus": "case-17"}));
        assert_eq!(spec.refuse_bound(&case), None);
        for (bad, says) in [
            (
                json!({"corpsu": "case-17"}),
                "no argument \"corpsu\"; it has query, corpus",
            ),
            (json!({"corpus": 17}), "string"),
            (json!({"corpus": "far too long"}), "8"),
        ] {
            let said = spec.refuse_bound(&bound(bad)).unwrap();
            assert!(said.contains(says), "{said}");
        }
        let listed = &spec.listed(Some(&case))["function"]["parameters"];
        assert_eq!(listed["properties"], json!({"query": {"type": "string"}}));
        assert_eq!(listed["required"], json!(["query"]));

        let call = |said: Value| spec.arguments(&said, Some(&case));
        assert_eq!(
            call(json!({"query": "x"})),
            Ok(json!({"query": "x", "corpus": "case-17"}))
        );
        let other = call(json!({"query": "x", "corpus": "case-18"})).unwrap_err();
        assert!(
            other.contains("set \"corpus\" of search") && !other.contains("case-17"),
            "{other}"
        );
        assert!(call(json!({})).unwrap_err().contains("query"));
        assert!(call(json!("x")).unwrap_err().contains("object"));
        assert!(
            spec.arguments(&json!({"query": "x"}), None)
                .unwrap_err()
                .contains("corpus")
        );
    }

    #[test]
    fn faults_do_not_show_bound_values_to_the_agent() {
        let schema = json!({"type": "object", "required": ["query", "corpus"], "maxProperties": 2, "properties": {
            "query": {"type": "string"}, "top": {"type": "integer"}, "corpus": {"type": "string"}}});
        let spec = Spec::new("search", "Finds.", schema).unwrap();
        let case = json!({"corpus": "case-17"});
        let refused = |said: Value| spec.arguments(&said, case.as_object()).unwrap_err();
        for (said, says) in [
            (json!({"query": 5}), "string"),
            (
                json!({"query": "x", "top": 3}),
                "together with those that the task has set",
            ),
            (json!({"top": 3}), "\"query\" is a required property"),
        ] {
            let refused = refused(said);
            assert!(refused.contains(says) && !refused.contains("case-17"), "{refused}");
        }
    }

    #[test]
    fn an_invalid_or_remote_schema_is_rejected_without_fetching() {
        for bad in [json!({"type": 5}), json!({"$ref": "http://127.0.0.1:1/schema.json"})] {
            let error = Spec::new("search", "Finds.", bad).unwrap_err();
            assert!(error.starts_with("is not a valid JSON Schema"), "{error}");
        }
    }
}

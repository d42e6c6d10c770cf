//! JSON Schema (draft 2020-12) of users' files and messages, generated from the types that read and
//! write them.
//!
//! Three things are added here because the types do not have them. A question and its answer have
//! an `id`. A program may answer with an error. A configuration may have `[defaults.agent]`, which
//! is merged before the types read it.

use std::collections::BTreeSet;

use broker::protocol::task::Task;
use configs::RunConfig;
use rollout::workflow::program::{Decision, Grade, Question};
use rollout::workflow::tools::ToolQuestion;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::participant::ToolAnswer;
use crate::run_folder::logs::Transcript;

/// One published schema.
pub struct Published {
    /// Name for `dyad schema NAME`; the file is `configs/schema/NAME.json`.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    make: fn() -> Value,
}

/// All published schemas.
pub static ALL: [Published; 9] = [
    one(
        "task",
        "a published task: one JSON object per line, or one message",
        read::<Task>,
    ),
    one("config", "a run's TOML file", config),
    one("workflow-question", "a question to a workflow program", || {
        question("step")
    }),
    one("workflow-answer", "its answer", || answer(read::<Decision>())),
    one("grade-question", "a question to a grader program", || question("grade")),
    one("grade-answer", "its answer", || answer(read::<Grade>())),
    one("tool-question", "a question to a tool, a program or a server", || {
        with_id(written::<ToolQuestion>(), false)
    }),
    one("tool-answer", "its answer", || with_id(read::<ToolAnswer>(), false)),
    one(
        "transcript",
        "a line of transcripts/ and of dyad workflow test --json",
        written::<Transcript>,
    ),
];

const fn one(name: &'static str, about: &'static str, make: fn() -> Value) -> Published {
    Published { name, about, make }
}

impl Published {
    /// Returns the schema.
    #[must_use]
    pub fn schema(&self) -> Value {
        (self.make)()
    }

    /// Returns the schema as its file holds it.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{:#}\n", self.schema())
    }
}

/// Finds the published schema with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Published> {
    ALL.iter().find(|one| one.name == name)
}

/// Returns the schema of a type that dyad reads.
fn read<T: JsonSchema>() -> Value {
    value(
        SchemaSettings::draft2020_12()
            .for_deserialize()
            .into_generator()
            .into_root_schema_for::<T>(),
    )
}

/// Returns the schema of a type that dyad writes.
fn written<T: JsonSchema>() -> Value {
    value(
        SchemaSettings::draft2020_12()
            .for_serialize()
            .into_generator()
            .into_root_schema_for::<T>(),
    )
}

fn value(schema: Schema) -> Value {
    schema.to_value()
}

/// Returns one kind of question: that branch of the type, with its definitions.
fn question(kind: &str) -> Value {
    let mut schema = written::<Question>();
    let branches = schema
        .get_mut("oneOf")
        .and_then(Value::as_array_mut)
        .map(std::mem::take);
    let of_kind = |branch: &Value| branch.pointer("/properties/kind/const").and_then(Value::as_str) == Some(kind);
    let branch = branches.unwrap_or_default().into_iter().find(of_kind);
    let mut found = Map::new();
    let head = schema.as_object_mut().map(std::mem::take).unwrap_or_default();
    found.extend(
        head.into_iter()
            .filter(|(key, _)| key != "oneOf" && key != "description"),
    );
    found.extend(
        branch
            .and_then(|branch| branch.as_object().cloned())
            .unwrap_or_default(),
    );
    // Definitions come last.
    if let Some(definitions) = found.shift_remove("$defs") {
        found.insert("$defs".into(), definitions);
    }
    with_id(Value::Object(found), true)
}

/// Returns the schema of an answer with its question's id, or with an error instead.
fn answer(schema: Value) -> Value {
    let Value::Object(mut schema) = schema else {
        return schema;
    };
    let mut head = Map::new();
    for key in ["$schema", "title", "description"] {
        head.extend(schema.shift_remove(key).map(|value| (key.to_owned(), value)));
    }
    let definitions = schema.shift_remove("$defs");
    let answers = match schema.shift_remove("oneOf") {
        Some(Value::Array(branches)) => branches,
        _ => vec![Value::Object(schema)],
    };
    let failed = json!({
        "description": "The program has no answer. The question is asked again; without any answer the reward is missing, and never 0.",
        "type": "object",
        "properties": { "error": { "description": "The reason, for the log.", "not": { "type": "null" } } },
        "required": ["error"],
    });
    let branches = answers.into_iter().map(without_error).chain([failed]);
    head.insert("oneOf".into(), branches.map(|branch| with_id(branch, true)).collect());
    head.extend(definitions.map(|definitions| ("$defs".to_owned(), definitions)));
    Value::Object(head)
}

/// Lets an answer have an error field that is null.
fn without_error(mut schema: Value) -> Value {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert(
            "error".into(),
            json!({ "description": "Nothing failed.", "type": "null" }),
        );
    }
    schema
}

/// Adds the question's number, which its answer repeats. Tools that are servers are asked without a
/// number.
fn with_id(mut schema: Value, is_required: bool) -> Value {
    let id = json!({ "description": "The question's number; an answer repeats it.", "type": "integer", "minimum": 0 });
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.shift_insert(0, "id".into(), id);
    }
    if let (true, Some(object)) = (is_required, schema.as_object_mut())
        && let Value::Array(required) = object.entry("required").or_insert_with(|| json!([]))
    {
        required.insert(0, "id".into());
    }
    schema
}

/// Returns the schema of a written configuration. An agent may omit fields, because
/// `[defaults.agent]` may have them.
fn config() -> Value {
    let mut schema = read::<RunConfig>();
    let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) else {
        return schema;
    };
    let mut merged = BTreeSet::new();
    reach("AgentConfig", definitions, &mut merged);
    for name in &merged {
        if let Some(definition) = definitions.get_mut(name).and_then(Value::as_object_mut) {
            definition.shift_remove("required");
        }
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let defaults = json!({
            "description": "Merged under every agent before it is read.",
            "type": "object",
            "properties": { "agent": { "$ref": "#/$defs/AgentConfig" } },
            "additionalProperties": false,
        });
        properties.insert("defaults".into(), defaults);
    }
    schema
}

/// Collects the definitions that this one uses, including itself.
fn reach(name: &str, definitions: &Map<String, Value>, found: &mut BTreeSet<String>) {
    if !found.insert(name.to_owned()) {
        return;
    }
    let mut names = Vec::new();
    if let Some(definition) = definitions.get(name) {
        references(definition, &mut names);
    }
    for name in names {
        reach(&name, definitions, found);
    }
}

fn references(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let name = fields.get("$ref").and_then(Value::as_str);
            names.extend(name.and_then(|name| name.strip_prefix("#/$defs/")).map(str::to_owned));
            fields.values().for_each(|value| references(value, names));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;

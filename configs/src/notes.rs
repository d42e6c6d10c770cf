//! The meaning and the default of each key of a resolved configuration, from the schema of
//! [`RunConfig`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::RunConfig;
use crate::reference::{description, entries, properties, resolve, schema};

/// Describes a key of a configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct KeyNote {
    /// The text of the reference.
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// True if the value is not the default. A required key has no default and is not marked.
    pub changed: bool,
}

/// Returns the notes by dotted path. An entry of a list of tables has its place in the path, as in
/// `tasks.mix.0.weight`.
#[must_use]
pub fn of(config: &RunConfig) -> BTreeMap<String, KeyNote> {
    let schema = schema();
    let mut notes = Notes {
        definitions: schema.get("$defs").and_then(Value::as_object),
        found: BTreeMap::new(),
    };
    if let Ok(value) = serde_json::to_value(config) {
        notes.table("", &value, &schema, "");
    }
    notes.found
}

struct Notes<'a> {
    definitions: Option<&'a Map<String, Value>>,
    found: BTreeMap<String, KeyNote>,
}

impl<'a> Notes<'a> {
    /// Adds the keys of the table at `path`, which ends with a dot, and of the tables below it.
    /// Free keys have the table's `text`.
    fn table(&mut self, path: &str, table: &Value, node: &'a Value, text: &str) {
        let known = properties(node);
        for (key, value) in table.as_object().into_iter().flatten() {
            let path = format!("{path}{key}");
            match (known.iter().find(|(_, name, _)| name == key), entries(node)) {
                (Some((owner, _, property)), _) => self.key(&path, value, owner, property),
                (None, Some(entry)) => self.entry(&path, value, entry, text.to_owned()),
                (None, None) => self.free(path, text.to_owned()),
            }
        }
    }

    /// Adds a key that the reference has.
    fn key(&mut self, path: &str, value: &Value, owner: &Value, property: &'a Value) {
        let node = resolve(self.definitions, property).1;
        let text = [property, node, owner]
            .map(description)
            .into_iter()
            .find(|text| !text.is_empty());
        let text = text.unwrap_or_default();
        if self.below(path, value, node, &text) {
            return;
        }
        let required = owner.get("required").and_then(Value::as_array);
        let name = path.rsplit('.').next().unwrap_or(path);
        let is_required = required.is_some_and(|all| all.iter().any(|one| one == name));
        let default = property.get("default").filter(|default| !default.is_null()).cloned();
        let changed = !value.is_null() && !is_required && default.as_ref() != Some(value);
        self.found.insert(path.to_owned(), KeyNote { text, default, changed });
    }

    /// Adds a key that the user chose.
    fn entry(&mut self, path: &str, value: &Value, node: &'a Value, text: String) {
        if !self.below(path, value, resolve(self.definitions, node).1, &text) {
            self.free(path.to_owned(), text);
        }
    }

    fn free(&mut self, path: String, text: String) {
        let note = KeyNote {
            text,
            default: None,
            changed: true,
        };
        self.found.insert(path, note);
    }

    /// Adds a table, or a list of tables, and the keys below. Returns false for other values.
    fn below(&mut self, path: &str, value: &Value, node: &'a Value, text: &str) -> bool {
        let items = value.as_array().filter(|items| items.iter().any(Value::is_object));
        let places: Vec<(String, &Value, &Value)> = match (items, value.is_object()) {
            (Some(items), _) => {
                let node = resolve(self.definitions, &node["items"]).1;
                let at = |(at, item)| (format!("{path}.{at}"), item, node);
                items.iter().enumerate().map(at).collect()
            }
            (None, true) => vec![(path.to_owned(), value, node)],
            (None, false) => return false,
        };
        for (path, table, node) in places {
            let note = KeyNote {
                text: text.to_owned(),
                ..KeyNote::default()
            };
            self.found.insert(path.clone(), note);
            self.table(&format!("{path}."), table, node, text);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn notes(text: &str) -> BTreeMap<String, KeyNote> {
        of(&RunConfig::parse(text, Path::new("x.toml")).unwrap())
    }

    #[test]
    fn keys_have_the_text_of_the_reference_and_say_if_they_changed() {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("signal.toml")).unwrap();
        let seeds = text.replace("[run]", "[run]\nempty_groups = 7\nlease = \"15s\"");
        let found = notes(&seeds);
        let shown = |path: &str| {
            let note = &found[path];
            (note.default.clone(), note.changed)
        };
        assert!(found["run.empty_groups"].text.starts_with("Groups of own tasks"));
        assert_eq!(shown("run.empty_groups"), (Some(64.into()), true));
        assert_eq!(
            shown("run.lease"),
            (Some("15s".into()), false),
            "written as the default"
        );
        assert_eq!(shown("run.name"), (None, false), "required");
        assert_eq!(shown("workflow.roles.speaker"), (None, true), "an entry of a map");
        assert_eq!(shown("agents.a"), (None, false), "a table");
        let silent: Vec<&String> = found.keys().filter(|key| found[*key].text.is_empty()).collect();
        assert!(silent.is_empty(), "{silent:?}");
    }

    #[test]
    fn lists_of_tables_have_places_and_every_key_has_a_note() {
        let text = include_str!("check/everything.toml");
        let config: RunConfig = toml::from_str(text).unwrap();
        let found = of(&config);
        assert!(found["tasks.mix.0.weight"].text.len() > 10, "{found:?}");
        assert!(found.contains_key("workflow.process.timeout"));
    }
}

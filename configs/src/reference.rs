//! The reference of all keys, `configs/REFERENCE.md`, generated from the schema of [`RunConfig`].

use std::fmt::Write;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::RunConfig;
use crate::check::methods::METHODS;

const HEAD: &str = "# Reference of all keys

Generated from the types; do not edit. `DYAD_GOLDEN=write cargo test -p configs reference` writes it.

This page lists every key of a run's TOML file. `[defaults.agent]` has the keys of `agents.NAME` and is
merged under every agent. NAME and ROLE stand for names that you choose: 1 to 32 of a-z, 0-9, `-`
and `_`, beginning with a letter or digit. A key without a default is not set.

| type | example |
|---|---|
| duration | `\"250ms\"`, `\"30s\"`, `\"5m\"`, `\"2h\"` |
| size | `\"512\"`, `\"64 KiB\"`, `\"1 MiB\"`, `\"2 GiB\"` |
| device | `\"cpu\"`, `\"cuda:0\"` |
| date | `\"2026-11-23\"` |
";

/// Definitions that the page names and does not explain.
const NAMED: [(&str, &str); 6] = [
    ("HumanDuration", "duration"),
    ("ByteSize", "size"),
    ("DeviceName", "device"),
    ("Date", "date"),
    ("AgentName", "name of an agent"),
    ("RoleName", "name of a role"),
];

/// Returns the page as Markdown. The same types always give the same text.
#[must_use]
pub fn page() -> String {
    let schema = schema();
    let mut pages = Pages {
        definitions: schema.get("$defs").and_then(Value::as_object),
        text: HEAD.into(),
    };
    pages.section("", &schema);
    pages.text + &methods()
}

/// The page while it is written.
struct Pages<'a> {
    definitions: Option<&'a Map<String, Value>>,
    text: String,
}

/// A table of keys below another one: its path and its schema.
type Child<'a> = (String, &'a Value);

impl<'a> Pages<'a> {
    /// Writes the section of the table at `path`, then those of the tables below it.
    fn section(&mut self, path: &str, table: &'a Value) {
        let mut children = Vec::new();
        let mut rows = String::new();
        for (owner, key, property) in properties(table) {
            let below = if path.is_empty() {
                key.to_owned()
            } else {
                format!("{path}.{key}")
            };
            let values = self.values(property, &below, &mut children);
            let is_variant = !std::ptr::eq(owner, table);
            let texts = [property, if is_variant { owner } else { self.resolve(property).1 }].map(description);
            let text = texts.iter().find(|text| !text.is_empty());
            let (meaning, named) = split_default(text.map_or("", String::as_str));
            let default = default(owner, key, property, is_variant).or(named);
            let values = match default.as_deref() {
                Some(default) => format!("{}, {default}", values.trim_end_matches(':')),
                None => values,
            };
            row(&mut rows, &format!("`{key}`"), &values, &meaning);
            for (value, meaning) in self.variants(property) {
                row(&mut rows, "", &value, &meaning);
            }
        }
        let heading = if path.is_empty() {
            "The file".to_owned()
        } else {
            format!("`[{path}]`")
        };
        let about = description(table);
        let about = about.split_once("`: ").map_or(about.as_str(), |(_, rest)| rest);
        let _ = write!(self.text, "\n## {heading}\n\n{}\n\n", sentence(about));
        self.text.push_str("| key | type, default | meaning |\n|---|---|---|\n");
        self.text.push_str(&rows);
        for (path, child) in children {
            self.section(&path, child);
        }
    }

    fn resolve(&self, node: &'a Value) -> (Option<&'a str>, &'a Value) {
        resolve(self.definitions, node)
    }

    /// Returns the type or the values of a key. Tables below it are added to `children`.
    fn values(&self, node: &'a Value, path: &str, children: &mut Vec<Child<'a>>) -> String {
        let (name, node) = self.resolve(node);
        if let Some((_, named)) = NAMED.iter().find(|(known, _)| Some(*known) == name) {
            return (*named).to_owned();
        }
        if let Some(words) = node.get("enum").and_then(Value::as_array) {
            let words: Vec<String> = words.iter().filter(|word| !word.is_null()).map(code).collect();
            return words.join(", ");
        }
        if let Some(variants) = node.get("oneOf").and_then(Value::as_array) {
            if variants.iter().all(|variant| variant.get("properties").is_some()) {
                children.push((path.to_owned(), node));
                return "table with one of its keys".into();
            }
            return "one of:".into();
        }
        match kind(node) {
            "object" => self.object(node, path, children),
            "array" => match node.get("items") {
                Some(items) if kind(self.resolve(items).1) == "object" => {
                    children.push((format!("[{path}]"), self.resolve(items).1));
                    "list of tables".into()
                }
                Some(items) => match self.values(items, path, children).as_str() {
                    "one of:" => "list of:".into(),
                    values => format!("list of {values}"),
                },
                None => "list".into(),
            },
            "string" => "text".into(),
            "boolean" => "boolean".into(),
            other => other.into(),
        }
    }

    fn object(&self, node: &'a Value, path: &str, children: &mut Vec<Child<'a>>) -> String {
        if node.get("properties").is_some() {
            children.push((path.to_owned(), node));
            return "table".into();
        }
        let of_role = path.starts_with("workflow.") || path.ends_with("role_weights");
        let placeholder = if of_role && !path.ends_with("ROLE") {
            "ROLE"
        } else {
            "NAME"
        };
        match entries(node) {
            Some(value) => match self.values(value, &format!("{path}.{placeholder}"), children).as_str() {
                "table" => format!("tables by {placeholder}"),
                values => format!("{placeholder} = {values}"),
            },
            None => "table".into(),
        }
    }

    /// Returns the values of a choice with their meanings.
    fn variants(&self, node: &'a Value) -> Vec<(String, String)> {
        let (_, mut node) = self.resolve(node);
        for inner in ["items", "additionalProperties"] {
            node = node
                .get(inner)
                .filter(|inner| inner.is_object())
                .map_or(node, |inner| self.resolve(inner).1);
        }
        let pattern = node.get("patternProperties").and_then(Value::as_object);
        if let Some(value) = pattern.and_then(|patterns| patterns.values().next()) {
            node = self.resolve(value).1;
        }
        let all = node
            .get("oneOf")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        if all.iter().all(|variant| variant.get("properties").is_some()) {
            return Vec::new();
        }
        all.iter()
            .map(|variant| (self.variant(variant), description(variant)))
            .collect()
    }

    fn variant(&self, variant: &'a Value) -> String {
        match properties(variant).first() {
            Some((_, key, value)) => format!("`{{ {key} = ... }}`, {}", self.values(value, "", &mut Vec::new())),
            None => code(&variant["const"]),
        }
    }
}

/// Follows a reference, and an option to its value. Returns the name of the definition, if it is
/// one.
pub(crate) fn resolve<'a>(
    definitions: Option<&'a Map<String, Value>>,
    node: &'a Value,
) -> (Option<&'a str>, &'a Value) {
    if let Some(name) = node.get("$ref").and_then(Value::as_str) {
        let name = name.trim_start_matches("#/$defs/");
        let found = definitions.and_then(|all| all.get(name));
        return (Some(name), found.unwrap_or(node));
    }
    let options = node.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    match options.into_iter().find(|option| option["type"] != "null") {
        Some(option) => resolve(definitions, option),
        None => (None, node),
    }
}

/// Returns the schema of [`RunConfig`] as it is read.
pub(crate) fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    generator.into_root_schema_for::<RunConfig>().to_value()
}

/// Returns the keys of a table, each with the schema that has it. A choice has the keys of all its
/// variants.
pub(crate) fn properties(table: &Value) -> Vec<(&Value, &str, &Value)> {
    let variants = table.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let mut found = Vec::new();
    for owner in std::iter::once(table).chain(variants) {
        let own = owner.get("properties").and_then(Value::as_object).into_iter().flatten();
        found.extend(own.map(|(key, property)| (owner, key.as_str(), property)));
    }
    found
}

fn kind(node: &Value) -> &str {
    match &node["type"] {
        Value::Array(kinds) => kinds
            .iter()
            .filter_map(Value::as_str)
            .find(|kind| *kind != "null")
            .unwrap_or("any value"),
        kind => kind.as_str().unwrap_or("any value"),
    }
}

/// Returns the schema of the values of a table with free keys.
pub(crate) fn entries(node: &Value) -> Option<&Value> {
    let patterns = node.get("patternProperties").and_then(Value::as_object);
    let pattern = patterns.and_then(|patterns| patterns.values().next());
    pattern.or_else(|| node.get("additionalProperties").filter(|more| more.is_object()))
}

pub(crate) fn description(node: &Value) -> String {
    let text = node.get("description").and_then(Value::as_str).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the default of a key, or "required". `is_variant` marks a key of a choice.
fn default(owner: &Value, key: &str, property: &Value, is_variant: bool) -> Option<String> {
    let required = owner.get("required").and_then(Value::as_array);
    if !is_variant && required.is_some_and(|required| required.iter().any(|name| name == key)) {
        return Some("required".into());
    }
    let default = property.get("default")?;
    let is_shown = !default.is_null() && !default.is_object();
    is_shown.then(|| code(default))
}

/// Takes the default out of a text like "Width of a head; default: `hidden / heads`."
fn split_default(text: &str) -> (String, Option<String>) {
    let Some((before, rest)) = text.split_once("; default: ") else {
        return (text.to_owned(), None);
    };
    let (default, after) = rest.split_once(". ").unwrap_or((rest.trim_end_matches('.'), ""));
    let meaning = format!("{before}. {after}");
    (meaning.trim_end().to_owned(), Some(default.to_owned()))
}

fn code(value: &Value) -> String {
    format!("`{value}`")
}

/// Begins a text with a capital letter.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

fn row(rows: &mut String, key: &str, values: &str, meaning: &str) {
    let cells = [key, values, meaning].map(|cell| cell.replace('|', "\\|"));
    let _ = writeln!(rows, "| {} |", cells.join(" | "));
}

/// Returns the table of training methods.
fn methods() -> String {
    let mut text = String::from(
        "\n## Training methods\n\nSettings below `agents.NAME.train` that make a published method.\n\n| method | settings | note |\n|---|---|---|\n",
    );
    for method in METHODS {
        let keys: Vec<String> = method.keys.iter().map(|key| format!("`{key}`")).collect();
        let keys = if keys.is_empty() {
            "not available".into()
        } else {
            keys.join(", ")
        };
        let _ = writeln!(text, "| {} | {keys} | {} |", method.title, method.note);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After an intended change, `DYAD_GOLDEN=write cargo test -p configs reference` writes the
    /// file.
    #[test]
    fn reference_file_is_that_of_the_types() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("REFERENCE.md");
        if std::env::var_os("DYAD_GOLDEN").is_some_and(|value| value == "write") {
            std::fs::write(&path, page()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == page(),
            "configs/REFERENCE.md is stale: run DYAD_GOLDEN=write cargo test -p configs reference"
        );
    }

    #[test]
    fn reference_is_short_and_every_key_has_a_meaning() {
        let page = page();
        let words = page.split_whitespace().filter(|word| *word != "|").count();
        assert!(words <= 6000, "{words} words");
        for row in page.lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let meaning = cells.last().unwrap_or(&"");
            assert!(!meaning.is_empty() && meaning.split_whitespace().count() <= 25, "{row}");
        }
    }
}

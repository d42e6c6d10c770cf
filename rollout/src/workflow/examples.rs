//! Worked examples for templates: `examples = { TEMPLATE = "FILE.jsonl" }`, or a list of tables
//! instead of the file.

use std::collections::BTreeMap;

use minijinja::Value;

use super::params::Params;
use crate::byte_order_mark::MARK;

/// The variable name of examples in templates.
pub(crate) const EXAMPLES: &str = "examples";

/// Reads the examples, by the name of their template. Problems are added to `params`.
pub(crate) fn read(params: &mut Params<'_>, known: &[&str]) -> BTreeMap<String, Value> {
    let mut read = BTreeMap::new();
    for (name, given) in params.any_table(EXAMPLES) {
        let key = format!("{EXAMPLES}.{name}");
        if !known.contains(&name.as_str()) {
            params.problem(
                &key,
                format!("there is no such template; known are: {}", known.join(", ")),
            );
            continue;
        }
        match one(given) {
            Ok(examples) => drop(read.insert(name.clone(), examples)),
            Err(why) => params.problem(&key, why),
        }
    }
    read
}

/// Reads a list of objects that is not empty.
fn one(given: &toml::Value) -> Result<Value, String> {
    let list = match given {
        toml::Value::String(path) => file(path)?,
        toml::Value::Array(list) if list.iter().all(toml::Value::is_table) => {
            list.iter().map(Value::from_serialize).collect()
        }
        other => return Err(format!("{other} is neither a file of JSON lines nor a list of tables")),
    };
    if list.is_empty() {
        return Err("has no example: leave it out".into());
    }
    Ok(Value::from(list))
}

fn file(path: &str) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let text = text.strip_prefix(MARK).unwrap_or(&text);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = |(number, line): (usize, &str)| {
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(line).map_err(|error| format!("{path}, line {}: {error}", number + 1))?;
        Ok(Value::from_serialize(object))
    };
    lines.map(read).collect()
}

//! Two runs side by side: the keys of their configurations that differ.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::dashboard::answer::ApiError;
use crate::dashboard::redact::redacted;
use crate::run_folder::RunFolder;

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Compared {
    config: Vec<KeyDifference>,
    /// The output of `dyad compare --json`.
    comparison: Option<Value>,
    /// The reason why there is no comparison.
    problem: Option<String>,
}

/// A key of the configuration with its value on each side, as TOML.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
struct KeyDifference {
    key: String,
    a: Option<String>,
    b: Option<String>,
}

pub(crate) fn read(a: &RunFolder, b: &RunFolder, comparison: Result<Value, String>) -> Result<Compared, ApiError> {
    let text = |folder: &RunFolder| std::fs::read_to_string(folder.path().join("config.toml"));
    let (comparison, problem) = match comparison {
        Ok(found) => (Some(found), None),
        Err(why) => (None, Some(why)),
    };
    Ok(Compared {
        config: differences(&keys(&text(a)?)?, &keys(&text(b)?)?),
        comparison,
        problem,
    })
}

/// Returns every key of a configuration with its value, without passwords.
fn keys(text: &str) -> Result<BTreeMap<String, String>, ApiError> {
    let table: toml::Table = redacted(text)
        .parse()
        .map_err(|error| ApiError::new(500, format!("config.toml of the run: {error}")))?;
    let mut keys = BTreeMap::new();
    flatten("", &table, &mut keys);
    Ok(keys)
}

fn flatten(before: &str, table: &toml::Table, keys: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let key = format!("{before}{name}");
        match value {
            toml::Value::Table(inner) => flatten(&format!("{key}."), inner, keys),
            other => {
                keys.insert(key, other.to_string());
            }
        }
    }
}

fn differences(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<KeyDifference> {
    let all: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differ = all.into_iter().filter(|key| a.get(*key) != b.get(*key));
    differ
        .map(|key| KeyDifference {
            key: key.clone(),
            a: a.get(key).cloned(),
            b: b.get(key).cloned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_or_that_one_side_has_are_shown() {
        let a = keys("[run]\nseed = 1\nmode = \"sync\"\n[agents.a.train]\nlr = 0.1\n").unwrap();
        let b = keys("[run]\nseed = 2\nmode = \"sync\"\n[eval]\nevery = 4\n").unwrap();
        let found: Vec<(String, Option<String>, Option<String>)> = differences(&a, &b)
            .into_iter()
            .map(|one| (one.key, one.a, one.b))
            .collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            found,
            [
                ("agents.a.train.lr".to_owned(), some("0.1"), None),
                ("eval.every".to_owned(), None, some("4")),
                ("run.seed".to_owned(), some("1"), some("2")),
            ]
        );
    }
}

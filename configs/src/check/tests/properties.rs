//! Tests with any keys and any values, and of the file that has every key.

use proptest::prelude::*;

use super::{check, resolve};

/// Collects every key path of a table, with its value.
fn leaves(prefix: &str, table: &toml::Table, out: &mut Vec<(String, toml::Value)>) {
    for (key, value) in table {
        let path = format!("{prefix}{key}");
        match value {
            toml::Value::Table(inner) if !inner.is_empty() => leaves(&format!("{path}."), inner, out),
            _ => out.push((path, value.clone())),
        }
    }
}

#[test]
fn the_file_of_all_keys_has_all_keys() {
    let text = include_str!("../everything.toml");
    let config = check(text).unwrap_or_else(|p| panic!("{p:#?}"));
    let resolved: toml::Table = toml::to_string(&config).unwrap().parse().unwrap();
    let (mut written, mut known) = (Vec::new(), Vec::new());
    leaves("", &text.parse().unwrap(), &mut written);
    leaves("", &resolved, &mut known);
    let written: Vec<String> = written.into_iter().map(|(path, _)| path).collect();
    let missing: Vec<&String> = known
        .iter()
        .map(|(path, _)| path)
        .filter(|path| path.starts_with("agents.a.") || !path.starts_with("agents."))
        .filter(|path| !written.contains(path))
        .collect();
    assert!(missing.is_empty(), "add to everything.toml: {missing:?}");
}

fn any_value() -> impl Strategy<Value = toml::Value> {
    prop_oneof![
        any::<i64>().prop_map(toml::Value::Integer),
        any::<f64>().prop_map(toml::Value::Float),
        any::<bool>().prop_map(toml::Value::Boolean),
        "[a-z:/ ]{0,6}".prop_map(toml::Value::String),
        Just(toml::Value::Array(vec![toml::Value::Integer(1)])),
        Just(toml::Value::Table(toml::Table::new())),
    ]
}

fn set(table: &mut toml::Table, path: &str, value: toml::Value) {
    let (first, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
    match rest {
        None => drop(table.insert(first.into(), value)),
        Some(rest) => {
            if let Some(toml::Value::Table(inner)) = table.get_mut(first) {
                set(inner, rest, value);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any value at any key gets an answer. Every problem has a path and a message.
    #[test]
    fn any_values_get_an_answer(changes in prop::collection::vec((any::<prop::sample::Index>(), any_value()), 1..6)) {
        let mut table: toml::Table = include_str!("../everything.toml").parse().unwrap();
        let mut keys = Vec::new();
        leaves("", &table, &mut keys);
        for (index, value) in changes {
            set(&mut table, &index.get(&keys).0, value);
        }
        for problem in resolve(table).err().unwrap_or_default() {
            prop_assert!(!problem.path.is_empty() && !problem.message.is_empty());
        }
    }

    /// All unknown keys are reported, and nothing else.
    #[test]
    fn every_unknown_key_is_named(chosen in prop::collection::btree_set(0usize..6, 1..6)) {
        let tables = ["run", "tasks", "workflow", "eval", "agents.a.engine", "agents.a.train.optimizer"];
        let mut table: toml::Table = include_str!("../everything.toml").parse().unwrap();
        prop_assert!(resolve(table.clone()).is_ok());
        let mut expected: Vec<String> = chosen.iter().map(|i| format!("{}.zzzzzzzzzz{i}", tables[*i])).collect();
        for path in &expected {
            set(&mut table, path, toml::Value::Integer(1));
        }
        let mut found: Vec<String> = resolve(table).unwrap_err().into_iter().map(|p| p.path).collect();
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
    }
}

//! `filter`: an expression over a row, as templates write them, that says whether the row is a task.

use std::collections::BTreeSet;

use minijinja::value::Value as Operand;
use minijinja::{Environment, Expression, UndefinedBehavior};
use serde_json::{Map, Value};

use super::keys::{lookup, missing};

/// Under this name an expression finds the whole row, for keys that are no names: `row["q.x"]`.
const ROW: &str = "row";

/// What expressions are compiled in; the filter borrows it.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment
}

/// A compiled expression.
pub(super) struct Filter<'a> {
    expression: Expression<'a, 'static>,
    /// Dotted keys that every row must have.
    needed: BTreeSet<String>,
}

impl<'a> Filter<'a> {
    /// The error says what in the expression cannot be read.
    pub(super) fn compile(environment: &'a Environment<'static>, text: &str) -> Result<Self, String> {
        let expression = environment
            .compile_expression_owned(text.to_owned())
            .map_err(|error| format!("{text:?} is no expression: {error}"))?;
        let functions: BTreeSet<&str> = environment.globals().map(|(name, _)| name).collect();
        // Who asks whether a key is there, or what to take instead, may name one that is not.
        let asks = ["defined", "default("].iter().any(|word| text.contains(word));
        let needed = expression.undeclared_variables(true).into_iter().filter(|name| {
            let first = name.split('.').next().unwrap_or_default();
            !asks && first != ROW && !functions.contains(first)
        });
        let needed = needed.collect();
        Ok(Self { expression, needed })
    }

    /// Whether the expression is true of the row.
    pub(super) fn takes(&self, row: &Value) -> Result<bool, String> {
        if let Some(key) = self.needed.iter().find(|key| !has(row, key)) {
            let what = missing(row, key);
            return Err(format!(
                "filter: {what}. Write `{key} is defined and ...` if only some have it"
            ));
        }
        let context: Map<String, Value> = match row {
            Value::Object(object) => object.clone(),
            _ => Map::new(),
        };
        let whole = (!context.contains_key(ROW)).then(|| (ROW.to_owned(), row.clone()));
        let context: Map<String, Value> = context.into_iter().chain(whole).collect();
        let found: Operand = self
            .expression
            .eval(context)
            .map_err(|error| format!("filter: {error}"))?;
        if found.is_undefined() {
            return Err("filter: the expression has no value here".into());
        }
        Ok(found.is_true())
    }
}

/// Whether there is something at the key, null or not.
fn has(row: &Value, key: &str) -> bool {
    lookup(row, key).is_some() || {
        let (inside, last) = match key.rsplit_once('.') {
            Some((before, last)) => (lookup(row, before), last),
            None => (Some(row), key),
        };
        inside
            .and_then(Value::as_object)
            .is_some_and(|object| object.contains_key(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judge(text: &str, row: &Value) -> Result<bool, String> {
        let environment = environment();
        Filter::compile(&environment, text)?.takes(row)
    }

    #[test]
    fn rows_are_judged_by_their_keys() {
        let row = json!({"metadata": {"level": 4, "tags": ["a", "b"]}, "source": "aops", "q.x": 1, "none": null});
        for (text, expected) in [
            ("metadata.level >= 3 and source != 'x'", true),
            ("metadata.level > 4", false),
            ("'a' in metadata.tags and source.startswith('ao')", true),
            ("metadata.tags|length == 2", true),
            ("source in ['aops', 'gsm']", true),
            ("row['q.x'] == 1", true),
            ("none is none", true),
            ("other is defined and other > 3", false),
            ("other|default(5) > 3", true),
            ("range(5)|length > 4", true),
        ] {
            assert_eq!(judge(text, &row), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_a_row_has_not_and_what_cannot_be_read_is_told() {
        let row = json!({"level": 4});
        for (text, says) in [
            (
                "metadata.level >= 3",
                "nothing under \"metadata.level\"; the row has: level",
            ),
            ("levle >= 3", "levle is defined"),
            ("level >=", "is no expression"),
            ("row.other", "no value here"),
            ("level.upper() == 3", "filter: "),
        ] {
            let error = judge(text, &row).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}

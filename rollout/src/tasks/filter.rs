//! `filter`: an expression over a row, in the language of templates, that decides whether the row
//! is a task.

use std::collections::BTreeSet;

use minijinja::value::Value as Operand;
use minijinja::{Environment, Error, ErrorKind, Expression, UndefinedBehavior};
use serde_json::{Map, Value};

use super::keys::{lookup, missing};

/// The name of the whole row in an expression, for keys that are no identifiers: `row["q.x"]`.
const ROW: &str = "row";
/// The function that replaces `<`, `<=`, `>` and `>=`. The language itself orders values of
/// different kinds by their kinds: every text would be above every number, and null below.
const COMPARED: &str = "__dyad_compared";

/// The environment in which expressions are compiled; the filter borrows it.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function(COMPARED, compared);
    environment
}

/// Evaluates `left < right` and the other order comparisons. It fails unless both are numbers, both
/// are texts, or both have the same kind. `shown` is the comparison's sign.
fn compared(op: String, left: Operand, right: Operand, shown: String, other: String) -> Result<bool, Error> {
    if left.kind() != right.kind() || left.is_none() || left.is_undefined() {
        let what = |value: &Operand| {
            let text: String = format!("{value:?}").chars().take(60).collect();
            format!("{text}, a value of kind {}", value.kind())
        };
        let message = format!(
            "{shown} {op} {other} compares {shown} ({}) with {other} ({}): only values of one kind have an order; choose rows by \
             their kind first (`{shown} is number and ...`), or convert (`{shown}|int`)",
            what(&left),
            what(&right)
        );
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    Ok(match op.as_str() {
        "<" => left < right,
        "<=" => left <= right,
        ">" => left > right,
        _ => left >= right,
    })
}

/// A word, a sign or a text of an expression, and its position.
#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    at: usize,
}

impl Token<'_> {
    fn is_order(self) -> bool {
        ["<", "<=", ">", ">="].contains(&self.text)
    }

    /// Operators that bind as loosely as a comparison, or looser.
    fn is_border(self) -> bool {
        let words = ["and", "or", "not", "if", "else", "in", "==", "!=", "=", ",", ":"];
        self.is_order() || words.contains(&self.text)
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = if first == '"' || first == '\'' {
            let mut escaped = false;
            let end = rest.char_indices().skip(1).find(|(_, c)| {
                let ends = *c == first && !escaped;
                escaped = *c == '\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |(end, _)| end + 1)
        } else if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))
                .unwrap_or(rest.len())
        } else if ["<=", ">=", "==", "!="].iter().any(|sign| rest.starts_with(sign)) {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            found.push(Token {
                text: &rest[..length],
                at,
            });
        }
        at += length;
    }
    found
}

/// Rewrites comparisons of order into calls of [`COMPARED`], so that a comparison that is never
/// reached (`x is number and x > 3`) is not evaluated.
fn with_kinds(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some(next) = replaced(&text) {
        text = next;
    }
    text
}

/// Replaces the first comparison that has none inside; `None` if there is none left.
fn replaced(text: &str) -> Option<String> {
    let tokens = tokens(text);
    (0..tokens.len()).filter(|at| tokens[*at].is_order()).find_map(|at| {
        let left = operand(tokens[..at].iter().rev(), [")", "]", "}"], ["(", "[", "{"])?;
        let right = operand(tokens[at + 1..].iter(), ["(", "[", "{"], [")", "]", "}"])?;
        let (first, last) = (tokens[at - left], tokens[at + right]);
        let end = last.at + last.text.len();
        let op = tokens[at].text;
        let left = text[first.at..tokens[at].at].trim();
        let right = text[tokens[at].at + op.len()..end].trim();
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let call = format!(
            "{COMPARED}({}, {left}, {right}, {}, {})",
            quoted(op),
            quoted(left),
            quoted(right)
        );
        Some(format!("{}{call}{}", &text[..first.at], &text[end..]))
    })
}

/// Returns the number of tokens of an operand, going away from its sign; `None` if it has none, or
/// if it holds a comparison.
fn operand<'a, 't: 'a>(
    tokens: impl Iterator<Item = &'a Token<'t>>,
    opening: [&str; 3],
    closing: [&str; 3],
) -> Option<usize> {
    let (mut count, mut depth) = (0, 0);
    for token in tokens {
        if depth == 0 && (token.is_border() || closing.contains(&token.text)) {
            break;
        }
        if token.is_order() {
            return None;
        }
        if opening.contains(&token.text) {
            depth += 1;
        } else if closing.contains(&token.text) {
            depth -= 1;
        }
        count += 1;
    }
    (count > 0).then_some(count)
}

/// A compiled expression.
pub(super) struct Filter<'a> {
    expression: Expression<'a, 'static>,
    /// Dotted keys that every row must have.
    needed: BTreeSet<String>,
}

impl<'a> Filter<'a> {
    /// An error says what in the expression cannot be read.
    pub(super) fn compile(environment: &'a Environment<'static>, text: &str) -> Result<Self, String> {
        let expression = environment
            .compile_expression_owned(text.to_owned())
            .map_err(|error| format!("{text:?} is no expression: {error}"))?;
        let judged = environment.compile_expression_owned(with_kinds(text));
        let judged = judged.map_err(|error| format!("{text:?} is not understood: {error}"))?;
        let functions: BTreeSet<&str> = environment.globals().map(|(name, _)| name).collect();
        // An expression that tests for a key, or gives a default, may name a key that is missing.
        let asks = ["defined", "default("].iter().any(|word| text.contains(word));
        let needed = expression.undeclared_variables(true).into_iter().filter(|name| {
            let first = name.split('.').next().unwrap_or_default();
            !asks && first != ROW && !functions.contains(first)
        });
        // The last part of `source.startswith('x')` is a method of the value before it.
        let owner = |name: String| match name.rsplit_once('.') {
            Some((owner, _)) if text.contains(&format!("{name}(")) => owner.to_owned(),
            _ => name,
        };
        let needed = needed.map(owner).collect();
        Ok(Self {
            expression: judged,
            needed,
        })
    }

    /// Returns true if the expression is true of the row.
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
        let found: Operand = self.expression.eval(context).map_err(|error| {
            format!(
                "filter: {}",
                error.detail().map_or_else(|| error.to_string(), str::to_owned)
            )
        })?;
        if found.is_undefined() {
            return Err("filter: the expression has no value here".into());
        }
        Ok(found.is_true())
    }
}

/// Returns true if the row has the key, with or without a null.
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
    fn only_values_of_one_kind_are_ordered() {
        let row = json!({"level": "Level 5", "n": 3, "f": 2.5, "none": null, "o": {"s": "7", "list": [1, 2]}});
        for (text, expected) in [
            ("n >= 3 and f < 3", true),
            ("not n > 3", true),
            ("level > 'Level 4'", true),
            ("level is number and level >= 3", false),
            ("o.s|int + 1 >= n * 2 and (n < 4 or f > 9)", true),
            ("o['list'][0] < o.list|length", true),
            ("(1 if n > 2 else 0) >= 1", true),
            ("'a < 3' != level", true),
            ("(n > 2) == (f > 2)", true),
            ("n > -1", true),
        ] {
            assert_eq!(judge(text, &row), Ok(expected), "{text}: {}", with_kinds(text));
        }
        for (text, says) in [
            (
                "level >= 3",
                "level >= 3 compares level (\"Level 5\", a value of kind string) with 3 (3, a value of kind number)",
            ),
            ("none < 3", "a value of kind none"),
            ("n < 4 and o.s > 3", "compares o.s"),
            ("row['level'] > 2", "compares row['level']"),
        ] {
            let error = judge(text, &row).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn missing_and_unreadable_fields_of_a_row_are_reported() {
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

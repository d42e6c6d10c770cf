//! Reads a table past its errors: each error is recorded and repaired in a copy, then the next one
//! is found.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::{Table, Value};

use super::advice::{advice, nearest};
use super::methods;

/// Most errors looked for in one file.
const MOST: usize = 200;

/// One error of shape: a wrong type, a missing key, or an unknown key or word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) path: Vec<String>,
    pub(super) message: String,
}

/// The result of reading.
#[derive(Debug)]
pub(super) struct Read<T> {
    /// The configuration with all flaws repaired, or `None` if a repair failed.
    pub(super) config: Option<T>,
    /// The flaws in the order in which they were found.
    pub(super) flaws: Vec<Flaw>,
}

/// Reads `table` and finds every flaw.
pub(super) fn read<T: DeserializeOwned>(table: Table) -> Read<T> {
    let mut value = Value::Table(table);
    let mut flaws: Vec<Flaw> = Vec::new();
    let mut filled: Vec<Vec<String>> = Vec::new();
    for _ in 0..MOST {
        let fault = match attempt::<T>(&value) {
            Ok(config) => {
                return Read {
                    config: Some(config),
                    flaws,
                };
            }
            Err(fault) => fault,
        };
        // A fault at or below a repaired place is no new mistake.
        if !filled.iter().any(|path| fault.path.starts_with(path)) {
            flaws.push(Flaw {
                path: fault.path.clone(),
                message: fault.explain(&value),
            });
        }
        let Some(repaired) = repair::<T>(&value, &fault) else {
            break;
        };
        value = repaired;
        filled.push(fault.path);
    }
    Read { config: None, flaws }
}

/// The first error of a deserialisation, with its place.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    path: Vec<String>,
    text: String,
}

fn attempt<T: DeserializeOwned>(value: &Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(value.clone()).map_err(|error| {
        let mut path: Vec<String> = error.path().iter().filter_map(segment).collect();
        // Later lines point at a place in a text that the user never wrote.
        let text = error.inner().to_string().lines().next().unwrap_or_default().to_owned();
        if let Some(missing) = quoted_after(&text, "missing field ") {
            path.push(missing.to_owned());
        }
        // For a key that is not a legal name, serde reports the map. The place is the key itself.
        let parent = if path.is_empty() { Some(value) } else { at(value, &path) };
        let key = parent
            .and_then(Value::as_table)
            .and_then(|table| table.keys().find(|k| text.starts_with(&format!("{k:?} is not a name"))));
        path.extend(key.cloned());
        Fault { path, text }
    })
}

fn segment(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { variant } => Some(variant.clone()),
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Unknown => None,
    }
}

/// Returns the value at a path.
pub(super) fn at<'a>(root: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(root, |value, key| match value {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        other => other.as_table()?.get(key),
    })
}

fn at_mut<'a>(root: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(root, |value, key| match value {
        Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
        other => other.as_table_mut()?.get_mut(key),
    })
}

/// Returns a copy without the fault: the value is removed, or replaced by one of the right type.
fn repair<T: DeserializeOwned>(value: &Value, fault: &Fault) -> Option<Value> {
    let (last, parent) = fault.path.split_last()?;
    let words = quoted(&fault.text).into_iter().map(|word| Value::String(word.into()));
    let fillers = [
        Value::Integer(1),
        Value::String("a".into()),
        Value::String("1s".into()),
        Value::Float(1.0),
        Value::Boolean(false),
        Value::Table(Table::new()),
        Value::Table([("path".to_owned(), Value::String("a".into()))].into_iter().collect()),
        Value::Array(Vec::new()),
    ];
    let candidates = std::iter::once(None).chain(words.chain(fillers).map(Some));
    candidates.into_iter().find_map(|candidate| {
        let mut copy = value.clone();
        match (at_mut(&mut copy, parent)?, candidate) {
            (Value::Table(table), None) => drop(table.remove(last)),
            (Value::Table(table), Some(filler)) => drop(table.insert(last.clone(), filler)),
            (Value::Array(items), None) => drop(items.remove(last.parse().ok()?)),
            (Value::Array(items), Some(filler)) => *items.get_mut(last.parse::<usize>().ok()?)? = filler,
            // A word stands where a table with a choice belongs, as in `model = "x"`.
            (whole, Some(filler)) if whole.as_str() == Some(last) => *whole = filler,
            _ => return None,
        }
        match attempt::<T>(&copy) {
            Ok(_) => Some(copy),
            Err(next) => (!fault.path.starts_with(&next.path)).then_some(copy),
        }
    })
}

impl Fault {
    /// Returns the message for the user who wrote the file.
    fn explain(&self, root: &Value) -> String {
        let text = self.text.as_str();
        if let Some(key) = quoted_after(text, "unknown field ") {
            let mut path = self.path.clone();
            if path.last().is_none_or(|last| last != key) {
                path.push(key.to_owned());
            }
            let advised = advice(&path, &quoted(text)[1..]);
            // `algorithm = "ppo"` asks for a method. The answer gives its settings too.
            let of_training = advised.contains("agents.NAME.train.");
            return match self.method(root).filter(|_| of_training) {
                Some(written) => format!("{advised}; {written}"),
                None => advised,
            };
        }
        if text.starts_with("missing field") {
            return format!("is missing{}", example(&self.path));
        }
        if let Some(word) = quoted_after(text, "unknown variant ") {
            let known = &quoted(text)[1..];
            let same = methods::same(word, known);
            if let (None, Some(written)) = (same, self.method(root).filter(|_| self.is_of_training())) {
                return format!("{word:?} is not known here: {written}");
            }
            let near = same.or_else(|| nearest(word, known.iter().copied()));
            let meant = near.map_or(String::new(), |near| format!(" (did you mean {near:?}?)"));
            return format!("{word:?} is not known: write one of {}{meant}", known.join(", "));
        }
        if let Some((found, expected)) = text.split_once(", expected ") {
            let found = found
                .trim_start_matches("invalid type: ")
                .trim_start_matches("invalid value: ");
            let wanted = wanted(expected);
            let is_text = at(root, &self.path).is_some_and(Value::is_str);
            let unquote = if is_text && wanted.contains("number") {
                ", without quotes"
            } else {
                ""
            };
            let method = self.method(root).filter(|_| self.is_of_training());
            let method = method.map_or(String::new(), |written| format!("; {written}"));
            return format!(
                "is {}: write {wanted}{unquote}{}{method}",
                plain(found),
                example(&self.path)
            );
        }
        text.to_owned()
    }

    fn is_of_training(&self) -> bool {
        self.path.iter().any(|key| key == "train")
    }

    /// Returns how to write the training method that is named at the fault.
    fn method(&self, root: &Value) -> Option<String> {
        methods::written(at(root, &self.path)?.as_str()?)
    }
}

/// Translates what serde found into words of TOML.
fn plain(found: &str) -> String {
    let words = [
        ("string ", "the text "),
        ("integer ", "the number "),
        ("floating point ", "the number "),
        ("boolean ", ""),
        ("sequence", "a list"),
        ("map", "a table"),
    ];
    let word = words.iter().find(|(serde, _)| found.starts_with(serde));
    word.map_or(found.to_owned(), |(serde, ours)| found.replacen(serde, ours, 1))
        .replace('`', "")
}

/// Translates what serde expected into words of TOML.
fn wanted(expected: &str) -> String {
    match expected {
        "u16" => "a whole number from 0 to 65535".into(),
        "u8" | "u32" | "u64" | "usize" => "a whole number, 0 or more".into(),
        "i64" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" | "path string" => "a text in quotes".into(),
        "a sequence" => "a list in [ ]".into(),
        "a map" => "a table".into(),
        other if other.starts_with("struct ") => "a table of settings".into(),
        other => other.replace("string or map", "a word in quotes, or a table"),
    }
}

/// Returns an example for the keys that are most often missing or wrong.
fn example(path: &[String]) -> String {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let text = match path[..] {
        ["run"] => "[run] with name and train_steps",
        ["run", "name"] => "name = \"my-run\"",
        ["run", "train_steps"] => "train_steps = 200",
        ["tasks"] => {
            "[tasks] with source = \"jsonl:PATH\", \"parquet:PATH\", \"hf:NAME\", \"generator:KIND\" or \"queue\""
        }
        ["tasks", "source"] => "source = \"jsonl:PATH\", \"parquet:PATH\", \"generator:KIND\" or \"queue\"",
        ["tasks", "mix", _, "source"] => "source = \"jsonl:PATH\", \"parquet:PATH\" or \"generator:KIND\"",
        ["tasks", "curriculum", "pass_rates"] => "pass_rates = \"rates.jsonl\", which dyad eval --pass-rates writes",
        ["workflow"] => "[workflow] with kind, group_size and roles",
        ["workflow", "kind"] => "kind = \"solve-verify\"",
        ["workflow", "group_size"] => "group_size = 8",
        ["workflow", "roles"] => "[workflow.roles] with lines like solver = \"a\"",
        ["agents"] => "[agents.a] with a model",
        ["agents", _, "model"] => {
            "model.path = \"FOLDER\" (or \"ORG/NAME\" of the Hub's cache), or [agents.NAME.model.random]"
        }
        [.., "lease" | "timeout"] => "\"15s\"",
        [.., "template_date"] => "template_date = \"2026-11-23\"",
        [.., "listen"] => "listen = \"127.0.0.1:8001\"",
        [.., "message_cap"] => "\"1 MiB\"",
        [.., "tokenizer"] => "tokenizer = \"bytes\" or { words = [\"one\", \"two\"] }",
        _ => return String::new(),
    };
    format!("; for example {text}")
}

/// Returns the text in backticks right after `prefix`.
fn quoted_after<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.strip_prefix(prefix)?.strip_prefix('`')?.split('`').next()
}

/// Returns all texts in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

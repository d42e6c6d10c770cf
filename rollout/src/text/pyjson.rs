//! Writes JSON as Python's `json.dumps` does, because chat templates expect that.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use serde_json::Value as Json;

/// The arguments of the filter, in their order by position; they may also be named.
const ARGUMENTS: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];

/// The `tojson` filter of transformers: `tojson(x, ensure_ascii=False, indent=None,
/// separators=None, sort_keys=False)`. It writes no HTML escapes and keeps the order of keys.
pub(super) fn tojson(value: &Value, places: &[Value], kwargs: &Kwargs) -> Result<Value, Error> {
    let style = Style::of(places, kwargs)?;
    let json = serde_json::to_value(value)
        .map_err(|e| Error::new(ErrorKind::BadSerialization, "the value is not JSON").with_source(e))?;
    let mut text = String::new();
    style.write(&json, 0, &mut text);
    Ok(Value::from_safe_string(text))
}

/// The layout of JSON.
struct Style {
    ascii: bool,
    /// The indentation of one level. With it, each item has a line of its own.
    indent: Option<String>,
    /// The text between items, and between a key and its value.
    separators: [String; 2],
    sorted: bool,
}

impl Style {
    fn of(places: &[Value], kwargs: &Kwargs) -> Result<Self, Error> {
        if places.len() > ARGUMENTS.len() {
            return Err(ErrorKind::TooManyArguments.into());
        }
        let given = |at: usize| -> Result<Option<Value>, Error> {
            let named: Option<Value> = kwargs.get(ARGUMENTS[at])?;
            match (places.get(at), named) {
                (Some(_), Some(_)) => Err(invalid(format!("tojson has {} twice", ARGUMENTS[at]))),
                (place, named) => Ok(place.cloned().or(named).filter(|value| !value.is_none())),
            }
        };
        let indent = given(1)?.map(|value| indent(&value)).transpose()?;
        let between = if indent.is_none() { ", " } else { "," };
        let separators = given(2)?.map(|value| separators(&value)).transpose()?;
        let style = Self {
            ascii: given(0)?.is_some_and(|value| value.is_true()),
            separators: separators.unwrap_or_else(|| [between, ": "].map(str::to_owned)),
            indent,
            sorted: given(3)?.is_some_and(|value| value.is_true()),
        };
        kwargs.assert_all_used()?;
        Ok(style)
    }

    fn write(&self, value: &Json, depth: usize, out: &mut String) {
        match value {
            Json::Array(list) => {
                let items = list.iter().map(|item| (None, item));
                self.write_all(['[', ']'], items, depth, out);
            }
            Json::Object(object) => {
                let mut items: Vec<_> = object.iter().map(|(key, item)| (Some(key.as_str()), item)).collect();
                if self.sorted {
                    items.sort_by_key(|(key, _)| *key);
                }
                self.write_all(['{', '}'], items.into_iter(), depth, out);
            }
            Json::Number(number) if number.is_f64() => {
                out.push_str(&number.as_f64().map_or_else(|| number.to_string(), float));
            }
            Json::String(text) => self.write_text(text, out),
            scalar => out.push_str(&scalar.to_string()),
        }
    }

    fn write_all<'a>(
        &self,
        [open, close]: [char; 2],
        items: impl ExactSizeIterator<Item = (Option<&'a str>, &'a Json)>,
        depth: usize,
        out: &mut String,
    ) {
        let empty = items.len() == 0;
        let [between, behind_key] = &self.separators;
        out.push(open);
        for (i, (key, item)) in items.enumerate() {
            if i > 0 {
                out.push_str(between);
            }
            self.new_line(depth + 1, out);
            if let Some(key) = key {
                self.write_text(key, out);
                out.push_str(behind_key);
            }
            self.write(item, depth + 1, out);
        }
        if !empty {
            self.new_line(depth, out);
        }
        out.push(close);
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn write_text(&self, text: &str, out: &mut String) {
        let quoted = Json::from(text).to_string();
        if !self.ascii {
            out.push_str(&quoted);
            return;
        }
        for c in quoted.chars() {
            if matches!(c, ' '..='~') {
                out.push(c);
            } else {
                let units = c
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}"))
                    .collect::<String>();
                out.push_str(&units);
            }
        }
    }
}

/// Reads an indentation: a number of spaces, or a text.
fn indent(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let width = match value.kind() {
        ValueKind::Bool => Some(i64::from(value.is_true())),
        ValueKind::Number if value.is_integer() => value.as_i64(),
        _ => None,
    };
    let width = width.ok_or_else(|| {
        invalid(format!(
            "the indent of tojson is {value}: give a whole number or a text"
        ))
    })?;
    Ok(" ".repeat(usize::try_from(width).unwrap_or(0).min(DEEPEST)))
}

/// Most spaces of one level. Longer indentation has no use in a prompt.
const DEEPEST: usize = 1 << 10;

fn separators(value: &Value) -> Result<[String; 2], Error> {
    let texts: Option<Vec<String>> = match value.kind() {
        ValueKind::Seq => value.try_iter()?.map(|one| one.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    let pair = texts.and_then(|texts| <[String; 2]>::try_from(texts).ok());
    pair.ok_or_else(|| {
        invalid(format!(
            "the separators of tojson are {value}: give two texts, as (',', ':')"
        ))
    })
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Writes a float as Python's `repr`: with an exponent below 1e-4 and from 1e16 on, and at least
/// two digits in it.
fn float(value: f64) -> String {
    let text = format!("{value:?}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use minijinja::Environment;
    use minijinja::value::Rest;

    use super::*;

    /// Applies the filter to JSON, called as `tojson CALL`.
    fn dump(json: &str, call: &str) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.add_filter("tojson", |value: Value, places: Rest<Value>, kwargs: Kwargs| {
            tojson(&value, &places, &kwargs)
        });
        let x: Json = serde_json::from_str(json).unwrap();
        environment.render_str(&format!("{{{{ x | tojson{call} }}}}"), minijinja::context! { x => x })
    }

    #[test]
    fn writes_as_python_does() {
        let json = r#"{"b":[1,2.5,"é<\"",null,true],"a":{},"c":[]}"#;
        assert_eq!(
            dump(json, "").unwrap(),
            r#"{"b": [1, 2.5, "é<\"", null, true], "a": {}, "c": []}"#
        );
        assert_eq!(
            dump(r#"{"a":[1],"b":{}}"#, "(indent=2)").unwrap(),
            "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"
        );
        assert_eq!(
            dump("[1e-5, 0.0001, -2.5e-7, 1e15, 1e16, 1e22, -0.0, 16]", "").unwrap(),
            "[1e-05, 0.0001, -2.5e-07, 1000000000000000.0, 1e+16, 1e+22, -0.0, 16]"
        );
    }

    /// `golden/make.py` recorded what transformers' filter makes of each.
    #[test]
    fn arguments_mean_what_they_mean_in_transformers() {
        let golden: Vec<Json> = serde_json::from_str(include_str!("../../golden/tojson.json")).unwrap();
        assert!(golden.len() > 20);
        for case in golden {
            let made = dump(case["json"].as_str().unwrap(), case["call"].as_str().unwrap());
            match case["text"].as_str() {
                Some(text) => assert_eq!(made.unwrap(), text, "{}", case["call"]),
                None => assert!(made.is_err(), "{}", case["call"]),
            }
        }
    }
}

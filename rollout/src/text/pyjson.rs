//! JSON as Python's `json.dumps(.., ensure_ascii=False)` writes it, which chat templates were written for.

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde_json::Value as Json;

/// The `tojson` filter: separators `", "` and `": "`, no HTML escapes, key order kept, optional `indent`.
pub(super) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let _: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    let json = serde_json::to_value(value)
        .map_err(|e| Error::new(ErrorKind::BadSerialization, "the value is no JSON").with_source(e))?;
    let mut text = String::new();
    write(&json, indent, 0, &mut text);
    Ok(Value::from_safe_string(text))
}

fn write(value: &Json, indent: Option<usize>, depth: usize, out: &mut String) {
    match value {
        Json::Array(list) => {
            let items = list.iter().map(|item| (None, item));
            write_all(['[', ']'], items, indent, depth, out);
        }
        Json::Object(object) => {
            let items = object.iter().map(|(key, item)| (Some(key.as_str()), item));
            write_all(['{', '}'], items, indent, depth, out);
        }
        Json::Number(number) if number.is_f64() => {
            out.push_str(&number.as_f64().map_or_else(|| number.to_string(), float));
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// A float as Python's `repr`: with an exponent, of two digits at least, below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    let text = format!("{value:?}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

fn write_all<'a>(
    [open, close]: [char; 2],
    items: impl ExactSizeIterator<Item = (Option<&'a str>, &'a Json)>,
    indent: Option<usize>,
    depth: usize,
    out: &mut String,
) {
    let empty = items.len() == 0;
    out.push(open);
    for (i, (key, item)) in items.enumerate() {
        match (i, indent) {
            (0, None) => {}
            (_, None) => out.push_str(", "),
            (0, Some(width)) => new_line(width * (depth + 1), out),
            (_, Some(width)) => {
                out.push(',');
                new_line(width * (depth + 1), out);
            }
        }
        if let Some(key) = key {
            out.push_str(&Json::from(key).to_string());
            out.push_str(": ");
        }
        write(item, indent, depth + 1, out);
    }
    if let (false, Some(width)) = (empty, indent) {
        new_line(width * depth, out);
    }
    out.push(close);
}

fn new_line(width: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', width));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(json: &str, indent: Option<usize>) -> String {
        let mut text = String::new();
        write(&serde_json::from_str(json).unwrap(), indent, 0, &mut text);
        text
    }

    #[test]
    fn writes_as_python_does() {
        let json = r#"{"b":[1,2.5,"é<\"",null,true],"a":{},"c":[]}"#;
        assert_eq!(
            dump(json, None),
            r#"{"b": [1, 2.5, "é<\"", null, true], "a": {}, "c": []}"#
        );
        assert_eq!(
            dump(r#"{"a":[1],"b":{}}"#, Some(2)),
            "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"
        );
        assert_eq!(
            dump("[1e-5, 0.0001, -2.5e-7, 1e15, 1e16, 1e22, -0.0, 16]", None),
            "[1e-05, 0.0001, -2.5e-07, 1000000000000000.0, 1e+16, 1e+22, -0.0, 16]"
        );
    }
}

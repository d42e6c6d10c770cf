//! The fields of a JSON object, taken one by one: the fields that are left at the end are rejected
//! by name.

use serde_json::{Map, Value};

use super::request_error::RequestError;

/// An object's fields that were not taken yet. `null` counts as absent.
#[derive(Debug)]
pub struct JsonFields {
    map: Map<String, Value>,
    /// The prefix of its names, for example `messages[0].`.
    place: String,
}

impl JsonFields {
    /// Reads a request's body.
    pub fn read(body: &[u8]) -> Result<Self, RequestError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Self {
                map,
                place: String::new(),
            }),
            Ok(_) => Err(RequestError::body(
                "the body is JSON and no object: send {\"model\": ..., ...}",
            )),
            Err(error) => Err(RequestError::body(format!("the body is no JSON: {error}"))),
        }
    }

    /// Reads an object within the body.
    pub fn of(value: Value, place: impl Into<String>) -> Result<Self, RequestError> {
        let place = place.into();
        match value {
            Value::Object(map) => Ok(Self {
                map,
                place: format!("{place}."),
            }),
            other => Err(RequestError::wrong(
                place,
                format!("is {}: write an object", kind(&other)),
            )),
        }
    }

    /// The whole name of a field.
    #[must_use]
    pub fn name(&self, field: &str) -> String {
        format!("{}{field}", self.place)
    }

    pub fn take(&mut self, field: &str) -> Option<Value> {
        self.map.remove(field).filter(|value| !value.is_null())
    }

    pub fn text(&mut self, field: &str) -> Result<Option<String>, RequestError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wanted(field, &other, "a text")),
        }
    }

    pub fn flag(&mut self, field: &str) -> Result<bool, RequestError> {
        match self.take(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(self.wanted(field, &other, "true or false")),
        }
    }

    /// Takes the field if it is false, where a number is expected.
    pub fn is_false(&mut self, field: &str) -> bool {
        let is_false = self.map.get(field) == Some(&Value::Bool(false));
        if is_false {
            self.map.remove(field);
        }
        is_false
    }

    /// Takes a whole number from `least` to `most`.
    pub fn whole(&mut self, field: &str, least: i64, most: i64) -> Result<Option<i64>, RequestError> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        // Some clients write every number as a float.
        let whole = |number: &f64| number.fract() == 0.0 && number.abs() < 2_f64.powi(53);
        let number = value
            .as_i64()
            .or_else(|| value.as_f64().filter(whole).map(|number| number as i64));
        match number {
            Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(self.wanted(field, &value, &format!("a whole number from {least} to {most}"))),
        }
    }

    /// Takes a number, as the f32 that an engine uses.
    pub fn number(
        &mut self,
        field: &str,
        fits: impl Fn(f32) -> bool,
        wanted: &str,
    ) -> Result<Option<f32>, RequestError> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        match value.as_f64().map(|number| number as f32) {
            Some(number) if fits(number) => Ok(Some(number)),
            _ => Err(self.wanted(field, &value, wanted)),
        }
    }

    /// Rejects the field unless it has one of its values without effect.
    pub fn only(&mut self, field: &str, idle: &[Value], advice: &str) -> Result<(), RequestError> {
        match self.take(field) {
            Some(value) if !idle.iter().any(|idle| same(idle, &value)) => {
                Err(RequestError::unsupported(self.name(field), advice))
            }
            _ => Ok(()),
        }
    }

    /// Rejects fields that were not taken.
    pub fn end(mut self) -> Result<(), RequestError> {
        self.map.retain(|_, value| !value.is_null());
        match self.map.keys().next() {
            None => Ok(()),
            Some(field) => {
                let field: String = field.chars().take(100).collect();
                Err(RequestError {
                    code: Some("unknown_parameter"),
                    ..RequestError::wrong(self.name(&field), "is not known here: leave it out")
                })
            }
        }
    }

    fn wanted(&self, field: &str, found: &Value, wanted: &str) -> RequestError {
        RequestError::wrong(self.name(field), format!("is {}: write {wanted}", kind(found)))
    }
}

/// Returns true if the values are equal; 0 and 0.0 are equal.
fn same(a: &Value, b: &Value) -> bool {
    a == b || matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if a.to_bits() == b.to_bits())
}

/// Describes a value in a few words: its text is the client's, and may be long.
#[must_use]
pub fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.chars().count() <= 40 => format!("the text {text:?}"),
        Value::String(_) => "a text".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> JsonFields {
        JsonFields::of(value, "x").unwrap()
    }

    #[test]
    fn fields_that_are_not_taken_are_named() {
        let mut some = fields(json!({"a": "b", "n": null, "left": 1}));
        assert_eq!(some.text("a").unwrap().as_deref(), Some("b"));
        let refusal = some.end().unwrap_err();
        assert_eq!((refusal.status, refusal.param.as_deref()), (400, Some("x.left")));
        assert!(fields(json!({"n": null})).end().is_ok());
    }

    #[test]
    fn numbers_have_bounds_and_kinds() {
        let whole = |value: Value| fields(json!({"n": value})).whole("n", 1, 5);
        assert_eq!(whole(json!(5)).unwrap(), Some(5));
        assert_eq!(whole(json!(null)).unwrap(), None);
        for wrong in [
            json!(0),
            json!(6),
            json!(2.5),
            json!("2"),
            json!(true),
            json!(1e300),
            json!([1]),
        ] {
            let refusal = whole(wrong.clone()).unwrap_err();
            assert!(refusal.message.starts_with("x.n is "), "{wrong}: {}", refusal.message);
        }
        let number = |value: Value| fields(json!({"n": value})).number("n", |n| n > 0.0, "a number above 0");
        assert_eq!(number(json!(2)).unwrap(), Some(2.0));
        assert!(number(json!(1e-300)).is_err(), "it is 0 as an f32");
        assert!(number(json!(-1)).is_err());
    }

    #[test]
    fn idle_values_pass_and_others_do_not() {
        let only = |value: Value| fields(json!({"p": value})).only("p", &[json!(0), json!({})], "leave it out");
        for idle in [json!(0), json!(0.0), json!({}), json!(null)] {
            assert!(only(idle.clone()).is_ok(), "{idle}");
        }
        let refusal = only(json!(0.1)).unwrap_err();
        assert_eq!(refusal.code, Some("unsupported_parameter"));
        assert_eq!(refusal.param.as_deref(), Some("x.p"));
    }

    #[test]
    fn a_body_that_is_no_object_is_refused() {
        for body in ["", "[]", "3", "{", "{\"a\": 1}x", "\u{feff}{}"] {
            assert_eq!(JsonFields::read(body.as_bytes()).unwrap_err().status, 400, "{body}");
        }
    }
}

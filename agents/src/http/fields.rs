//! The fields of a JSON object, taken one by one: what is left at the end is refused by name.

use serde_json::{Map, Value};

use super::refusal::Refusal;

/// An object's fields that nobody has taken yet. `null` is as if the field were not there.
#[derive(Debug)]
pub struct Fields {
    map: Map<String, Value>,
    /// What its names are led by, such as `messages[0].`.
    place: String,
}

impl Fields {
    /// A request's body.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Self {
                map,
                place: String::new(),
            }),
            Ok(_) => Err(Refusal::body(
                "the body is JSON and no object: send {\"model\": ..., ...}",
            )),
            Err(error) => Err(Refusal::body(format!("the body is no JSON: {error}"))),
        }
    }

    /// An object within the body.
    pub fn of(value: Value, place: impl Into<String>) -> Result<Self, Refusal> {
        let place = place.into();
        match value {
            Value::Object(map) => Ok(Self {
                map,
                place: format!("{place}."),
            }),
            other => Err(Refusal::wrong(place, format!("is {}: write an object", kind(&other)))),
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

    pub fn text(&mut self, field: &str) -> Result<Option<String>, Refusal> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wanted(field, &other, "a text")),
        }
    }

    pub fn flag(&mut self, field: &str) -> Result<bool, Refusal> {
        match self.take(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(self.wanted(field, &other, "true or false")),
        }
    }

    /// A whole number from `least` to `most`.
    pub fn whole(&mut self, field: &str, least: i64, most: i64) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        match value.as_i64() {
            Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(self.wanted(field, &value, &format!("a whole number from {least} to {most}"))),
        }
    }

    /// A number, as an engine takes it.
    pub fn number(&mut self, field: &str, fits: impl Fn(f32) -> bool, wanted: &str) -> Result<Option<f32>, Refusal> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        match value.as_f64().map(|number| number as f32) {
            Some(number) if fits(number) => Ok(Some(number)),
            _ => Err(self.wanted(field, &value, wanted)),
        }
    }

    /// Refuses a field that is anything but what it is without it.
    pub fn only(&mut self, field: &str, idle: &[Value], advice: &str) -> Result<(), Refusal> {
        match self.take(field) {
            Some(value) if !idle.iter().any(|idle| same(idle, &value)) => {
                Err(Refusal::not_done(self.name(field), advice))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what nobody took.
    pub fn end(mut self) -> Result<(), Refusal> {
        self.map.retain(|_, value| !value.is_null());
        match self.map.keys().next() {
            None => Ok(()),
            Some(field) => {
                let field: String = field.chars().take(100).collect();
                Err(Refusal {
                    code: Some("unknown_parameter"),
                    ..Refusal::wrong(self.name(&field), "is not known here: leave it out")
                })
            }
        }
    }

    fn wanted(&self, field: &str, found: &Value, wanted: &str) -> Refusal {
        Refusal::wrong(self.name(field), format!("is {}: write {wanted}", kind(found)))
    }
}

/// Numbers are the same whether they are written whole or not.
fn same(a: &Value, b: &Value) -> bool {
    a == b || matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if a.to_bits() == b.to_bits())
}

/// A value in a few words: its text is the client's, and may be long.
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

    fn fields(value: Value) -> Fields {
        Fields::of(value, "x").unwrap()
    }

    #[test]
    fn what_nobody_takes_is_named() {
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
        assert!(number(json!(1e-300)).is_err(), "it is 0 for an engine");
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
            assert_eq!(Fields::read(body.as_bytes()).unwrap_err().status, 400, "{body}");
        }
    }
}

//! Decodes bodies by the tags of OTLP, not by the program's own types.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::collector::Posted;

/// A field of a message: its tag, and a number or bytes.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    number
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_first_chunk::<8>().unwrap();
                bytes = rest;
                Field::Number(u64::from_le_bytes(*number))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(inner)
            }
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, field));
    }
    found
}

/// Returns the messages, texts or byte strings with a tag.
fn inner<'a>(bytes: &'a [u8], tag: u64) -> Vec<&'a [u8]> {
    let with_tag = |(own, field): (u64, Field<'a>)| match field {
        Field::Bytes(bytes) if own == tag => Some(bytes),
        _ => None,
    };
    fields(bytes).into_iter().filter_map(with_tag).collect()
}

/// Returns the number with a tag; 0 is not encoded.
fn number(bytes: &[u8], tag: u64) -> u64 {
    let with_tag = |(own, field): (u64, Field<'_>)| match field {
        Field::Number(number) if own == tag => Some(number),
        _ => None,
    };
    fields(bytes).into_iter().find_map(with_tag).unwrap_or(0)
}

fn text(bytes: &[u8], tag: u64) -> String {
    let found = inner(bytes, tag);
    String::from_utf8(found.first().map_or_else(Vec::new, |text| text.to_vec())).unwrap()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns an `AnyValue`.
fn any(bytes: &[u8]) -> Value {
    let (tag, field) = fields(bytes).pop().unwrap();
    match (tag, field) {
        (1, Field::Bytes(text)) => json!(std::str::from_utf8(text).unwrap()),
        (2, Field::Number(flag)) => json!(flag == 1),
        (3, Field::Number(number)) => json!(number as i64),
        (4, Field::Number(bits)) => json!(f64::from_bits(bits)),
        (5, Field::Bytes(list)) => inner(list, 1).into_iter().map(any).collect(),
        _ => panic!("value with tag {tag}"),
    }
}

/// Returns the attributes with this tag.
fn attributes(bytes: &[u8], tag: u64) -> BTreeMap<String, Value> {
    let pairs = inner(bytes, tag).into_iter();
    pairs.map(|pair| (text(pair, 1), any(inner(pair, 2)[0]))).collect()
}

#[derive(Debug)]
pub(super) struct Span {
    pub(super) parent: String,
    pub(super) name: String,
    pub(super) kind: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: BTreeMap<String, Value>,
    /// Traces and spans that it names.
    pub(super) links: Vec<(String, String)>,
}

/// Spans by their ids, of each trace by its id.
pub(super) type Traces = BTreeMap<String, BTreeMap<String, Span>>;

/// Decodes the bodies. Each comes from this run.
pub(super) fn decode(posted: &[Posted], run: &str) -> Traces {
    let mut traces = Traces::new();
    for one in posted {
        for resource_spans in inner(&one.body, 1) {
            let sender = attributes(inner(resource_spans, 1)[0], 1);
            assert_eq!(
                (&sender["service.name"], &sender["dyad.run"]),
                (&json!("dyad-test"), &json!(run))
            );
            for scope_spans in inner(resource_spans, 2) {
                assert_eq!(text(scope_spans, 3), "https://opentelemetry.io/schemas/1.41.0");
                for span in inner(scope_spans, 2) {
                    let (trace, id) = (hex(inner(span, 1)[0]), hex(inner(span, 2)[0]));
                    let read = Span {
                        parent: inner(span, 4).first().map_or_else(String::new, |id| hex(id)),
                        name: text(span, 5),
                        kind: number(span, 6),
                        start: number(span, 7),
                        end: number(span, 8),
                        attributes: attributes(span, 9),
                        links: inner(span, 13)
                            .into_iter()
                            .map(|link| (hex(inner(link, 1)[0]), hex(inner(link, 2)[0])))
                            .collect(),
                    };
                    let before = traces.entry(trace).or_default().insert(id, read);
                    assert!(before.is_none(), "a span is sent once");
                }
            }
        }
    }
    traces
}

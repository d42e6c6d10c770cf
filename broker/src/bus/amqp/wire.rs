//! Our messages as AMQP properties and back.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, message};

use crate::bus::Outgoing;
use crate::bus::letter::GivenUp;
use crate::clock::rfc3339;
use crate::protocol::Kind;

const TRANSIENT: u8 = 1;
const PERSISTENT: u8 = 2;

/// Returns a short string, which holds 255 bytes; longer text is cut at a character.
pub(super) fn short(text: &str) -> ShortString {
    let end = text.floor_char_boundary(255);
    // `try_new` cannot fail on text of this length, and an empty string is legal.
    ShortString::try_new(&text[..end]).unwrap_or_default()
}

/// Returns a message's properties. `user` must be the connection's own: RabbitMQ rejects any other,
/// so receivers may trust it.
pub(super) fn properties(message: &Outgoing, user: &str) -> BasicProperties {
    let mut headers = FieldTable::default();
    // The broker's own headers (x-death) are never sent back to it.
    for (key, value) in message.headers.iter().filter(|(key, _)| !key.starts_with("x-")) {
        headers.insert(short(key), AMQPValue::LongString(value.as_bytes().to_vec().into()));
    }
    let content = if message.kind.is_json() {
        "application/json"
    } else {
        "application/octet-stream"
    };
    let properties = BasicProperties::default()
        .with_app_id(short("dyad"))
        .with_user_id(short(user))
        .with_content_type(short(content))
        .with_type(short(message.kind.as_str()))
        .with_message_id(short(&message.message_id))
        .with_delivery_mode(if message.durable { PERSISTENT } else { TRANSIENT })
        .with_headers(headers);
    match &message.correlation_id {
        Some(id) => properties.with_correlation_id(short(id)),
        None => properties,
    }
}

/// A received message without its acker.
pub(super) struct Incoming {
    pub(super) kind: Option<Kind>,
    pub(super) message_id: Option<String>,
    pub(super) correlation_id: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) user: Option<String>,
    pub(super) dead_letter: bool,
    pub(super) body: Bytes,
}

/// Reads properties that any publisher may have written. Takes the body without a copy.
pub(super) fn incoming(delivery: &mut message::Delivery) -> Incoming {
    let properties = &delivery.properties;
    let text = |value: &Option<ShortString>| value.as_ref().map(|text| text.as_str().to_owned());
    let mut headers: Vec<(String, String)> = properties
        .headers()
        .iter()
        .flat_map(|table| table.inner())
        .filter_map(|(key, value)| Some((key.as_str().to_owned(), readable(value)?)))
        .collect();
    let table = properties.headers().as_ref().map(FieldTable::inner);
    let deaths = table.and_then(|table| table.iter().find(|(key, _)| key.as_str() == "x-death"));
    if let Some((_, deaths)) = deaths {
        given_up(&headers, deaths).explain(&mut headers);
    }
    // The broker always writes it, whatever the publisher sent. The broker's other marks depend on
    // that.
    let dead_letter = deaths.is_some();
    Incoming {
        kind: properties.kind().as_ref().and_then(|kind| Kind::parse(kind.as_str())),
        message_id: text(properties.message_id()),
        correlation_id: text(properties.correlation_id()),
        headers,
        user: text(properties.user_id()),
        dead_letter,
        body: Bytes::from(std::mem::take(&mut delivery.data)),
    }
}

/// Reads RabbitMQ's oldest entry in `x-death`.
fn given_up(headers: &[(String, String)], deaths: &AMQPValue) -> GivenUp {
    let said = |name: &str| {
        headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.clone())
    };
    let last = match deaths {
        AMQPValue::FieldArray(deaths) => deaths.as_slice().last(),
        _ => None,
    };
    let find = |name: &str| match last {
        Some(AMQPValue::FieldTable(death)) => death
            .inner()
            .iter()
            .find(|(key, _)| key.as_str() == name)
            .map(|(_, value)| value),
        _ => None,
    };
    let first = match find("time") {
        // RabbitMQ's timestamps are in seconds.
        Some(AMQPValue::Timestamp(seconds)) => UNIX_EPOCH.checked_add(Duration::from_secs(*seconds)).map(rfc3339),
        _ => None,
    };
    let key = match find("routing-keys") {
        Some(AMQPValue::FieldArray(keys)) => keys.as_slice().first().and_then(readable),
        _ => None,
    };
    let count = find("count").and_then(readable).and_then(|text| text.parse().ok());
    GivenUp {
        reason: said("x-first-death-reason").unwrap_or_else(|| "given up".into()),
        queue: said("x-first-death-queue"),
        key,
        first,
        count: count.unwrap_or(1),
    }
}

fn readable(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::LongString(text) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        AMQPValue::ShortString(text) => text.as_str().to_owned(),
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(value) => value.to_string(),
        AMQPValue::ShortShortUInt(value) => value.to_string(),
        AMQPValue::ShortInt(value) => value.to_string(),
        AMQPValue::ShortUInt(value) => value.to_string(),
        AMQPValue::LongInt(value) => value.to_string(),
        AMQPValue::LongUInt(value) => value.to_string(),
        AMQPValue::LongLongInt(value) => value.to_string(),
        AMQPValue::Float(value) => value.to_string(),
        AMQPValue::Double(value) => value.to_string(),
        AMQPValue::Timestamp(value) => value.to_string(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Address;

    #[test]
    fn long_and_strange_properties_are_cut_not_panicked_over() {
        let message = Outgoing {
            to: Address {
                exchange: String::new(),
                routing_key: String::new(),
            },
            kind: Kind::Bundle,
            message_id: "é".repeat(200),
            correlation_id: Some("c".repeat(300)),
            headers: vec![("k".repeat(300), "v".repeat(1000)), ("x-death".into(), "forged".into())],
            body: Bytes::new(),
            durable: true,
        };
        let properties = properties(&message, "u");
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), "é".repeat(127));
        assert_eq!(*properties.delivery_mode(), Some(PERSISTENT));
        let headers = properties.headers().as_ref().unwrap().inner();
        assert_eq!(headers.len(), 1, "the broker's own headers are not sent");
        assert!(headers.keys().all(|key| key.as_str().len() == 255));
    }
}

//! Messages that the broker keeps over a restart.

use broker::bus::Outgoing;
use broker::ids::Digest;
use broker::protocol::Kind;
use broker::topology::Address;
use bytes::Bytes;

/// A durable message with this body. Its id is the digest of the body until `with_id` sets another.
pub(crate) fn durable(to: Address, kind: Kind, body: impl Into<Bytes>) -> Outgoing {
    let body = body.into();
    Outgoing {
        to,
        kind,
        message_id: Digest::of(&body).to_string(),
        correlation_id: None,
        headers: Vec::new(),
        body,
        durable: true,
    }
}

/// Adds to a message what its receiver or a reader needs.
pub(crate) trait Addressed {
    fn with_id(self, id: String) -> Self;
    /// Sets the correlation id: the group or request that the message is about.
    fn about(self, id: impl ToString) -> Self;
    fn with_headers<N: Into<String>>(self, headers: impl IntoIterator<Item = (N, String)>) -> Self;
    /// The same message, which is lost if the broker stops or no queue takes it.
    fn transient(self) -> Self;
}

impl Addressed for Outgoing {
    fn with_id(self, id: String) -> Self {
        Self { message_id: id, ..self }
    }

    fn about(self, id: impl ToString) -> Self {
        let correlation_id = Some(id.to_string());
        Self { correlation_id, ..self }
    }

    fn with_headers<N: Into<String>>(self, headers: impl IntoIterator<Item = (N, String)>) -> Self {
        let named = headers.into_iter().map(|(name, value)| (name.into(), value));
        Self {
            headers: named.collect(),
            ..self
        }
    }

    fn transient(self) -> Self {
        Self { durable: false, ..self }
    }
}

#[cfg(test)]
mod tests {
    use broker::ids::RunId;
    use broker::topology::Topology;

    use super::*;

    #[test]
    fn a_message_is_named_after_its_body_unless_it_is_named() {
        let topology = Topology::new(RunId::new("r").unwrap());
        let to = topology.to(&topology.dead());
        let message = durable(to, Kind::Task, Bytes::from_static(b"body"));
        assert_eq!(message.message_id, Digest::of(b"body").to_string());
        assert!(message.durable);
        let named = message
            .with_id("t".into())
            .about("g")
            .with_headers([("run", "r".to_owned())]);
        assert_eq!(
            (named.message_id.as_str(), named.correlation_id.as_deref()),
            ("t", Some("g"))
        );
        assert_eq!(named.headers, [("run".to_owned(), "r".to_owned())]);
        assert!(!named.transient().durable);
    }
}

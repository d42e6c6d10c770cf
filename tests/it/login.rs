//! A direct connection to RabbitMQ as one user, past dyad's client: tests which operations the
//! server allows and refuses.

use broker::topology::Address;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, BasicRejectOptions, ConfirmSelectOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tests::secured::Secured;

/// One user's connection.
pub(crate) struct Login<'a> {
    servers: &'a Secured,
    connection: Connection,
    name: String,
}

impl<'a> Login<'a> {
    pub(crate) fn new(servers: &'a Secured, name: &str) -> Self {
        let url = servers.broker(name);
        let connecting = Connection::connect(&url, ConnectionProperties::default());
        Self {
            servers,
            connection: servers.block_on(connecting).unwrap(),
            name: name.to_owned(),
        }
    }

    /// Runs an operation on a new channel, because a refusal closes the channel.
    pub(crate) fn try_to<T>(&self, operation: impl AsyncFnOnce(Channel) -> lapin::Result<T>) -> lapin::Result<T> {
        self.servers.block_on(async {
            let channel = self.connection.create_channel().await?;
            operation(channel).await
        })
    }

    /// Asserts that the server refuses the operation, with an error that has `code` and `object`.
    /// `deed` describes the operation in the test's messages: "publish a task".
    pub(crate) fn refused<T>(
        &self,
        deed: &str,
        code: &str,
        object: &str,
        operation: impl AsyncFnOnce(Channel) -> lapin::Result<T>,
    ) {
        match self.try_to(operation) {
            Ok(_) => panic!("the server lets {} {deed}", self.name),
            Err(error) => {
                let error = error.to_string();
                assert!(
                    error.contains(code) && error.contains(object),
                    "the server does not let {} {deed}, but its error does not name {code:?} and {object:?}: {error}",
                    self.name
                );
            }
        }
    }

    /// Asserts that the server allows the operation. Next to a refused operation, it shows that the
    /// refusal came from the user's permissions and not from a mistake in the test.
    pub(crate) fn allowed<T>(&self, deed: &str, operation: impl AsyncFnOnce(Channel) -> lapin::Result<T>) {
        if let Err(error) = self.try_to(operation) {
            panic!("the server does not let {} {deed}: {error}", self.name);
        }
    }
}

impl Login<'_> {
    /// Forges a message of another sender, with permitted operations only. The user declares a
    /// queue that sends its dead letters to `forged`, publishes to that queue through its `own`
    /// address, and rejects the message: RabbitMQ then publishes it to `forged`.
    pub(crate) async fn forge(&self, queue: &str, own: &Address, forged: &Address, body: &[u8]) -> lapin::Result<()> {
        let channel = self.connection.create_channel().await?;
        let mut arguments = FieldTable::default();
        for (key, value) in [
            ("x-dead-letter-exchange", &forged.exchange),
            ("x-dead-letter-routing-key", &forged.routing_key),
        ] {
            arguments.insert(key.into(), AMQPValue::LongString(value.as_bytes().to_vec().into()));
        }
        let options = QueueDeclareOptions {
            exclusive: true,
            ..QueueDeclareOptions::default()
        };
        channel.queue_declare(queue.into(), options, arguments).await?;
        let (exchange, key) = (own.exchange.as_str(), own.routing_key.as_str());
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        channel
            .queue_bind(queue.into(), exchange.into(), key.into(), options, none)
            .await?;
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let sent = channel.basic_publish(exchange.into(), key.into(), options, body, properties);
        sent.await?.await?;
        // The publish is confirmed, so the queue has the message.
        let received = channel
            .basic_get(queue.into(), BasicGetOptions::default())
            .await?
            .unwrap();
        let as_dead_letter = BasicRejectOptions { requeue: false };
        received.acker.reject(as_dead_letter).await.map(drop)
    }
}

/// Publishes one message and waits for the server's confirm.
pub(crate) async fn publish(
    channel: Channel,
    exchange: &str,
    key: &str,
    properties: BasicProperties,
) -> lapin::Result<()> {
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let options = BasicPublishOptions::default();
    let sent = channel
        .basic_publish(exchange.into(), key.into(), options, b"{}", properties)
        .await?;
    sent.await.map(drop)
}

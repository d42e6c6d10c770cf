//! A user's own connection to RabbitMQ without our client: the acts that the server allows and
//! refuses.

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

    /// Performs an act on its own channel: a refusal closes the channel.
    pub(crate) fn try_to<T>(&self, act: impl AsyncFnOnce(Channel) -> lapin::Result<T>) -> lapin::Result<T> {
        self.servers.block_on(async {
            let channel = self.connection.create_channel().await?;
            act(channel).await
        })
    }

    /// Asserts that the server refuses the act with this code and names `what`.
    pub(crate) fn refused<T>(
        &self,
        deed: &str,
        code: &str,
        what: &str,
        act: impl AsyncFnOnce(Channel) -> lapin::Result<T>,
    ) {
        match self.try_to(act) {
            Ok(_) => panic!("{} can {deed}", self.name),
            Err(error) => {
                let words = error.to_string();
                assert!(
                    words.contains(code) && words.contains(what),
                    "{} may not {deed}: {words}",
                    self.name
                );
            }
        }
    }

    /// Asserts that the server allows the act. This shows that a refusal of a similar act has its
    /// own reason.
    pub(crate) fn allowed<T>(&self, deed: &str, act: impl AsyncFnOnce(Channel) -> lapin::Result<T>) {
        if let Err(error) = self.try_to(act) {
            panic!("{} cannot {deed}: {error}", self.name);
        }
    }
}

impl Login<'_> {
    /// Publishes under its `own` key into its own queue, which sends dead letters under `other`,
    /// and rejects the message there.
    pub(crate) async fn forge(&self, queue: &str, own: &Address, other: &Address, body: &[u8]) -> lapin::Result<()> {
        let channel = self.connection.create_channel().await?;
        let mut arguments = FieldTable::default();
        for (key, value) in [
            ("x-dead-letter-exchange", &other.exchange),
            ("x-dead-letter-routing-key", &other.routing_key),
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
        // The publish is confirmed, so the queue holds the message.
        let taken = channel
            .basic_get(queue.into(), BasicGetOptions::default())
            .await?
            .unwrap();
        let refusal = BasicRejectOptions { requeue: false };
        taken.acker.reject(refusal).await.map(drop)
    }
}

/// Publishes one message and waits for the broker's confirm.
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

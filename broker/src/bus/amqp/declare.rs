//! Declares exchanges and queues on RabbitMQ, with arguments that 3.10 and 4.x both accept.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection};

use super::wire::short;
use crate::bus::BusError;
use crate::topology::{Argument, Exchange, ExchangeKind, Queue, QueueKind};

/// The reason why the broker did not carry out a request.
#[derive(Debug)]
pub(super) struct NotDone {
    pub(super) reason: String,
    /// True if this user may not make the request.
    pub(super) forbidden: bool,
    /// True if no answer came in time.
    pub(super) silent: bool,
}

impl NotDone {
    /// The failure of declaring `what`.
    pub(super) fn declare(self, what: String) -> BusError {
        BusError::Declare {
            what,
            reason: self.reason,
            forbidden: self.forbidden,
        }
    }
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<lapin::Error> for NotDone {
    fn from(error: lapin::Error) -> Self {
        Self {
            reason: error.to_string(),
            forbidden: is_forbidden(&error),
            silent: false,
        }
    }
}

/// Awaits an answer of the broker for at most `patience`.
pub(super) async fn answer<T>(patience: Duration, asked: impl Future<Output = lapin::Result<T>>) -> Result<T, NotDone> {
    match tokio::time::timeout(patience, asked).await {
        Ok(outcome) => outcome.map_err(NotDone::from),
        Err(_) => Err(NotDone {
            reason: format!("no answer within {patience:?}"),
            forbidden: false,
            silent: true,
        }),
    }
}

/// Declares exchanges and queues on its own channels, because a refusal closes the channel.
///
/// A user without the right to create something accepts it if it exists already. The coordinator
/// creates it, or the definitions of `dyad topology export` do.
pub(super) async fn declare(
    connection: &Connection,
    exchanges: &[Exchange],
    queues: &[Queue],
    patience: Duration,
) -> Result<(), BusError> {
    let mut declarer = Declarer {
        connection,
        patience,
        channel: None,
    };
    for exchange in exchanges {
        declarer.exchange(exchange).await?;
    }
    for queue in queues {
        declarer.exchange(&queue.exchange).await?;
        declarer.queue(queue).await?;
    }
    if let Some(channel) = declarer.channel {
        let _ = answer(patience, channel.close(200, short("declared"))).await;
    }
    Ok(())
}

/// The result of a declaration.
enum Made {
    Ours,
    /// It exists, and this user may not change it.
    Theirs,
}

#[derive(Clone, Copy)]
enum Thing<'a> {
    Exchange(&'a Exchange),
    Queue(&'a Queue),
}

impl fmt::Display for Thing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thing::Exchange(exchange) => write!(f, "exchange {}", exchange.name),
            Thing::Queue(queue) => write!(f, "queue {}", queue.name),
        }
    }
}

impl Thing<'_> {
    async fn declare(self, channel: &Channel, passive: bool) -> lapin::Result<()> {
        match self {
            Thing::Exchange(exchange) => declare_exchange(channel, exchange, passive).await,
            Thing::Queue(queue) => declare_queue(channel, queue, passive).await,
        }
    }
}

async fn declare_exchange(channel: &Channel, exchange: &Exchange, passive: bool) -> lapin::Result<()> {
    let kind = match exchange.kind {
        ExchangeKind::Direct => lapin::ExchangeKind::Direct,
        ExchangeKind::Topic => lapin::ExchangeKind::Topic,
        ExchangeKind::Fanout => lapin::ExchangeKind::Fanout,
    };
    let options = ExchangeDeclareOptions {
        passive,
        durable: true,
        ..Default::default()
    };
    let declared = channel.exchange_declare(short(&exchange.name), kind, options, FieldTable::default());
    declared.await
}

async fn declare_queue(channel: &Channel, queue: &Queue, passive: bool) -> lapin::Result<()> {
    let exclusive = queue.kind == QueueKind::Exclusive;
    let options = QueueDeclareOptions {
        passive,
        durable: !exclusive,
        exclusive,
        auto_delete: exclusive,
        ..Default::default()
    };
    let declared = channel.queue_declare(short(&queue.name), options, arguments(queue));
    declared.await.map(drop)
}

struct Declarer<'a> {
    connection: &'a Connection,
    patience: Duration,
    channel: Option<Channel>,
}

impl Declarer<'_> {
    async fn exchange(&mut self, exchange: &Exchange) -> Result<(), BusError> {
        self.make(Thing::Exchange(exchange)).await.map(drop)
    }

    async fn queue(&mut self, queue: &Queue) -> Result<(), BusError> {
        match self.make(Thing::Queue(queue)).await? {
            Made::Ours => self.bind(queue).await,
            // Its creator has bound it.
            Made::Theirs => Ok(()),
        }
    }

    async fn bind(&mut self, queue: &Queue) -> Result<(), BusError> {
        let channel = self.channel().await?;
        let bound = channel.queue_bind(
            short(&queue.name),
            short(&queue.exchange.name),
            short(&queue.routing_key),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        answer(self.patience, bound).await.map_err(|refusal| {
            refusal.declare(format!(
                "the binding of queue {} to exchange {}",
                queue.name, queue.exchange.name
            ))
        })
    }

    /// Declares a thing. If the user may not, it only checks that the thing exists (`passive`).
    async fn make(&mut self, thing: Thing<'_>) -> Result<Made, BusError> {
        let channel = self.channel().await?;
        let refusal = match answer(self.patience, thing.declare(&channel, false)).await {
            Ok(()) => return Ok(Made::Ours),
            Err(refusal) if refusal.forbidden => refusal.reason,
            Err(other) => return Err(other.declare(thing.to_string())),
        };
        let channel = self.channel().await?;
        match answer(self.patience, thing.declare(&channel, true)).await {
            Ok(()) => Ok(Made::Theirs),
            Err(absent) => Err(BusError::Declare {
                what: thing.to_string(),
                reason: format!(
                    "{refusal}; checking for it: {}. This user may not create it: import the definitions of `dyad topology \
                     export`, or start a coordinator first",
                    absent.reason
                ),
                forbidden: true,
            }),
        }
    }

    /// Returns the channel, or a new one after a refusal.
    async fn channel(&mut self) -> Result<Channel, BusError> {
        if let Some(channel) = &self.channel
            && channel.status().connected()
        {
            return Ok(channel.clone());
        }
        let opened = answer(self.patience, self.connection.create_channel()).await;
        let channel = opened.map_err(|refusal| BusError::Declare {
            what: "anything".into(),
            reason: format!("no channel could be opened: {}", refusal.reason),
            forbidden: refusal.forbidden,
        })?;
        self.channel = Some(channel.clone());
        Ok(channel)
    }
}

/// Returns the broker's reason if the broker closed a channel.
pub(super) fn refusal(error: &lapin::Error) -> Option<AMQPSoftError> {
    match error.kind() {
        lapin::ErrorKind::ProtocolError(refusal) => match refusal.kind() {
            AMQPErrorKind::Soft(why) => Some(why.clone()),
            AMQPErrorKind::Hard(_) => None,
        },
        _ => None,
    }
}

fn is_forbidden(error: &lapin::Error) -> bool {
    matches!(refusal(error), Some(AMQPSoftError::ACCESSREFUSED))
}

fn arguments(queue: &Queue) -> FieldTable {
    let mut table = FieldTable::default();
    for (key, value) in queue.arguments() {
        let value = match value {
            Argument::Text(text) => AMQPValue::LongString(text.into_bytes().into()),
            Argument::Number(number) => AMQPValue::LongLongInt(number),
            Argument::Flag(flag) => AMQPValue::Boolean(flag),
        };
        table.insert(short(key), value);
    }
    table
}

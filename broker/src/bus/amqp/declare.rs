//! Exchanges and queues on RabbitMQ, with arguments that 3.10 and 4.x take alike.

use std::future::Future;
use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection};

use super::wire::short;
use crate::bus::BusError;
use crate::topology::{DELIVERY_LIMIT, Exchange, ExchangeKind, Queue, QueueKind};

/// The dead letters are looked at again and again and must never fall out: as good as no limit. "No limit" itself means
/// opposite things to 3.10 and 4.x, and a missing one means 20 on 4.x.
const DEAD_LETTERS_LIMIT: i64 = 1_000_000_000;

/// Awaits an answer of the broker, which may never come.
pub(super) async fn answer<T>(patience: Duration, asked: impl Future<Output = lapin::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(patience, asked).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {patience:?}")),
    }
}

/// Declares on a channel of its own: a refusal closes the channel.
pub(super) async fn declare(
    connection: &Connection,
    exchanges: &[Exchange],
    queues: &[Queue],
    patience: Duration,
) -> Result<(), BusError> {
    let open = || BusError::Declare {
        what: "anything".into(),
        reason: "no channel could be opened".into(),
    };
    let channel = answer(patience, connection.create_channel())
        .await
        .map_err(|_| open())?;
    for exchange in exchanges {
        declare_exchange(&channel, exchange, patience).await?;
    }
    for queue in queues {
        declare_queue(&channel, queue, patience).await?;
    }
    let _ = answer(patience, channel.close(200, short("declared"))).await;
    Ok(())
}

async fn declare_exchange(channel: &Channel, exchange: &Exchange, patience: Duration) -> Result<(), BusError> {
    let kind = match exchange.kind {
        ExchangeKind::Direct => lapin::ExchangeKind::Direct,
        ExchangeKind::Topic => lapin::ExchangeKind::Topic,
        ExchangeKind::Fanout => lapin::ExchangeKind::Fanout,
    };
    let options = ExchangeDeclareOptions {
        durable: true,
        ..Default::default()
    };
    let declared = channel.exchange_declare(short(&exchange.name), kind, options, FieldTable::default());
    answer(patience, declared).await.map_err(|reason| BusError::Declare {
        what: format!("exchange {}", exchange.name),
        reason,
    })
}

async fn declare_queue(channel: &Channel, queue: &Queue, patience: Duration) -> Result<(), BusError> {
    let failed = |reason| BusError::Declare {
        what: format!("queue {}", queue.name),
        reason,
    };
    declare_exchange(channel, &queue.exchange, patience).await?;
    let exclusive = queue.kind == QueueKind::Exclusive;
    let options = QueueDeclareOptions {
        durable: !exclusive,
        exclusive,
        auto_delete: exclusive,
        ..Default::default()
    };
    let declared = channel.queue_declare(short(&queue.name), options, arguments(queue));
    answer(patience, declared).await.map_err(failed)?;
    let bound = channel.queue_bind(
        short(&queue.name),
        short(&queue.exchange.name),
        short(&queue.routing_key),
        QueueBindOptions::default(),
        FieldTable::default(),
    );
    answer(patience, bound).await.map_err(failed)
}

fn arguments(queue: &Queue) -> FieldTable {
    let mut table = FieldTable::default();
    let mut set = |key: &str, value: AMQPValue| {
        table.insert(short(key), value);
    };
    let text = |value: &str| AMQPValue::LongString(value.as_bytes().to_vec().into());
    let number = |value: u64| AMQPValue::LongLongInt(i64::try_from(value).unwrap_or(i64::MAX));
    set("x-max-length-bytes", number(queue.max_bytes));
    let limit = match queue.kind {
        QueueKind::Exclusive => return table,
        QueueKind::DeadLetters => DEAD_LETTERS_LIMIT,
        QueueKind::Durable {
            single_active_consumer,
            expires_after_seconds,
        } => {
            if single_active_consumer {
                set("x-single-active-consumer", AMQPValue::Boolean(true));
            }
            if let Some(seconds) = expires_after_seconds {
                set("x-expires", number(u64::from(seconds) * 1000));
            }
            DELIVERY_LIMIT
        }
    };
    set("x-queue-type", text("quorum"));
    set("x-overflow", text("reject-publish"));
    set("x-delivery-limit", AMQPValue::LongLongInt(limit));
    if let Some(dead) = queue.dead_letters() {
        set("x-dead-letter-exchange", text(&dead.exchange));
        set("x-dead-letter-routing-key", text(&dead.routing_key));
        set("x-dead-letter-strategy", text("at-least-once"));
    }
    table
}

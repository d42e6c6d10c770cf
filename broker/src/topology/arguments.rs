//! The arguments of a queue, in a form that RabbitMQ 3.10 and 4.x both accept.

use super::{DELIVERY_LIMIT, Queue, QueueKind};

/// Practically no limit: operators read the dead letters many times, and none may be dropped. "No
/// limit" itself means opposite things to 3.10 and 4.x, and a missing limit means 20 on 4.x.
const DEAD_LETTERS_LIMIT: i64 = 1_000_000_000;

/// The value of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    Text(String),
    Number(i64),
    Flag(bool),
}

impl Queue {
    /// Returns its arguments by name.
    #[must_use]
    pub fn arguments(&self) -> Vec<(&'static str, Argument)> {
        let number = |value: u64| Argument::Number(i64::try_from(value).unwrap_or(i64::MAX));
        let text = |value: &str| Argument::Text(value.to_owned());
        let mut arguments = vec![("x-max-length-bytes", number(self.max_bytes))];
        let limit = match self.kind {
            QueueKind::Exclusive => return arguments,
            QueueKind::DeadLetters => DEAD_LETTERS_LIMIT,
            QueueKind::Durable {
                single_active_consumer,
                expires_after_seconds,
            } => {
                if single_active_consumer {
                    arguments.push(("x-single-active-consumer", Argument::Flag(true)));
                }
                if let Some(seconds) = expires_after_seconds {
                    arguments.push(("x-expires", number(u64::from(seconds) * 1000)));
                }
                DELIVERY_LIMIT
            }
        };
        arguments.push(("x-queue-type", text("quorum")));
        arguments.push(("x-overflow", text("reject-publish")));
        arguments.push(("x-delivery-limit", Argument::Number(limit)));
        if let Some(dead) = self.dead_letters() {
            arguments.push(("x-dead-letter-exchange", Argument::Text(dead.exchange)));
            arguments.push(("x-dead-letter-routing-key", Argument::Text(dead.routing_key)));
            arguments.push(("x-dead-letter-strategy", text("at-least-once")));
        }
        arguments
    }
}

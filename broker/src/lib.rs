//! The data plane: protocol types, codec, names, message bus and conversation store.
//!
//! Read in this order: [`ids`], [`protocol`] (the messages), [`codec`] (their bytes), [`topology`]
//! (names of queues), [`bus`] (the queues), [`store`] (the progress of open conversations) and
//! [`users`] (permissions).
//!
//! The features `amqp` and `redis` add the clients of the real servers, RabbitMQ and Redis. The
//! pure crates use everything except these clients.

pub mod atomic_file;
pub mod bus;
pub mod clock;
pub mod codec;
pub mod fail;
pub mod ids;
pub mod local;
pub mod protocol;
pub mod seal;
pub mod store;
#[cfg(any(feature = "amqp", feature = "redis"))]
pub mod tls;
pub mod topology;
pub mod users;

pub use configs::{AgentName, NameError, RoleName};

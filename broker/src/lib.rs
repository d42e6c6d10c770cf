//! The data plane: protocol types, codec, names, message bus and conversation store.
//!
//! Reading order: [`ids`] (who is who), [`protocol`] (what travels), [`codec`] (as which bytes), [`topology`] (under which
//! names), [`bus`] (through which queues), [`store`] (where the progress of open conversations is kept) and [`users`] (who
//! may touch what). The pure crates see all of this but the clients of the real servers, which the features `amqp` and
//! `redis` add.

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

//! The data plane: protocol types, codec, names, message bus and conversation store.
//!
//! Reading order: [`ids`] (who is who), [`protocol`] (what travels), [`codec`] (as which bytes), [`topology`] (under which
//! names), [`bus`] (through which queues) and [`store`] (where the progress of open conversations is kept). The pure
//! crates see all of this but the clients of the real servers, which the features `amqp` and `redis` add.

pub mod bus;
pub mod codec;
pub mod ids;
pub mod local;
pub mod protocol;
pub mod store;
pub mod topology;

pub use configs::{AgentName, NameError, RoleName};

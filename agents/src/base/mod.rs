//! Basics for every layer: failures with their exit codes, retries, secrets, signals, locks, ids.

pub(crate) mod build_info;
pub mod fault;
pub mod ids;
pub mod locking;
pub mod log_scope;
pub(crate) mod outgoing;
#[cfg(test)]
pub(crate) mod ports;
pub(crate) mod request_guard;
pub mod retry;
pub mod runtime_check;
pub mod secret;
pub mod signals;
pub mod startup;

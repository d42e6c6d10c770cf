//! The composition root: actors, processes and the command line of dyad.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agent;
pub mod cli;
pub mod clients;
pub mod connect;
pub mod coordinator;
pub mod ended;
pub mod engine;
pub mod eval;
pub mod failure;
pub mod folder;
mod gone;
pub mod http;
pub mod ids;
pub mod ledger;
mod locking;
pub mod logs;
pub mod metrics;
pub mod models;
pub mod participant;
pub mod past;
pub mod pins;
#[cfg(test)]
mod ports;
pub mod progress;
pub mod report;
pub mod run;
pub mod schema;
pub mod sight;
pub mod signals;
#[cfg(test)]
mod sim;
pub mod snapshot;
pub mod stats;
pub mod strikes;
pub mod summary;
pub mod tasks;
pub mod telemetry;
pub mod telling;
pub mod up;

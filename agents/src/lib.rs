//! The actors, processes and command line of dyad. Each folder uses only folders of earlier layers.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agent;
pub mod base;
pub mod cli;
pub mod coordinator;
pub mod dashboard;
pub mod engine;
pub mod eval;
pub mod http;
pub mod ledger;
pub mod observe;
pub mod participant;
pub mod policy;
pub mod report;
pub mod run_folder;
#[cfg(test)]
mod sim;
pub mod stats;
#[cfg(test)]
mod testing;
pub mod traces;
pub mod turn;

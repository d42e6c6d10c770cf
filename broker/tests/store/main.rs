//! The conversation store in memory and in a real, private Redis.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used)]

mod contract;
mod faults;
mod harness;
mod login;
mod model;

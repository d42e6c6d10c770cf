//! The harness: runs the program from outside and reads the files that it leaves.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a harness fails by panicking"
)]

pub mod chaos;
pub mod decisions;
pub mod fleet;
pub mod imports;
pub mod kit;
pub mod letters;
pub mod mutate;
pub mod ports;
pub mod program;
pub mod proxy;
pub mod secured;
pub mod servers;
pub mod small;
pub mod trace;

//! The harness: drives the program from outside and looks at what it leaves behind.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a harness fails by panicking"
)]

pub mod program;
pub mod trace;

//! The bytes of the wire: golden files, and decoding of bytes that no healthy peer sends.
#![allow(clippy::unwrap_used)]

mod fuzz;
mod golden;
mod sample;

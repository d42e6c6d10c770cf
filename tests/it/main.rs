//! What the project promises, seen from outside.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod architecture;
mod arithmetic;
mod embedded;
mod processes;
mod published;

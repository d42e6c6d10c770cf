//! The groups that are played.

pub mod hosted;

//! Pure logic of conversations and learning: workflows, credit, graders, text, buffer rules, router policy.
//!
//! Nothing here does IO (but reading task and template files that the caller names, and looking names up in the Hub's cache), and clock and randomness are
//! arguments.

pub mod advantage;
pub mod batch;
mod byte_order_mark;
pub mod credit;
pub mod credit_operator;
pub mod grade;
pub mod group;
pub mod hub_cache;
pub mod judge;
pub mod own;
pub(crate) mod random;
pub mod router;
pub mod sample;
pub mod shaping;
pub mod shuffle;
pub mod staleness;
pub mod tasks;
pub mod text;
pub mod workflow;
pub mod workflows;

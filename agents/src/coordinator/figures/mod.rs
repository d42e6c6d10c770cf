//! What the coordinator counts.

pub mod conversation_stats;

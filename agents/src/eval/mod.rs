//! Evaluations outside of runs: conversations with weights of one's choosing, and what they came to.
//!
//! [`weights`] says which weights an agent plays with, [`engines`] serves them, [`play`] plays whole groups of conversations in
//! closed waves, so that the same weights and tasks give the same figures bit for bit, [`figures`] reads the numbers of a
//! conversation, [`score`] what many of them say together, [`cross`] puts trained and initial agents together.

pub mod cross;
pub mod engines;
pub mod pass_rates;
pub mod play;
pub mod pool;
pub mod score;
pub mod suites;
pub mod weights;

//! Evaluations outside of runs: conversations with chosen weights, and their figures.
//!
//! [`weights`] finds the weights of an agent, and [`engines`] serves them. [`play`] plays groups of
//! conversations in closed waves, so that the same weights and tasks give the same figures bit for
//! bit. [`score`] sums up many conversations. [`pass_rates`] lists how often each task was solved.
//! [`suites`] reads the tasks. [`cross`] combines trained and initial agents.

pub mod cross;
pub mod engines;
pub mod pass_rates;
pub mod play;
pub mod pool;
pub mod score;
pub mod suites;
pub mod weights;

//! From a finished group to its outcome and bundles, decided once and sent.

mod decided;
mod deliver;
pub mod journal;
mod message;
pub mod outcome;
mod unplayed;

pub use decided::{Decided, FinishedGroup};
pub use deliver::send_all;

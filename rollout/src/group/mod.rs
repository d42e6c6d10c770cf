//! One group on the coordinator's side. [`run`] plays its conversations and [`assemble`] makes one
//! bundle per agent from their rewards. `lengths` adds the one part that compares a group's
//! answers. [`parts`] cuts bundles so that they fit under the message cap.

pub mod assemble;
mod lengths;
mod member;
pub mod parts;
pub mod run;
mod wanted;

pub use assemble::{Assembled, GroupHead, GroupSummary, MemberEnd, Rules, assemble};
pub use lengths::compare_lengths;
pub use parts::{JoinError, RowTooLarge, digest, join, split};
pub use run::GroupRun;
pub use wanted::{Refusal, RunSpec, Wanted, abandoned};

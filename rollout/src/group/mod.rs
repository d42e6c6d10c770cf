//! One group on the coordinator's side: [`run`] its conversations, [`assemble`] what they earned into one bundle per agent,
//! (`lengths`: the one part that compares a group's answers) and cut those into [`parts`] under the message cap.

pub mod assemble;
mod lengths;
pub mod parts;
pub mod run;

pub use assemble::{Assembled, GroupHead, GroupSummary, MemberEnd, Rules, assemble};
pub use lengths::compare_lengths;
pub use parts::{JoinError, RowTooLarge, digest, join, split};
pub use run::{GroupRun, Refusal, RunSpec, Wanted, abandoned};

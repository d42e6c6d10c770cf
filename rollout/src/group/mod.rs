//! One group on the coordinator's side: [`run`] its conversations, [`assemble`] what they earned into one bundle per agent,
//! and cut those into [`parts`] under the message cap.

pub mod assemble;
pub mod parts;
pub mod run;

pub use assemble::{Assembled, GroupHead, GroupSummary, MemberEnd, Rules, assemble};
pub use parts::{JoinError, RowTooLarge, digest, join, split};
pub use run::{GroupRun, Refusal, RunSpec, Wanted};

//! Workflows: who speaks when, on what prompt, until when, and what each side earns.
//!
//! A workflow is a total, pure function of (task, seed, events so far). It keeps no state: the coordinator commits each
//! event once, in order, and asks [`Workflow::step`] what comes next; a coordinator that takes a conversation over asks the
//! same with the same events and gets the same answer.

pub mod contract;
mod events;
mod examples;
pub(crate) mod grading;
pub(crate) mod params;
pub(crate) mod part_weights;
pub(crate) mod profile;
pub mod program;
pub(crate) mod prompts;
mod protocol;
pub(crate) mod room;
pub mod shaped;
#[cfg(test)]
pub(crate) mod testing;
pub mod tools;
pub(crate) mod transcript;
pub mod unanswered;

pub(crate) use events::UNGRADED;
pub use events::{Ask, Event, Outcome, Part, RoleSpec, SeatReward, Step};
pub use grading::{Grades, Grading};
pub use params::{Params, check_roles, grader};
pub use protocol::{Player, Workflow, check_task, player};
pub use transcript::{Transcript, ask, reward, role};

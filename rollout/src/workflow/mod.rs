//! Workflows decide which role speaks next, on which prompt, when a conversation ends, and what
//! each seat earns.
//!
//! A workflow is a total, pure function of (task, seed, events so far). It keeps no state. The
//! coordinator commits each event once, in order, and calls [`Workflow::step`] for the next step. A
//! coordinator that takes a conversation over passes the same events and gets the same answer.

pub mod contract;
mod events;
mod examples;
pub(crate) mod grading;
mod needs;
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
pub use grading::{Grades, Grading, graded_role, share};
pub use needs::{Need, NeedKind, last_number};
pub use params::{Params, check_roles, grader};
pub use protocol::{Player, Workflow, check_task, player};
pub use transcript::{Transcript, ask, reward, role};

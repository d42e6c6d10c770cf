//! The agents and the other coordinators of the run.

pub mod gate;

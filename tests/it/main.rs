//! The promises of the project, tested from outside.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod alarm;
mod answer_judge;
mod architecture;
mod arithmetic;
mod averages;
mod cadence;
mod chaos;
mod converters;
mod crash_points;
mod dashboard;
mod data;
mod embedded;
mod engines;
mod evals;
mod external;
mod faults;
mod fuzz;
mod going_on;
mod gpu_pack;
mod http;
mod images;
mod interleavings;
mod judge;
mod layers;
mod login;
mod malformed;
mod no_room;
mod not_finite;
mod observe;
mod orders;
mod own_workflow;
mod pages;
mod past;
mod pinned;
mod poison;
mod privilege;
mod processes;
mod programs;
mod published;
mod ranks;
mod recipes;
mod recipes_actor;
mod recipes_pairs;
mod recipes_tools;
mod reference;
mod refused;
mod remote;
mod resume;
mod stalled;
mod stop;
mod suites;
mod tls;
mod traces;
mod users;
mod viewers;
mod wheel;

/// The program under test.
const DYAD: &str = env!("CARGO_BIN_EXE_dyad-under-test");

/// The program that users start, without libtorch.
const LIGHT: &str = env!("CARGO_BIN_EXE_dyad-light-under-test");

fn program() -> tests::program::Program {
    tests::program::Program::new(DYAD)
}

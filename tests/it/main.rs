//! What the project promises, seen from outside.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod architecture;
mod arithmetic;
mod averages;
mod cadence;
mod chaos;
mod converters;
mod crash_points;
mod data;
mod embedded;
mod engines;
mod evals;
mod faults;
mod fuzz;
mod going_on;
mod http;
mod images;
mod interleavings;
mod judge;
mod login;
mod malformed;
mod orders;
mod poison;
mod privilege;
mod processes;
mod programs;
mod published;
mod recipes;
mod recipes_pairs;
mod recipes_tools;
mod remote;
mod resume;
mod stop;
mod suites;
mod tls;
mod users;

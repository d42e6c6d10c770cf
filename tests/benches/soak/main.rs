//! Memory and queues of a long run, a full one and a flooded one. Over real servers, with two
//! coordinators and two agents of several scripted engines each. Every part ends with the audit;
//! nothing else is asserted.
//!
//! `make bench BENCH=soak ARGS='[soak CONVERSATIONS] [flight] [flood SECONDS]'`; all three without
//! ARGS.
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

mod flight;
mod flood;
mod look;
mod soak;

const BINARY: &str = env!("CARGO_BIN_EXE_dyad-under-test");

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let number = |name: &str, default: u64| {
        let at = args.iter().position(|arg| arg == name)?;
        Some(args.get(at + 1).and_then(|text| text.parse().ok()).unwrap_or(default))
    };
    let all = args.is_empty();
    if let Some(conversations) = number("soak", 100_000).or(all.then_some(100_000)) {
        soak::run(conversations);
    }
    if all || args.iter().any(|arg| arg == "flight") {
        flight::run();
    }
    if let Some(seconds) = number("flood", 120).or(all.then_some(120)) {
        flood::run(seconds);
    }
}

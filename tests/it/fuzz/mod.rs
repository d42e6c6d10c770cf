//! Every decoder against damaged input: it accepts or refuses, without a panic and with bounded
//! memory. Each test is one target and, under nextest, one process.
//!
//! `make fuzz SECONDS=60` runs them long and prints the number of inputs; without it they run
//! shortly. In a long run the present input is in the temporary folder as `dyad-fuzz-TARGET`.

mod http;
mod text;
mod wire;

use std::time::{Duration, Instant};

use tests::chaos::Dice;
use tests::mutate::damaged;

/// Inputs of a short run.
const SHORT: u64 = 3000;
/// Bytes by which a target may grow. A template's compiler reserves 256 MiB of address space in
/// addition.
const MEMORY: u64 = 768 << 20;

/// Feeds a target, which returns true if it accepted the input.
fn fuzz(name: &str, seeds: &[Vec<u8>], target: impl Fn(&[u8]) -> bool) {
    for seed in seeds {
        assert!(target(seed), "{name} refuses a healthy input: {}", shown(seed));
    }
    let seconds = std::env::var("DYAD_FUZZ_SECONDS").ok().filter(|text| !text.is_empty());
    let long = seconds.map(|text| Duration::from_secs(text.parse().expect("DYAD_FUZZ_SECONDS is a number")));
    let first = std::env::var("DYAD_FUZZ_SEED").map_or(1, |text| text.parse().expect("DYAD_FUZZ_SEED is a number"));
    // Peaks are per process: the figures are this target's alone only under nextest, which gives
    // each test a process.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let alone = std::env::var_os("NEXTEST").is_some();
    // A stack overflow ends the process without a message, so the input is kept in a file.
    let last = long.map(|_| std::env::temp_dir().join(format!("dyad-fuzz-{}", name.replace([' ', ','], "-"))));
    let (began, memory) = (Instant::now(), [peak("VmHWM:"), peak("VmPeak:")]);
    let (mut tried, mut taken, mut slowest) = (0, 0_u64, Duration::ZERO);
    while long.map_or(tried < SHORT, |long| began.elapsed() < long) {
        let input = damaged(seeds, &mut Dice(first + tried));
        // A panic prints the seed that repeats it.
        let trying = Trying {
            name,
            seed: first + tried,
            input: &input,
        };
        if let Some(last) = &last {
            std::fs::write(last, &input).unwrap();
        }
        let started = Instant::now();
        taken += u64::from(target(&input));
        slowest = slowest.max(started.elapsed());
        std::mem::forget(trying);
        tried += 1;
    }
    let grown = [peak("VmHWM:"), peak("VmPeak:")];
    let grown = [0, 1].map(|which| grown[which].saturating_sub(memory[which]));
    println!(
        "| {name} | {tried} | {:.1}% | {:.1} | {} |",
        100.0 * taken as f64 / tried.max(1) as f64,
        slowest.as_secs_f64() * 1000.0,
        grown[0] >> 20
    );
    assert!(
        !alone || grown.iter().all(|bytes| *bytes < MEMORY),
        "{name} took {grown:?} bytes"
    );
}

/// Prints the input if the target panics.
struct Trying<'a> {
    name: &'a str,
    seed: u64,
    input: &'a [u8],
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        let Self { name, seed, input } = self;
        eprintln!("{name}: DYAD_FUZZ_SEED={seed} plays it again: {}", shown(input));
    }
}

fn shown(input: &[u8]) -> String {
    String::from_utf8_lossy(&input[..input.len().min(2000)]).into_owned()
}

/// Returns the bytes in a line of this process's status.
fn peak(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    found.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

fn golden(names: &[&str]) -> Vec<Vec<u8>> {
    let folder = tests::program::Program::root().join("broker/golden");
    names
        .iter()
        .map(|name| std::fs::read(folder.join(name)).unwrap())
        .collect()
}

//! The memory of the page's process.

use std::path::PathBuf;

use super::{Pages, config, id, serve};
use crate::program;

/// The budget of a page's process, in KiB.
const BUDGET: u64 = 64 << 10;

/// The largest resident memory of a process so far, in KiB.
pub(super) fn peak(process: u32) -> u64 {
    let status = std::fs::read_to_string(PathBuf::from(format!("/proc/{process}/status"))).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[test]
fn page_takes_at_most_64_mib() {
    let program = program();
    let folder = program.play("run", &config().save(&program), &[]);
    let run = id(&folder);
    let running = serve(&program, "latest", &[]);
    let pages = Pages::of(&running);
    let listed = pages.json(&format!("/api/runs/{run}/conversations?limit=200"));
    let conversations = listed["conversations"].as_array().unwrap().iter();
    let ids: Vec<&str> = conversations.map(|one| one["conversation"].as_str().unwrap()).collect();
    for path in ["facts", "status", "audit", "logs", "series?name=train:reward/mean"] {
        pages.json(&format!("/api/runs/{run}/{path}"));
    }
    for id in ids {
        pages.json(&format!("/api/runs/{run}/conversations/{id}"));
    }
    let peak = peak(running.pid());
    assert!(peak <= BUDGET, "{peak} KiB");
}

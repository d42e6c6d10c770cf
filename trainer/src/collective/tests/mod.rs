//! Groups of real processes: a test starts its own binary again, once for each rank.

mod lost_peer;
mod operations;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use tch::Device;

use super::{C10d, Meeting, Store};
use crate::device::{of_tests, open_own};

const RANK: &str = "DYAD_TEST_RANK";
const RANKS: &str = "DYAD_TEST_RANKS";
const FOLDER: &str = "DYAD_TEST_FOLDER";
/// With `DYAD_TEST_NCCL=1` and `DYAD_TEST_DEVICE=cuda:0`, each rank has the GPU of its number, and
/// NCCL connects them.
const NCCL: &str = "DYAD_TEST_NCCL";
const DEVICE: &str = "DYAD_TEST_DEVICE";

/// This process as a rank of a test.
pub(crate) struct Member {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// Shared by the ranks and the process that started them.
    pub(crate) folder: PathBuf,
}

impl Member {
    /// Returns `None` in the process that starts the ranks.
    pub(crate) fn here() -> Option<Self> {
        let number = |name: &str| std::env::var(name).ok()?.parse().ok();
        let member = Self {
            rank: number(RANK)?,
            ranks: number(RANKS)?,
            folder: std::env::var_os(FOLDER)?.into(),
        };
        std::fs::write(mark(&member.folder, member.rank), "").unwrap();
        Some(member)
    }

    /// Joins the group of this name; each name has a store of its own.
    pub(crate) fn join(&self, name: &str, timeout: Duration) -> C10d {
        C10d::join(&self.meeting(name, timeout)).unwrap()
    }

    pub(crate) fn meeting(&self, name: &str, timeout: Duration) -> Meeting {
        Meeting {
            store: Store::File(self.folder.join(format!("store-{name}"))),
            name: name.into(),
            address: "127.0.0.1".into(),
            rank: self.rank,
            world_size: self.ranks,
            start: Duration::from_secs(60),
            timeout,
            gpu: gpu(),
        }
    }
}

/// Returns true if each rank has a GPU of its own.
fn by_nccl() -> bool {
    let is = |name, check: fn(&str) -> bool| std::env::var(name).is_ok_and(|value| check(&value));
    is(NCCL, |value| value == "1") && is(DEVICE, |value| value.starts_with("cuda"))
}

/// The GPU of this rank's tensors that go through NCCL.
fn gpu() -> Option<usize> {
    match of_tests() {
        Device::Cuda(index) if by_nccl() => {
            open_own().unwrap();
            Some(index)
        }
        _ => None,
    }
}

/// The file that a rank leaves when it begins. A name that no test has would start none, and
/// succeed.
fn mark(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("began-{rank}"))
}

/// The processes of a test's ranks. They end with this value.
pub(crate) struct Started {
    pub(crate) ranks: Vec<Child>,
    folder: PathBuf,
}

impl Started {
    /// Starts `test`, named by its path in the crate, as each of `ranks`.
    pub(crate) fn new(test: &str, ranks: usize, folder: &Path) -> Self {
        Self::armed(test, ranks, folder, "")
    }

    /// The same, with failpoints.
    pub(crate) fn armed(test: &str, ranks: usize, folder: &Path, points: &str) -> Self {
        let start = |rank: usize| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            if by_nccl() {
                command.env(DEVICE, format!("cuda:{rank}"));
            }
            command
                .args(["--exact", test, "--include-ignored", "--nocapture", "--test-threads=1"])
                .env(RANK, rank.to_string())
                .env(RANKS, ranks.to_string())
                .env(FOLDER, folder)
                .env("DYAD_FAILPOINTS", points)
                .spawn()
                .unwrap()
        };
        // Ranks that are started again leave new marks.
        for rank in 0..ranks {
            let _ = std::fs::remove_file(mark(folder, rank));
        }
        Self {
            ranks: (0..ranks).map(start).collect(),
            folder: folder.to_owned(),
        }
    }

    /// Waits for all ranks; each must succeed.
    pub(crate) fn succeed(mut self) {
        (0..self.ranks.len()).for_each(|rank| self.succeeds(rank));
    }

    /// Waits for one rank, which must succeed.
    pub(crate) fn succeeds(&mut self, rank: usize) {
        let status = self.ranks[rank].wait().unwrap();
        assert!(status.success(), "rank {rank} ended with {status}");
        assert!(mark(&self.folder, rank).exists(), "rank {rank} ran no test");
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for child in &mut self.ranks {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts `test` as each of `ranks` and waits for them.
pub(crate) fn in_ranks(test: &str, ranks: usize) {
    let folder = tempfile::tempdir().unwrap();
    Started::new(test, ranks, folder.path()).succeed();
}

#[test]
#[should_panic(expected = "ran no test")]
fn ranks_of_an_unknown_test_fail() {
    in_ranks("collective::tests::renamed", 1);
}

/// Returns megabytes of this process, by their name in `/proc/self/status`.
pub(crate) fn megabytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>().unwrap() >> 10
}

/// Returns the megabytes that `work` needs at its peak. It runs once before: what a process takes
/// for good at the first call, such as pages of libtorch's code, depends on the processor.
pub(crate) fn peak_of(mut work: impl FnMut()) -> u64 {
    work();
    let before = reset_peak();
    work();
    megabytes("VmHWM").saturating_sub(before)
}

/// Resets this process's peak memory, `VmHWM`. Returns the megabytes that it holds now.
pub(crate) fn reset_peak() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    megabytes("VmRSS")
}

//! The bytes that a checkpoint moves between a trainer and its files.

use broker::protocol::train::TrainCommand;

use super::memory::large;
use super::*;
use crate::train::TrainerClient;

/// Returns the bytes that this process has read and written with system calls.
fn moved() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    ["rchar:", "wchar:"].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse().unwrap()
    })
}

/// A state of 177 MB is written once and not read back. A load reads it once for its digests; its
/// values come from the mapped files.
#[test]
fn a_checkpoint_is_written_once_and_read_once() {
    let Some(_) = Member::here() else {
        return in_ranks(
            "train::tests::ranks::moved::a_checkpoint_is_written_once_and_read_once",
            1,
        );
    };
    let folder = tempfile::tempdir().unwrap();
    let whole = Weights::random(&large(), INIT, 1).unwrap();
    let state = 3 * 4 * whole.layout().numel() as u64;
    let mut trainer = Trainer::new(large(), whole, options(false)).unwrap();
    let path = folder.path().display().to_string();
    let mut run = |command| {
        let before = moved();
        trainer.execute(command).unwrap();
        let after = moved();
        [0, 1].map(|way| after[way] - before[way])
    };
    let [read, written] = run(TrainCommand::SaveState {
        seq: 1,
        path: path.clone(),
        meta: "{}".into(),
    });
    let small = 1 << 20;
    assert!(read < small, "a save read {read} bytes");
    assert!(
        (state..state + small).contains(&written),
        "a save wrote {written} bytes"
    );
    let [read, written] = run(TrainCommand::LoadState { seq: 2, path });
    assert!((state..state + small).contains(&read), "a load read {read} bytes");
    assert!(written < small, "a load wrote {written} bytes");
}

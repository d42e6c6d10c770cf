//! A rank that dies or hangs ends the group for the others, with an error that names the operation.

use std::time::{Duration, Instant};

use tch::{Device, Kind, Tensor};

use super::{Member, Started};
use crate::collective::{C10d, Collective, CollectiveError, Patience};

const SHORT: Duration = Duration::from_secs(2);

/// Waits until the file is there.
fn wait_for(path: &std::path::Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no {}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Rank 1 reports that it is here, then waits to be killed or stopped; rank 0 returns the error.
fn lose(member: &Member, patience: Patience) -> CollectiveError {
    let group = member.join("group", SHORT);
    group.barrier().unwrap();
    if member.rank == 1 {
        std::fs::write(member.folder.join("here"), "").unwrap();
        std::thread::sleep(Duration::from_secs(120));
    }
    wait_for(&member.folder.join("lost"));
    let mut value = Tensor::ones([100], (Kind::Float, Device::Cpu));
    group.broadcast(&mut value, 1, patience).unwrap_err()
}

/// Starts two ranks, sends rank 1 a signal, and waits for rank 0.
fn signal(test: &str, signal: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut ranks = Started::new(test, 2, folder.path());
    wait_for(&folder.path().join("here"));
    let id = ranks.ranks[1].id().to_string();
    let sent = std::process::Command::new("kill").args([signal, &id]).status().unwrap();
    assert!(sent.success());
    std::fs::write(folder.path().join("lost"), "").unwrap();
    ranks.succeeds(0);
}

#[test]
fn killed_peer_ends_the_group_at_once() {
    let Some(member) = Member::here() else {
        return signal(
            "collective::tests::lost_peer::killed_peer_ends_the_group_at_once",
            "-KILL",
        );
    };
    let begun = Instant::now();
    let error = lose(&member, Patience::Idle);
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert!(
        matches!(
            error,
            CollectiveError::Peer {
                rank: 0,
                world_size: 2,
                ..
            }
        ),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("broadcast on rank 0 of 2") && text.contains("start all ranks again"),
        "{text}"
    );
}

#[test]
fn stopped_peer_ends_the_group_after_the_timeout() {
    let Some(member) = Member::here() else {
        return signal(
            "collective::tests::lost_peer::stopped_peer_ends_the_group_after_the_timeout",
            "-STOP",
        );
    };
    let error = lose(&member, Patience::Step);
    let CollectiveError::TimedOut { waited, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(*waited >= SHORT && *waited < SHORT * 10, "{waited:?}");
    let text = error.to_string();
    assert!(
        text.contains("broadcast on rank 0 of 2") && text.contains("hangs"),
        "{text}"
    );
}

#[test]
fn rank_of_an_earlier_start_meets_nobody() {
    let Some(member) = Member::here() else {
        let folder = tempfile::tempdir().unwrap();
        return Started::new(
            "collective::tests::lost_peer::rank_of_an_earlier_start_meets_nobody",
            2,
            folder.path(),
        )
        .succeed();
    };
    let mut meeting = member.meeting("group", SHORT);
    meeting.name = format!("generation-{}", member.rank);
    meeting.start = SHORT;
    let error = C10d::join(&meeting).err().unwrap();
    assert!(
        matches!(error, CollectiveError::Join { world_size: 2, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("did not meet the others"), "{error}");
}

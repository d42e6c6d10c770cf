//! Joint snapshots: nothing new is begun, open groups are finished or voided, every agent writes
//! its checkpoint, and one manifest names them all. Nothing is in flight then, so no queue is
//! saved.

use std::time::Duration;

use broker::ids::GroupId;
use broker::protocol::control::SnapshotDone;
use tokio::time::Instant;

use super::admission::Admitting;

/// Time for agents to write their checkpoints, and for bundles under way to arrive.
const WRITING: Duration = Duration::from_secs(120);

/// The snapshot under way, and the newest one that has ended.
#[derive(Default)]
pub(crate) struct Snapshots {
    current: Option<Snapshot>,
    done: Option<SnapshotDone>,
}

struct Snapshot {
    name: String,
    /// Until when open groups may finish.
    until: Instant,
    /// Until when all must be done.
    give_up: Instant,
    voided: u64,
    /// Agents are asked for their checkpoints.
    asking: bool,
    /// Groups that are claimed again when it is done.
    held_back: Vec<(GroupId, Admitting)>,
}

/// What a snapshot depends on.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Surroundings {
    /// Groups that train are being played.
    pub plays: bool,
    /// Groups are being played or claimed, or a synchronous evaluation runs.
    pub moves: bool,
    /// The gate finds every agent idle.
    pub idle: bool,
    /// The gate finds that nothing moves at any agent.
    pub still: bool,
    /// Every agent that trains has written its checkpoint for this snapshot.
    pub saved: bool,
}

/// What a snapshot does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SnapshotStep {
    AskForCheckpoints,
    VoidOpenGroups,
    WriteManifest,
    Fail(String),
}

impl Snapshots {
    /// Begins a snapshot, unless it was made already or another one is under way.
    pub(crate) fn begin(&mut self, name: String, patience: Duration) {
        let made = self.done.as_ref().is_some_and(|done| done.snapshot == name);
        if made || self.current.is_some() {
            return;
        }
        tracing::info!(name, "a joint snapshot: nothing new is begun until it is there");
        let until = Instant::now() + patience;
        self.current = Some(Snapshot {
            name,
            until,
            give_up: until + WRITING,
            voided: 0,
            asking: false,
            held_back: Vec::new(),
        });
    }

    #[must_use]
    pub(crate) fn is_under_way(&self) -> bool {
        self.current.is_some()
    }

    #[must_use]
    pub(crate) fn name(&self) -> Option<&str> {
        self.current.as_ref().map(|snapshot| snapshot.name.as_str())
    }

    /// The snapshot for which checkpoints are wanted now.
    #[must_use]
    pub(crate) fn asked(&self) -> Option<String> {
        let snapshot = self.current.as_ref().filter(|snapshot| snapshot.asking)?;
        Some(snapshot.name.clone())
    }

    /// The newest snapshot that has ended.
    #[must_use]
    pub(crate) fn done(&self) -> Option<SnapshotDone> {
        self.done.clone()
    }

    /// Keeps a group that would be claimed until the snapshot has ended. Without a snapshot the
    /// group is returned.
    pub(crate) fn hold_back(&mut self, group: GroupId, admitting: Admitting) -> Option<Admitting> {
        match self.current.as_mut() {
            Some(snapshot) => {
                snapshot.held_back.push((group, admitting));
                None
            }
            None => Some(admitting),
        }
    }

    /// Keeps an open group that was voided. It is played from its beginning afterwards.
    pub(crate) fn void(&mut self, group: GroupId, admitting: Admitting) {
        if let Some(snapshot) = self.current.as_mut() {
            snapshot.voided += 1;
            snapshot.held_back.push((group, admitting));
        }
    }

    /// What the snapshot under way does next, if anything.
    pub(crate) fn next_step(&mut self, around: Surroundings) -> Option<SnapshotStep> {
        let snapshot = self.current.as_mut()?;
        let (asking, now) = (snapshot.asking, Instant::now());
        let late = now > snapshot.until;
        if asking && around.saved {
            Some(SnapshotStep::WriteManifest)
        } else if !asking && !around.moves && (around.idle || (late && around.still)) {
            snapshot.asking = true;
            Some(SnapshotStep::AskForCheckpoints)
        } else if now > snapshot.give_up {
            let missing = if asking { "checkpoints" } else { "bundles or batches" };
            Some(SnapshotStep::Fail(format!(
                "{missing} were not finished in {WRITING:?}: see `dyad status` for who is behind"
            )))
        } else if !asking && around.plays && late {
            Some(SnapshotStep::VoidOpenGroups)
        } else {
            None
        }
    }

    /// Ends the snapshot. Returns the groups to claim again.
    pub(crate) fn end(&mut self, error: Option<String>) -> Vec<(GroupId, Admitting)> {
        let Some(snapshot) = self.current.take() else {
            return Vec::new();
        };
        let (name, voided) = (&snapshot.name, snapshot.voided);
        match &error {
            None => tracing::info!(name, voided, "the joint snapshot is written"),
            Some(error) => tracing::error!(name, error, "there is no joint snapshot"),
        }
        self.done = Some(SnapshotDone {
            snapshot: snapshot.name,
            voided,
            error,
        });
        snapshot.held_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_asks_when_nothing_moves_and_ends_once() {
        let mut snapshots = Snapshots::default();
        let patience = Duration::from_secs(10);
        snapshots.begin("s".into(), patience);
        let plays = Surroundings {
            plays: true,
            moves: true,
            ..Surroundings::default()
        };
        assert_eq!(snapshots.next_step(plays), None, "open groups may finish");
        tokio::time::advance(patience + Duration::from_secs(1)).await;
        assert_eq!(snapshots.next_step(plays), Some(SnapshotStep::VoidOpenGroups));
        let still = Surroundings {
            still: true,
            ..Surroundings::default()
        };
        assert_eq!(snapshots.next_step(still), Some(SnapshotStep::AskForCheckpoints));
        assert_eq!(snapshots.asked().as_deref(), Some("s"));
        let saved = Surroundings { saved: true, ..still };
        assert_eq!(snapshots.next_step(saved), Some(SnapshotStep::WriteManifest));
        assert!(snapshots.end(None).is_empty() && !snapshots.is_under_way());
        snapshots.begin("s".into(), patience);
        assert!(!snapshots.is_under_way(), "it was made");
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_fails_when_checkpoints_do_not_come() {
        let mut snapshots = Snapshots::default();
        snapshots.begin("s".into(), Duration::ZERO);
        let idle = Surroundings {
            idle: true,
            ..Surroundings::default()
        };
        assert_eq!(snapshots.next_step(idle), Some(SnapshotStep::AskForCheckpoints));
        tokio::time::advance(WRITING + Duration::from_secs(1)).await;
        let failed = snapshots.next_step(idle);
        assert!(matches!(failed, Some(SnapshotStep::Fail(error)) if error.contains("checkpoints")));
    }
}

//! Joint snapshots: nothing new is begun, what is open is finished or voided, then every agent writes its checkpoint, and one
//! manifest names them all. Nothing is in flight at that instant, so no queue is saved.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use actix::{AsyncContext, Context};
use broker::ids::GroupId;
use broker::protocol::control::SnapshotDone;
use configs::Mode;
use tokio::time::Instant;

use crate::coordinator::actor::{Coordinator, Input, Purpose};
use crate::coordinator::admission::Admitting;
use crate::base::retry;
use crate::ledger::snapshot::Manifest;

/// What agents are given to write their checkpoints, and bundles under way to arrive.
const WRITING: Duration = Duration::from_secs(120);

/// A snapshot being made.
pub struct Snapshot {
    name: String,
    /// Until when open groups may finish.
    until: Instant,
    /// Until when all must be done.
    give_up: Instant,
    voided: u64,
    /// Agents are asked for their checkpoints.
    asking: bool,
    /// Groups that are claimed anew when it is done.
    held_back: Vec<(GroupId, Admitting)>,
}

impl Coordinator {
    pub(in crate::coordinator) fn begin_snapshot(&mut self, name: String, patience: Duration) {
        let made = self.snapshot_done.as_ref().is_some_and(|done| done.snapshot == name);
        if made || self.snapshot.is_some() {
            return;
        }
        tracing::info!(name, "a joint snapshot: nothing new is begun until it is there");
        let until = Instant::now() + patience;
        self.snapshot = Some(Snapshot {
            name,
            until,
            give_up: until + WRITING,
            voided: 0,
            asking: false,
            held_back: Vec::new(),
        });
    }

    /// The snapshot for which checkpoints are wanted now.
    pub(in crate::coordinator) fn asked_snapshot(&self) -> Option<String> {
        let snapshot = self.snapshot.as_ref().filter(|snapshot| snapshot.asking)?;
        Some(snapshot.name.clone())
    }

    /// Keeps a group that would be claimed for after the snapshot; gives it back if there is none.
    pub(in crate::coordinator) fn hold_back(&mut self, group: GroupId, admitting: Admitting) -> Option<Admitting> {
        match self.snapshot.as_mut() {
            Some(snapshot) => {
                snapshot.held_back.push((group, admitting));
                None
            }
            None => Some(admitting),
        }
    }

    pub(in crate::coordinator) fn advance_snapshot(&mut self, ctx: &mut Context<Self>) {
        let Some(snapshot) = &self.snapshot else { return };
        let (asking, now) = (snapshot.asking, Instant::now());
        let played = self.open.values().any(|open| open.purpose == Purpose::Train);
        // Asynchronous evaluations are in no ledger and move nobody: a checkpoint may be written beside them.
        let evaluates = self.env.config.run.mode == Mode::Sync && self.evals.running();
        let moving = played || !self.claiming.is_empty() || evaluates;
        if asking && self.all_saved() {
            let outcome = self.write_manifest();
            self.end_snapshot(outcome.err().map(|error| format!("{error:#}")), ctx);
        } else if !asking && !moving && (self.gate.idle() || (now > snapshot.until && self.gate.still())) {
            self.ask_for_checkpoints();
        } else if now > snapshot.give_up {
            let missing = if asking { "checkpoints" } else { "bundles or batches" };
            let error = format!("{missing} were not finished in {WRITING:?}: see `dyad status` for who is behind");
            self.end_snapshot(Some(error), ctx);
        } else if !asking && played && now > snapshot.until {
            self.void_open();
        }
    }

    fn ask_for_checkpoints(&mut self) {
        if let Some(snapshot) = self.snapshot.as_mut() {
            snapshot.asking = true;
        }
        self.say_beat();
    }

    /// Forgets what is played and not yet being sent. Its rows stay reserved: it is played from its beginning afterwards.
    fn void_open(&mut self) {
        // Of a round that is sent whole nothing is being sent while anything is played.
        let unsent: BTreeSet<GroupId> = self.round.drain(..).map(|decided| decided.lease.group).collect();
        let groups: Vec<GroupId> = self
            .open
            .iter()
            .filter(|(group, open)| open.purpose == Purpose::Train && (!open.closing || unsent.contains(*group)))
            .map(|(group, _)| *group)
            .collect();
        let mut leases = Vec::new();
        for group in groups {
            let Some(open) = self.open.remove(&group) else { continue };
            self.dirty.remove(&group);
            leases.extend(open.lease);
            let admitting = Admitting::reserved(open);
            if let Some(snapshot) = self.snapshot.as_mut() {
                snapshot.voided += 1;
                snapshot.held_back.push((group, admitting));
            }
        }
        // What is on its way belongs to attempts that are no more.
        self.wave = None;
        let store = self.env.store.clone();
        tokio::spawn(async move {
            for lease in leases {
                // Stale: another has it, and the next claim will say so.
                let _ = retry::settle("void", || store.void(lease)).await;
            }
        });
    }

    fn all_saved(&self) -> bool {
        let Some(snapshot) = &self.snapshot else { return false };
        let saved = |name| {
            let beat = self.beats.get(&name).map(|(beat, _)| beat);
            beat.and_then(|beat| beat.saved.as_ref())
                .is_some_and(|saved| saved.snapshot == snapshot.name)
        };
        self.env.trainers().into_iter().all(saved)
    }

    fn write_manifest(&self) -> anyhow::Result<()> {
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        let agents: BTreeMap<_, _> = self
            .env
            .trainers()
            .into_iter()
            .filter_map(|name| Some((name.clone(), self.beats.get(&name)?.0.saved.clone()?)))
            .collect();
        Manifest::new(&self.env.run, &snapshot.name, agents).write(&self.env.folder)
    }

    fn end_snapshot(&mut self, error: Option<String>, ctx: &mut Context<Self>) {
        let Some(snapshot) = self.snapshot.take() else { return };
        match &error {
            None => tracing::info!(
                name = snapshot.name,
                voided = snapshot.voided,
                "the joint snapshot is written"
            ),
            Some(error) => tracing::error!(name = snapshot.name, error, "there is no joint snapshot"),
        }
        self.snapshot_done = Some(SnapshotDone {
            snapshot: snapshot.name,
            voided: snapshot.voided,
            error,
        });
        for (group, admitting) in snapshot.held_back {
            self.claim(group, admitting, ctx);
        }
        self.say_beat();
        // Others may wait for what was held back.
        ctx.notify(Input::Nothing);
    }
}

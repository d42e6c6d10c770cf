//! Moves a joint snapshot on.

use std::collections::BTreeMap;

use actix::{AsyncContext, Context};
use broker::ids::GroupId;

use super::Coordinator;
use crate::coordinator::admission::{Admitting, store};
use crate::coordinator::input::Input;
use crate::coordinator::snapshot::{SnapshotStep, Surroundings};
use crate::ledger::snapshot::SnapshotManifest;

impl Coordinator {
    pub(super) fn advance_snapshot(&mut self, ctx: &mut Context<Self>) {
        if !self.snapshots.is_under_way() {
            return;
        }
        let around = self.surroundings();
        match self.snapshots.next_step(around) {
            Some(SnapshotStep::AskForCheckpoints) => self.send_beat(),
            Some(SnapshotStep::VoidOpenGroups) => self.void_open(),
            Some(SnapshotStep::WriteManifest) => {
                let outcome = self.write_manifest();
                self.end_snapshot(outcome.err().map(|error| format!("{error:#}")), ctx);
            }
            Some(SnapshotStep::Fail(error)) => self.end_snapshot(Some(error), ctx),
            None => {}
        }
    }

    fn surroundings(&self) -> Surroundings {
        let plays = self.play.training().next().is_some();
        // Asynchronous evaluations are in no ledger and change no agent: checkpoints may be written
        // while they run.
        let evaluates = self.is_sync() && self.evals.is_running();
        let gate = self.peers.gate();
        Surroundings {
            plays,
            moves: plays || !self.admission.none_is_claimed() || evaluates,
            idle: gate.idle(),
            still: gate.still(),
            saved: self.all_saved(),
        }
    }

    /// Forgets what is played and not yet being sent. Its rows stay reserved: it is played from its
    /// beginning afterwards.
    fn void_open(&mut self) {
        // No group of a round is being sent while any of its groups is played.
        let unsent = self.rounds.take_unsent();
        let training = self.play.training();
        let voided = training.filter(|(group, open)| !open.closing || unsent.contains(*group));
        let groups: Vec<GroupId> = voided.map(|(group, _)| *group).collect();
        let mut leases = Vec::new();
        for group in groups {
            let Some(open) = self.play.remove(&group) else { continue };
            leases.extend(open.lease);
            self.snapshots.void(group, Admitting::reserved(open));
        }
        self.play.drop_wave();
        store::void_all(&self.env, leases);
    }

    fn all_saved(&self) -> bool {
        let Some(name) = self.snapshots.name() else {
            return false;
        };
        let saved = |agent| self.peers.saved(&agent).is_some_and(|saved| saved.snapshot == name);
        self.env.trainers().into_iter().all(saved)
    }

    fn write_manifest(&self) -> anyhow::Result<()> {
        let Some(name) = self.snapshots.name() else {
            return Ok(());
        };
        let trainers = self.env.trainers().into_iter();
        let saved = trainers.filter_map(|agent| Some((agent.clone(), self.peers.saved(&agent)?.clone())));
        let agents: BTreeMap<_, _> = saved.collect();
        SnapshotManifest::new(&self.env.run, name, agents).write(&self.env.folder)
    }

    fn end_snapshot(&mut self, error: Option<String>, ctx: &mut Context<Self>) {
        for (group, admitting) in self.snapshots.end(error) {
            self.claim(group, admitting, ctx);
        }
        self.send_beat();
        // Other groups may wait for those that were held back.
        ctx.notify(Input::Nothing);
    }
}

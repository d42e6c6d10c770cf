//! Heartbeats: ours, the agents', and those of other coordinators.

use std::collections::BTreeMap;

use actix::Context;
use broker::AgentName;
use broker::codec;
use broker::protocol::Kind;
use broker::protocol::control::{Beat, CoordinatorBeat, RunPhase};
use broker::topology::Speaker;

use super::Coordinator;
use crate::base::fault::Usage;
use crate::base::log_scope;
use crate::base::outgoing::{self, Addressed};
use crate::coordinator::peers::yields_run;

impl Coordinator {
    pub(super) fn send_beat(&mut self) {
        let (seq, counters) = (self.clock.next_beat(), self.figures.counters());
        let (phase, held) = (self.lifecycle.phase(), self.held_groups());
        self.figures.observed().beat(phase, held, counters.stale_results);
        let beat = Beat::Coordinator(CoordinatorBeat {
            incarnation: self.env.incarnation.clone(),
            seq,
            phase,
            open_groups: held,
            finished_groups: counters.groups,
            finished_conversations: counters.conversations,
            dead_tasks: counters.dead_tasks,
            turns: counters.turns,
            run: self.lifecycle.run(),
            drained: self.drained(),
            snapshot: self.snapshots.asked(),
            snapshot_done: self.snapshots.done(),
            hold: self.asked_hold(),
            evaluates_at: self.evaluates_at(),
            evaluating: self.evals.is_running(),
            evaluated: self.evals.newest(),
            stalled: self.lifecycle.stalled(),
            requested: self.requested_turns(),
            pid: std::process::id(),
        });
        let to = self.env.topology.to_control(Speaker::Coordinator);
        let message = outgoing::durable(to, Kind::Heartbeat, codec::encode_json(&beat))
            .with_id(format!("{}-{seq}", self.env.incarnation))
            .with_headers([("run", self.env.run.to_string())])
            .transient();
        let bus = self.env.bus.clone();
        log_scope::spawn(async move {
            if let Err(error) = bus.publish(message).await {
                tracing::debug!(%error, "a heartbeat was not sent");
            }
        });
    }

    /// The number of unanswered turns by agent.
    fn requested_turns(&self) -> BTreeMap<AgentName, u64> {
        let mut requested = BTreeMap::new();
        for (_, open) in self.play.iter() {
            for role in open.run.outstanding_roles() {
                if let Some(player) = self.specs.player(open.purpose, role) {
                    *requested.entry(player.agent).or_default() += 1;
                }
            }
        }
        requested
    }

    pub(super) fn on_beat(&mut self, beat: Beat, ctx: &mut Context<Self>) {
        match beat {
            Beat::Agent(beat) => {
                let agent = beat.agent.clone();
                if self.peers.take_agent_beat(beat) {
                    self.ask_whole_wave(&agent, ctx);
                }
            }
            Beat::Coordinator(beat) if beat.incarnation != self.env.incarnation => self.on_other(beat),
            Beat::Coordinator(_) => {}
        }
    }

    fn on_other(&mut self, beat: CoordinatorBeat) {
        if self.lifecycle.phase() != RunPhase::Starting && beat.run > self.lifecycle.run() {
            self.adopt(beat.run);
        }
        let (us, phase) = (self.env.incarnation.as_str(), self.lifecycle.phase());
        if self.is_sync() && yields_run((us, phase), (beat.incarnation.as_str(), beat.phase)) {
            return self.leave_run_to(&beat);
        }
        if let Some(made) = beat.evaluated {
            self.evals.made_elsewhere(made);
        }
        if beat.evaluating && self.evals.is_running() && self.env.incarnation < beat.incarnation {
            // The other coordinator began before it received our heartbeat. It gives its evaluation
            // up when it receives this one.
            self.send_beat();
        }
        self.peers.take_coordinator_beat(beat);
    }

    fn leave_run_to(&mut self, other: &CoordinatorBeat) {
        self.lifecycle.stop();
        let message = format!(
            "coordinator {} (process {}) coordinates this run already, and a synchronous run has one: its rounds are \
             counted in one place",
            other.incarnation, other.pid
        );
        let usage = Usage::new(message).hint("stop that one first, or set run.mode = \"async\"");
        self.end(Err(usage.into()));
    }
}

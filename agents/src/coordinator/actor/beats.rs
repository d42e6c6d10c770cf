//! Heartbeats: ours, the agents', and those of other coordinators.

use std::time::Duration;

use actix::Context;
use broker::bus::Outgoing;
use broker::codec;
use broker::protocol::Kind;
use broker::protocol::control::{Beat, CoordinatorBeat, Heartbeat, RunPhase};
use broker::topology::Speaker;
use configs::Mode;
use tokio::time::Instant;

use crate::coordinator::actor::Coordinator;
use crate::base::fault::Usage;

/// Who was not heard for so long is not there.
const SILENT: Duration = Duration::from_secs(3);

impl Coordinator {
    pub(in crate::coordinator) fn say_beat(&mut self) {
        self.seq += 1;
        self.last_beat = Some(Instant::now());
        let beat = Beat::Coordinator(CoordinatorBeat {
            incarnation: self.env.incarnation.clone(),
            seq: self.seq,
            phase: self.run.phase,
            open_groups: self.held_groups(),
            finished_groups: self.counters.groups,
            finished_conversations: self.counters.conversations,
            dead_tasks: self.counters.dead_tasks,
            turns: self.counters.turns,
            run: self.run,
            drained: self.drained(),
            snapshot: self.asked_snapshot(),
            snapshot_done: self.snapshot_done.clone(),
            hold: self.asked_hold(),
            evaluates_at: self.evaluates_at(),
            evaluating: self.evals.running(),
            evaluated: self.evals.newest(),
            pid: std::process::id(),
        });
        let message = Outgoing {
            to: self.env.topology.to_control(Speaker::Coordinator),
            kind: Kind::Heartbeat,
            message_id: format!("{}-{}", self.env.incarnation, self.seq),
            correlation_id: None,
            headers: vec![("run".into(), self.env.run.to_string())],
            body: codec::encode_json(&beat).into(),
            durable: false,
        };
        let bus = self.env.bus.clone();
        tokio::spawn(async move {
            if let Err(error) = bus.publish(message).await {
                tracing::debug!(%error, "a heartbeat was not sent");
            }
        });
    }

    pub(in crate::coordinator) fn on_beat(&mut self, beat: Beat, ctx: &mut Context<Self>) {
        match beat {
            Beat::Agent(beat) => self.on_agent(beat, ctx),
            Beat::Coordinator(beat) if beat.incarnation != self.env.incarnation => self.on_other(beat),
            Beat::Coordinator(_) => {}
        }
    }

    fn on_agent(&mut self, beat: Heartbeat, ctx: &mut Context<Self>) {
        let known = self.beats.get(&beat.agent).map(|(old, _)| old);
        let another = known.is_none_or(|old| old.incarnation != beat.incarnation);
        if !another && known.is_some_and(|old| old.seq >= beat.seq) {
            return;
        }
        if beat.serving && (another || known.is_some_and(|old| !old.serving)) {
            self.ask_whole_wave(&beat.agent, ctx);
        }
        // The run's state that it repeats is for coordinators that start: to those that have begun it gives no orders.
        self.gate.beat(&beat, Instant::now());
        self.beats.insert(beat.agent.clone(), (beat, Instant::now()));
    }

    fn on_other(&mut self, beat: CoordinatorBeat) {
        if self.run.phase != RunPhase::Starting && beat.run > self.run {
            self.adopt(beat.run);
        }
        if self.env.config.run.mode == Mode::Sync && self.yields_to(&beat) {
            self.stopping = true;
            let message = format!(
                "coordinator {} (process {}) coordinates this run already, and a synchronous run has one: its rounds are \
                 counted in one place",
                beat.incarnation, beat.pid
            );
            let usage = Usage::new(message).hint("stop that one first, or set run.mode = \"async\"");
            return self.end(Err(usage.into()));
        }
        if let Some(made) = beat.evaluated {
            self.evals.made_elsewhere(made);
        }
        if beat.evaluating && self.evals.running() && self.env.incarnation < beat.incarnation {
            // It began before it heard us, and is to give it up before it is done.
            self.say_beat();
        }
        self.others.retain(|_, (_, heard)| heard.elapsed() < SILENT * 20);
        self.others.insert(beat.incarnation.clone(), (beat, Instant::now()));
    }

    /// Of two coordinators the one that has begun stays; of two that have, or have not, the one with the lesser name.
    fn yields_to(&self, other: &CoordinatorBeat) -> bool {
        if other.phase == RunPhase::Closed || self.run.phase == RunPhase::Closed {
            return false;
        }
        let begun = |phase| phase != RunPhase::Starting;
        match (begun(self.run.phase), begun(other.phase)) {
            (false, true) => true,
            (true, false) => false,
            _ => other.incarnation < self.env.incarnation,
        }
    }
}

//! The coordinator's actor: passes each input to the parts that it concerns, and starts what they
//! ask for. It never waits: what takes time runs next to it and comes back as an input.

mod admit;
mod beats;
mod claims;
mod close;
mod evaluate;
mod run;
mod snapshot;
mod turns;

#[cfg(test)]
pub(super) mod bench;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler};
use configs::Mode;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::admission::Admission;
use super::clock::Clock;
use super::closing::journal;
use super::env::Env;
use super::evaluation::Evaluations;
use super::figures::Figures;
use super::input::{Input, Mailbox};
use super::lifecycle::Lifecycle;
use super::peers::Peers;
use super::play::Play;
use super::rounds::Rounds;
use super::snapshot::Snapshots;
use super::specs::GroupSpecs;
use crate::base::fault::Usage;
use crate::base::runtime_check;
use crate::participant::RemoteConnection;
use crate::run_folder::crash_marks::Strikes;
use crate::run_folder::input_digests;
use crate::turn::tasks::Feed;

const TICK: Duration = Duration::from_millis(100);

pub(crate) struct Coordinator {
    env: Arc<Env>,
    /// The settings that groups are played with.
    specs: GroupSpecs,
    admission: Admission,
    play: Play,
    rounds: Rounds,
    peers: Peers,
    evals: Evaluations,
    figures: Figures,
    lifecycle: Lifecycle,
    clock: Clock,
    snapshots: Snapshots,
    /// Marks of the work during which a process died.
    strikes: Strikes,
}

impl Coordinator {
    /// `line` asks remote participants, if there are any.
    pub(crate) fn new(
        env: Arc<Env>,
        line: Option<Arc<RemoteConnection>>,
        ended: oneshot::Sender<anyhow::Result<()>>,
    ) -> anyhow::Result<Self> {
        input_digests::verify(&env.folder, &env.config)?;
        let unplayable = crate::turn::tasks::problems(&env.config, env.workflow.as_ref());
        if let Some((key, error)) = unplayable.first() {
            return Err(Usage::new(format!("{key}: {error}")).into());
        }
        let feed = Feed::open(&env.config)?;
        let process = format!("coordinator-{}", env.incarnation);
        let evals = Evaluations::open(&env.config, &env.folder, &process)?;
        let specs = GroupSpecs::open(&env, line.as_ref())?;
        // Only files that can be used are pinned: a broken file may still be repaired.
        input_digests::settle(&env.folder, &env.config)?;
        Ok(Self {
            specs,
            admission: Admission::new(feed),
            play: Play::default(),
            rounds: Rounds::default(),
            peers: Peers::new(&env),
            evals,
            figures: Figures::open(&env, &process)?,
            lifecycle: Lifecycle::new(ended),
            clock: Clock::new(Instant::now()),
            snapshots: Snapshots::default(),
            strikes: Strikes::open(&env.folder, "coordinator")?,
            env,
        })
    }

    /// Sends the bundles of the last round again, in a run of one process.
    pub(crate) async fn resend_last_round(&mut self) -> anyhow::Result<()> {
        self.rounds.set_resent(journal::resend(&self.env).await?);
        Ok(())
    }

    fn is_sync(&self) -> bool {
        self.env.config.run.mode == Mode::Sync
    }

    /// Steps that the run's lead agent has made.
    fn lead_step(&self) -> u64 {
        self.env.config.lead().map_or(0, |lead| self.peers.step(lead))
    }

    /// Groups that hold room at the agents or are about to.
    fn held_groups(&self) -> u64 {
        (self.play.training().count() + self.admission.under_way()) as u64
    }

    /// Moves on whatever can move, after anything has happened.
    fn proceed(&mut self, ctx: &mut Context<Self>) {
        if self.lifecycle.is_stopping() {
            return;
        }
        self.advance_phase();
        self.advance_snapshot(ctx);
        self.admit();
        self.flush(ctx);
    }

    /// Reports that a round waits for the weights of a past alone.
    fn report_waiting(&mut self) {
        let waits_for = self.peers.gate().waits_for();
        if self.clock.take_report_turn(waits_for.is_some())
            && let Some((agent, past)) = waits_for
        {
            tracing::info!(
                %agent,
                of = %past.config.of,
                "no round begins: waiting for {agent} to serve the past of {}; its log says what it waits for",
                past.config.of
            );
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        let _scope = self.lifecycle.log_scope();
        if self.clock.beat_is_due() {
            self.send_beat();
        }
        if self.clock.take_totals_turn() {
            self.figures.write_totals(self.lead_step());
        }
        let stopping = self.lifecycle.is_stopping();
        if !stopping && self.clock.take_lease_turn(self.env.config.run.lease.0) {
            self.renew_leases(ctx);
            self.ask_again(ctx);
            self.close_if_run_is_over();
        }
        if !stopping {
            self.retry_admissions();
            self.look_at_queues(ctx);
            self.report_waiting();
        }
        self.proceed(ctx);
    }
}

fn mailbox(ctx: &Context<Coordinator>) -> Mailbox {
    ctx.address().recipient()
}

impl Actor for Coordinator {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(256);
        if runtime_check::is_over() {
            return;
        }
        ctx.run_interval(TICK, Self::tick);
    }
}

impl Handler<Input> for Coordinator {
    type Result = ();

    fn handle(&mut self, input: Input, ctx: &mut Context<Self>) {
        let _scope = self.lifecycle.log_scope();
        // Another coordinator takes over what this one gave up, with the deliveries dropped here.
        if self.lifecycle.is_stopping() && !matches!(input, Input::Stop(_)) {
            return;
        }
        match input {
            Input::Task(candidate) => self.admission.add(candidate),
            Input::Answers(frame, delivery) => self.on_answers(frame, delivery, ctx),
            Input::Claimed(group, claim) => self.on_claimed(group, claim, ctx),
            Input::Results(frame, delivery) => self.on_results(frame, delivery, ctx),
            Input::Answered(result) => self.on_answered(*result, ctx),
            Input::Committed(done) => self.on_committed(done, ctx),
            Input::Closed(group, outcome) => self.on_closed(group, outcome, ctx),
            Input::Lost(groups) => groups.into_iter().for_each(|group| self.lose(group, ctx)),
            Input::Beat(beat) => self.on_beat(*beat, ctx),
            Input::Command(command) => self.on_command(command),
            Input::Depth(depth) => self.on_depth(depth),
            Input::Stop(done) => self.stop(done),
            Input::Refused => self.figures.count_dead_task(false),
            Input::Nothing => {}
        }
        self.proceed(ctx);
    }
}

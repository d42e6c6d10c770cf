//! The coordinator's actor: the state of all open groups, and the closed list of what can happen to it.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message};
use broker::bus::Delivery;
use broker::ids::{Attempt, GroupId, RequestId, TurnKey};
use broker::protocol::control::{Beat, Command, CoordinatorBeat, Heartbeat, RunState, SnapshotDone};
use broker::protocol::failure::Failure;
use broker::protocol::reserve::ReserveAnswerFrame;
use broker::protocol::task::Task;
use broker::protocol::turn::{ResultFrame, TurnResult};
use broker::store::{Claim, Committed, Lease, StoreError};
use broker::{AgentName, RoleName};
use rollout::group::{GroupRun, Rules, RunSpec};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Env;
use super::admission::Admitting;
use super::conversation_stats::Talk;
use super::evals::Evals;
use super::gate::Gate;
use super::hosted::Asking;
use super::rounds::Decided;
use super::snapshot::Snapshot;
use super::suites::Suite;
use crate::base::runtime_check;
use crate::ledger::completion;
use crate::participant::{Host, Line};
use crate::run_folder::crash_marks::Strikes;
use crate::run_folder::logs::Transcripts;
use crate::run_folder::metrics::{Metrics, MetricsWriter};
use crate::turn::tasks::Candidate;
use crate::turn::tasks::Feed;

const TICK: Duration = Duration::from_millis(100);
/// Between two words about weights that rounds wait for.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Everything that can happen to a coordinator.
#[derive(Message)]
#[rtype(result = "()")]
pub enum Input {
    Task(Candidate),
    Answers(ReserveAnswerFrame, Delivery),
    Claimed(GroupId, Result<Claim, StoreError>),
    /// With what brought them, if a message did.
    Results(ResultFrame, Option<Delivery>),
    /// What a program answered.
    Answered(Box<TurnResult>),
    Committed(Vec<CommitDone>),
    /// Bundles are confirmed, or the group is no longer ours.
    Closed(GroupId, Result<(), StoreError>),
    /// These leases no longer stand.
    Lost(Vec<GroupId>),
    Beat(Box<Beat>),
    Command(Command),
    /// Messages that lie in the queues of tasks, as far as known.
    Depth(Option<u64>),
    /// Give everything up and tell when that is done.
    Stop(oneshot::Sender<()>),
    /// A message went to the dead letters.
    Refused,
    Nothing,
}

/// What became of one group's records of one commit.
pub struct CommitDone {
    pub group: GroupId,
    /// Under which lease: what another lease has committed is not ours to apply.
    pub lease: Option<Lease>,
    pub results: Vec<(TurnKey, TurnResult)>,
    pub outcome: Result<Vec<Committed>, StoreError>,
}

/// Why a group is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Train,
    /// Greedy, in no ledger, of no effect but on metrics.
    Eval,
    /// As an evaluation, but sampled as in training.
    Vote,
    /// A task of the suite at this place, of an evaluation.
    Suite {
        at: usize,
        greedy: bool,
    },
}

/// A group being played.
pub struct Open {
    pub run: GroupRun,
    pub purpose: Purpose,
    pub task: Arc<Task>,
    pub task_id: String,
    pub order: u64,
    pub attempt: Attempt,
    /// None for evaluations.
    pub lease: Option<Lease>,
    /// When something was last asked or answered.
    pub moved: Instant,
    /// Commits of its turns that are under way: what they write belongs to its outcome.
    pub committing: usize,
    pub closing: bool,
    /// The outcome that an owner before us has written.
    pub decided: Option<bytes::Bytes>,
    /// The task as it was published.
    pub body: bytes::Bytes,
    /// Why the task is put to the dead letters, if it is.
    pub dead: Option<Failure>,
    /// Questions of its conversations that programs and judges have, given up with the group. Not in synchronous runs, whose waves wait
    /// for every answer.
    pub asking: Vec<Asking>,
}

/// A synchronous wave under way.
pub struct WaveState {
    pub missing: HashSet<RequestId>,
    pub held: Vec<TurnResult>,
    pub deliveries: Vec<Delivery>,
    /// For asking again, by agent.
    pub frames: Vec<(AgentName, broker::protocol::turn::TurnFrame)>,
    pub since: Instant,
}

/// What a coordinator has done, for its heartbeat and metrics.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counters {
    pub groups: u64,
    pub conversations: u64,
    pub turns: u64,
    pub tokens: u64,
    pub stale_results: u64,
    pub dead_tasks: u64,
}

/// Generations that failed, of one role and for one reason.
#[derive(Debug, Default, Clone, Copy)]
pub struct Failures {
    /// Asked for again.
    pub retried: u64,
    /// Their conversation was given up.
    pub over: u64,
}

pub struct Coordinator {
    pub(super) env: Arc<Env>,
    pub(super) rules: Rules,
    /// Programs that take part.
    pub(super) host: Arc<Host>,
    pub(super) gate: Gate,
    pub(super) beats: BTreeMap<AgentName, (Heartbeat, Instant)>,
    /// Published tasks that wait for room, each still unacked.
    pub(super) waiting: VecDeque<Candidate>,
    /// Tasks that a ledger has handed back.
    pub(super) reclaimed: VecDeque<Candidate>,
    pub(super) feed: Feed,
    pub(super) admitting: BTreeMap<GroupId, Admitting>,
    pub(super) claiming: BTreeMap<GroupId, Admitting>,
    pub(super) open: BTreeMap<GroupId, Open>,
    pub(super) dirty: BTreeSet<GroupId>,
    pub(super) wave: Option<WaveState>,
    pub(super) wave_seq: u64,
    pub(super) next_order: u64,
    pub(super) evals: Evals,
    pub(super) run: RunState,
    pub(super) closed_at: Option<Instant>,
    /// Other coordinators of the run, by incarnation.
    pub(super) others: BTreeMap<String, (CoordinatorBeat, Instant)>,
    /// Agents that have ended, as their ledgers say where we can see them.
    pub(super) over: BTreeSet<AgentName>,
    /// How often in succession nothing was found while draining.
    pub(super) empty: u32,
    pub(super) last_look: Instant,
    /// What the groups of this round came to, until all have ended.
    pub(super) round: Vec<Decided>,
    /// A group of this round came back from a broken play.
    pub(super) patched: bool,
    /// Groups whose bundles were sent again when we started.
    pub(super) resent: BTreeSet<GroupId>,
    /// What a process died of while it worked on it.
    pub(super) strikes: Strikes,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) snapshot_done: Option<SnapshotDone>,
    pub(super) counters: Counters,
    /// Conversations and seats that left the statistics, by the code of their reason.
    pub(super) failed: BTreeMap<&'static str, u64>,
    /// Generations that failed, by role and the code of their reason.
    pub(super) failures: BTreeMap<(RoleName, &'static str), Failures>,
    pub(super) talk: Talk,
    pub(super) metrics: MetricsWriter,
    pub(super) transcripts: Transcripts,
    pub(super) seq: u64,
    pub(super) started: Instant,
    pub(super) last_beat: Option<Instant>,
    last_lease: Instant,
    /// Since when, or since it was last told, an agent's weights of the past are all that is waited for.
    waits_since: Option<Instant>,
    /// Told to stop: nothing new is begun.
    pub(super) stopping: bool,
    pub(super) ended: Option<oneshot::Sender<anyhow::Result<()>>>,
}

impl Coordinator {
    /// `line`: how remote participants are asked, if there are any.
    pub fn new(
        env: Arc<Env>,
        line: Option<Arc<Line>>,
        ended: oneshot::Sender<anyhow::Result<()>>,
    ) -> anyhow::Result<Self> {
        crate::run_folder::input_digests::verify(&env.folder, &env.config)?;
        crate::turn::tasks::check(&env.config, env.workflow.as_ref())
            .map_err(|(key, error)| anyhow::anyhow!("{key}: {error}"))?;
        let feed = Feed::open(&env.config)?;
        let process = format!("coordinator-{}", env.incarnation);
        let host = Host::start(env.workflow.clone(), line.clone());
        let mut evals = Evals::open(&env.config, &env.folder, &process)?;
        evals.suites = Suite::open_all(&env.config, &host, line.as_ref())?;
        // Only what can be used is pinned: a broken file may still be mended.
        crate::run_folder::input_digests::settle(&env.folder, &env.config)?;
        Ok(Self {
            rules: Rules::new(&env.config.workflow, &env.workflow.roles(), env.training_set()),
            host: Arc::new(host),
            gate: Gate::new(env.config.run.mode, env.batches()).with_pasts(env.pasts()),
            beats: BTreeMap::new(),
            waiting: VecDeque::new(),
            reclaimed: VecDeque::new(),
            feed,
            admitting: BTreeMap::new(),
            claiming: BTreeMap::new(),
            open: BTreeMap::new(),
            dirty: BTreeSet::new(),
            wave: None,
            wave_seq: 0,
            // Tasks without an order of their own come after those of the run's own source.
            next_order: crate::ledger::PUBLISHED,
            evals,
            run: RunState::default(),
            closed_at: None,
            others: BTreeMap::new(),
            over: over(&env),
            empty: 0,
            last_look: Instant::now(),
            round: Vec::new(),
            patched: false,
            resent: BTreeSet::new(),
            strikes: Strikes::open(&env.folder, "coordinator")?,
            snapshot: None,
            snapshot_done: None,
            counters: Counters::default(),
            failed: BTreeMap::new(),
            failures: BTreeMap::new(),
            talk: Talk::new(&env.config, env.workflow.as_ref()),
            metrics: MetricsWriter::open(&env.folder.metrics(&process), Some(&env.folder.tensorboard(&process)))?,
            transcripts: Transcripts::open(&env.folder.transcripts(&process))?,
            seq: 0,
            started: Instant::now(),
            last_beat: None,
            last_lease: Instant::now(),
            waits_since: None,
            stopping: false,
            ended: Some(ended),
            env,
        })
    }

    /// How a group of this run is played.
    pub(super) fn run_spec(&self, task: &Arc<Task>, task_id: &str, group_size: u16) -> RunSpec {
        RunSpec {
            workflow: self.env.workflow.clone(),
            task: task.clone(),
            task_id: task_id.to_owned(),
            run_seed: self.env.config.run.seed,
            group_size,
            retries: self.env.config.workflow.retries,
            min_valid: if group_size == 1 { 1 } else { self.rules.min_valid },
        }
    }

    /// Steps of the lead agent that the run has made.
    pub(super) fn lead_step(&self) -> u64 {
        self.env
            .config
            .lead()
            .and_then(|lead| self.beats.get(lead))
            .map_or(0, |(beat, _)| beat.step)
    }

    /// Groups that hold room at the agents or are about to.
    pub(super) fn held_groups(&self) -> u64 {
        let open = self.open.values().filter(|open| open.purpose == Purpose::Train).count();
        (open + self.admitting.len() + self.claiming.len()) as u64
    }

    /// After anything has happened: moves on whatever can move.
    fn proceed(&mut self, ctx: &mut Context<Self>) {
        if self.stopping {
            return;
        }
        self.advance_phase();
        self.advance_snapshot(ctx);
        self.admit(ctx);
        self.flush(ctx);
    }

    pub(super) fn write_metrics(&mut self) {
        let counters = self.counters;
        let elapsed = self.started.elapsed().as_secs_f64();
        let mut line = Metrics::new("coordinator", self.lead_step())
            .with("groups", counters.groups)
            .with("conversations", counters.conversations)
            .with("conversations/failed", self.failed.values().sum::<u64>())
            .with("turns", counters.turns)
            .with("tokens", counters.tokens)
            .with("results/stale", counters.stale_results)
            .with("tasks/dead", counters.dead_tasks)
            .with(
                "time/conversations_per_s",
                counters.conversations as f64 / elapsed.max(1e-9),
            )
            .with("time/turns_per_s", counters.turns as f64 / elapsed.max(1e-9));
        for (code, count) in &self.failed {
            line.set(&format!("conversations/failed/{code}"), *count);
        }
        for ((role, code), failures) in &self.failures {
            line.set(&format!("turns/retried/{role}/{code}"), failures.retried);
            line.set(&format!("turns/failed/{role}/{code}"), failures.over);
        }
        self.metrics.write(line);
    }

    /// Says what a round waits for, where that is no work of its own.
    fn tell_waiting(&mut self) {
        let Some((agent, past)) = self.gate.waits_for() else {
            self.waits_since = None;
            return;
        };
        if self.waits_since.get_or_insert_with(Instant::now).elapsed() >= TELL_EVERY {
            tracing::info!(
                %agent,
                of = %past.config.of,
                "no round begins: waiting for {agent} to serve the past of {}; its log says what it waits for",
                past.config.of
            );
            self.waits_since = Some(Instant::now());
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        if self.last_beat.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
            self.say_beat();
            self.write_metrics();
        }
        if !self.stopping && self.last_lease.elapsed() >= self.env.config.run.lease.0 / 3 {
            self.last_lease = Instant::now();
            self.renew_leases(ctx);
            self.ask_again(ctx);
        }
        if !self.stopping {
            self.retry_admissions(ctx);
            self.look_at_queues(ctx);
            self.tell_waiting();
        }
        self.proceed(ctx);
    }
}

/// Agents that have written their last checkpoint.
pub(super) fn over(env: &Env) -> BTreeSet<AgentName> {
    let participants = env.participants().into_iter();
    participants
        .filter(|name| completion::agent(&env.folder, name))
        .collect()
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
        // What was given up is another's; deliveries that are dropped here come to it.
        if self.stopping && !matches!(input, Input::Stop(_)) {
            return;
        }
        match input {
            Input::Task(candidate) if candidate.held => self.reclaimed.push_back(candidate),
            Input::Task(candidate) => self.waiting.push_back(candidate),
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
            Input::Refused => self.counters.dead_tasks += 1,
            Input::Nothing => {}
        }
        self.proceed(ctx);
    }
}

//! The coordinator's actor: the state of all open groups, and the closed list of what can happen to it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, AsyncContext, Context, Handler, Message};
use broker::AgentName;
use broker::bus::{Delivery, Outgoing};
use broker::codec;
use broker::ids::{Attempt, GroupId, RequestId, TurnKey};
use broker::protocol::Kind;
use broker::protocol::control::{Beat, Command, CoordinatorBeat, Heartbeat, RunPhase};
use broker::protocol::reserve::ReserveAnswerFrame;
use broker::protocol::task::Task;
use broker::protocol::turn::{ResultFrame, TurnResult};
use broker::store::{Claim, Committed, Lease, StoreError};
use configs::Mode;
use rollout::group::{GroupRun, Rules, RunSpec};
use tokio::sync::oneshot;

use super::Env;
use super::admission::{Admitting, Candidate};
use super::evals::Evals;
use super::gate::Gate;
use crate::logs::Transcripts;
use crate::metrics::{Metrics, MetricsWriter};
use crate::tasks::Feed;

const TICK: Duration = Duration::from_millis(100);

/// Everything that can happen to a coordinator.
#[derive(Message)]
#[rtype(result = "()")]
pub enum Input {
    Task(Candidate),
    Answers(ReserveAnswerFrame, Delivery),
    Claimed(GroupId, Result<Claim, StoreError>),
    Results(ResultFrame, Delivery),
    Committed(Vec<CommitDone>),
    /// Bundles are confirmed, or the group is no longer ours.
    Closed(GroupId, Result<(), StoreError>),
    /// These leases no longer stand.
    Lost(Vec<GroupId>),
    Beat(Box<Beat>),
    Command(Command),
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
    /// Turns asked for and not yet committed.
    pub outstanding: usize,
    pub closing: bool,
    /// The outcome that an owner before us has written.
    pub decided: Option<bytes::Bytes>,
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
    pub failed_conversations: u64,
    pub turns: u64,
    pub tokens: u64,
    pub stale_results: u64,
    pub dead_tasks: u64,
}

pub struct Coordinator {
    pub(super) env: Arc<Env>,
    pub(super) rules: Rules,
    pub(super) gate: Gate,
    pub(super) beats: BTreeMap<AgentName, (Heartbeat, Instant)>,
    /// Published tasks that wait for room, each still unacked.
    pub(super) waiting: VecDeque<Candidate>,
    /// Tasks that a ledger has handed back.
    pub(super) reclaimed: VecDeque<Candidate>,
    pub(super) feed: Feed,
    pub(super) admitting: HashMap<GroupId, Admitting>,
    pub(super) claiming: HashMap<GroupId, Admitting>,
    pub(super) open: BTreeMap<GroupId, Open>,
    pub(super) dirty: HashSet<GroupId>,
    pub(super) wave: Option<WaveState>,
    pub(super) wave_seq: u64,
    pub(super) next_order: u64,
    pub(super) evals: Evals,
    pub(super) phase: RunPhase,
    pub(super) counters: Counters,
    pub(super) metrics: MetricsWriter,
    pub(super) transcripts: Transcripts,
    seq: u64,
    started: Instant,
    last_beat: Option<Instant>,
    last_lease: Instant,
    ended: Option<oneshot::Sender<()>>,
}

impl Coordinator {
    pub fn new(env: Arc<Env>, ended: oneshot::Sender<()>) -> anyhow::Result<Self> {
        let feed = Feed::open(&env.config)?;
        let process = format!("coordinator-{}", env.incarnation);
        let evals = Evals::open(&env.config, &env.folder, &process)?;
        Ok(Self {
            rules: Rules::new(&env.config.workflow, &env.workflow.roles(), env.training_set()),
            gate: Gate::new(env.config.run.mode, env.batches()),
            beats: BTreeMap::new(),
            waiting: VecDeque::new(),
            reclaimed: VecDeque::new(),
            feed,
            admitting: HashMap::new(),
            claiming: HashMap::new(),
            open: BTreeMap::new(),
            dirty: HashSet::new(),
            wave: None,
            wave_seq: 0,
            // Tasks without an order of their own come after those of the run's own source.
            next_order: 1 << 62,
            evals,
            phase: RunPhase::Starting,
            counters: Counters::default(),
            metrics: MetricsWriter::open(&env.folder.metrics(&process), None)?,
            transcripts: Transcripts::open(&env.folder.transcripts(&process))?,
            seq: 0,
            started: Instant::now(),
            last_beat: None,
            last_lease: Instant::now(),
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
        self.advance_phase(ctx);
        self.admit(ctx);
        self.flush(ctx);
    }

    fn advance_phase(&mut self, ctx: &mut Context<Self>) {
        match self.phase {
            RunPhase::Starting if self.gate.complete() && self.all_serving() => self.enter(RunPhase::Running, ctx),
            RunPhase::Running if self.finished() => self.enter(RunPhase::Draining, ctx),
            RunPhase::Draining if self.drained() => {
                if self.evals.last_is_due() {
                    if self.may_end() {
                        self.start_eval(ctx);
                    }
                } else if !self.evals.running() {
                    self.enter(RunPhase::Closed, ctx);
                }
            }
            RunPhase::Closed if self.ended.is_some() && self.all_agents_closed() => self.end(ctx),
            _ => {}
        }
        if self.phase == RunPhase::Running && self.evals.due(self.lead_step()) && self.may_start_eval() {
            self.start_eval(ctx);
        }
    }

    fn enter(&mut self, phase: RunPhase, ctx: &mut Context<Self>) {
        tracing::info!(
            ?phase,
            step = self.lead_step(),
            groups = self.counters.groups,
            "the run is {}",
            phase_word(phase)
        );
        self.phase = phase;
        self.say_beat(ctx);
    }

    fn all_serving(&self) -> bool {
        let serving = |name: &AgentName| self.beats.get(name).is_some_and(|(beat, _)| beat.serving);
        self.env.participants().iter().all(serving)
    }

    fn finished(&self) -> bool {
        let steps_done = self.lead_step() >= self.env.config.run.train_steps;
        steps_done
            || self.evals.reached
            || (self.feed.exhausted() && self.waiting.is_empty() && self.held_groups() == 0)
    }

    fn drained(&self) -> bool {
        let open = self.open.values().any(|open| open.purpose == Purpose::Train);
        !open && self.admitting.is_empty() && self.claiming.is_empty() && self.gate.nothing_reserved()
    }

    /// Whether the weights that the last evaluation is to see are there.
    fn may_end(&self) -> bool {
        match self.env.config.run.mode {
            Mode::Sync => self.may_start_eval(),
            Mode::Async => self.gate.settled(),
        }
    }

    fn all_agents_closed(&self) -> bool {
        let closed = |name: &AgentName| {
            self.beats
                .get(name)
                .is_some_and(|(beat, _)| beat.phase == RunPhase::Closed)
        };
        self.env.participants().iter().all(closed)
    }

    fn end(&mut self, ctx: &mut Context<Self>) {
        self.say_beat(ctx);
        self.write_metrics();
        self.transcripts.flush();
        self.metrics.flush();
        if let Some(ended) = self.ended.take() {
            // Nobody waits any more only if the process is ending anyway.
            let _ = ended.send(());
        }
    }

    fn say_beat(&mut self, _: &mut Context<Self>) {
        self.seq += 1;
        self.last_beat = Some(Instant::now());
        let beat = Beat::Coordinator(CoordinatorBeat {
            incarnation: self.env.incarnation.clone(),
            seq: self.seq,
            phase: self.phase,
            open_groups: self.held_groups(),
            finished_groups: self.counters.groups,
            finished_conversations: self.counters.conversations,
            dead_tasks: self.counters.dead_tasks,
            turns: self.counters.turns,
            pid: std::process::id(),
        });
        let message = Outgoing {
            to: self.env.topology.to_control(),
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

    fn write_metrics(&mut self) {
        let counters = self.counters;
        let elapsed = self.started.elapsed().as_secs_f64();
        let line = Metrics::new("coordinator", self.lead_step())
            .with("groups", counters.groups)
            .with("conversations", counters.conversations)
            .with("conversations/failed", counters.failed_conversations)
            .with("turns", counters.turns)
            .with("tokens", counters.tokens)
            .with("results/stale", counters.stale_results)
            .with("tasks/dead", counters.dead_tasks)
            .with(
                "time/conversations_per_s",
                counters.conversations as f64 / elapsed.max(1e-9),
            )
            .with("time/turns_per_s", counters.turns as f64 / elapsed.max(1e-9));
        self.metrics.write(line);
    }

    fn on_beat(&mut self, beat: Beat) {
        let Beat::Agent(beat) = beat else { return };
        let newest = self
            .beats
            .get(&beat.agent)
            .is_none_or(|(old, _)| old.incarnation != beat.incarnation || old.seq < beat.seq);
        if newest {
            self.gate.beat(&beat, Instant::now());
            self.beats.insert(beat.agent.clone(), (beat, Instant::now()));
        }
    }

    fn on_command(&mut self, command: Command, ctx: &mut Context<Self>) {
        match (command, self.phase) {
            (Command::Pause, RunPhase::Running) => self.enter(RunPhase::Paused, ctx),
            (Command::Resume, RunPhase::Paused) => self.enter(RunPhase::Running, ctx),
            (Command::Drain, RunPhase::Starting | RunPhase::Running | RunPhase::Paused) => {
                self.enter(RunPhase::Draining, ctx)
            }
            _ => tracing::info!(?command, phase = ?self.phase, "a command that changes nothing now"),
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        if self.last_beat.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
            self.say_beat(ctx);
            self.write_metrics();
        }
        if self.last_lease.elapsed() >= self.env.config.run.lease.0 / 3 {
            self.last_lease = Instant::now();
            self.renew_leases(ctx);
            self.ask_again(ctx);
        }
        self.retry_admissions(ctx);
        self.proceed(ctx);
    }

    fn renew_leases(&mut self, ctx: &mut Context<Self>) {
        let leases: Vec<Lease> = self.open.values().filter_map(|open| open.lease).collect();
        if leases.is_empty() {
            return;
        }
        let (store, addr) = (self.env.store.clone(), ctx.address());
        tokio::spawn(async move {
            let Ok(standing) = store.beat(&leases).await else {
                return;
            };
            let lost: Vec<GroupId> = leases
                .iter()
                .zip(standing)
                .filter(|(_, stands)| !stands)
                .map(|(lease, _)| lease.group)
                .collect();
            if !lost.is_empty() {
                let _ = addr.send(Input::Lost(lost)).await;
            }
        });
    }

    /// The group is no longer ours as we knew it: forget what we hold and claim it anew.
    pub(super) fn lose(&mut self, group: GroupId, ctx: &mut Context<Self>) {
        // One that is being closed finds out by itself whose it is; its key may be gone because it is finished.
        if self.open.get(&group).is_none_or(|open| open.closing) {
            return;
        }
        let Some(open) = self.open.remove(&group) else { return };
        tracing::warn!(%group, task = open.task_id, "lost hold of a group; claiming it anew");
        self.dirty.remove(&group);
        self.claim_again(group, open, ctx);
    }
}

fn phase_word(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Starting => "starting",
        RunPhase::Running => "running",
        RunPhase::Paused => "paused",
        RunPhase::Draining => "draining: no new tasks",
        RunPhase::Closed => "closed",
    }
}

impl Actor for Coordinator {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(256);
        ctx.run_interval(TICK, Self::tick);
    }
}

impl Handler<Input> for Coordinator {
    type Result = ();

    fn handle(&mut self, input: Input, ctx: &mut Context<Self>) {
        match input {
            Input::Task(candidate) if candidate.held => self.reclaimed.push_back(candidate),
            Input::Task(candidate) => self.waiting.push_back(candidate),
            Input::Answers(frame, delivery) => self.on_answers(frame, delivery, ctx),
            Input::Claimed(group, claim) => self.on_claimed(group, claim, ctx),
            Input::Results(frame, delivery) => self.on_results(frame, delivery, ctx),
            Input::Committed(done) => self.on_committed(done, ctx),
            Input::Closed(group, outcome) => self.on_closed(group, outcome, ctx),
            Input::Lost(groups) => groups.into_iter().for_each(|group| self.lose(group, ctx)),
            Input::Beat(beat) => self.on_beat(*beat),
            Input::Command(command) => self.on_command(command, ctx),
            Input::Refused => self.counters.dead_tasks += 1,
            Input::Nothing => {}
        }
        self.proceed(ctx);
    }
}

//! The state that an agent's parts share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use broker::AgentName;
use broker::bus::Bus;
use broker::ids::{RunId, WeightVersion};
use broker::protocol::control::{Heartbeat, RunPhase, RunState, Saved};
use broker::topology::Topology;
use configs::{AgentConfig, RunConfig, TokenRecordPolicy, TrainConfig, ZeroAdvantage};
use rollout::batch::REFILL_CAP;
use rollout::text::Speech;
use tokio::sync::{Notify, watch};

use super::due::Due;
use super::holds::Holds;
use super::launched::Launched;
use crate::base::fault::{LostRank, no_such_agent};
use crate::ledger::{self, LedgerHandle};
use crate::observe::Observer;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::TokenRecords;
use crate::traces::Traces;

/// The surroundings of an agent: its configuration, bus and folder.
pub struct AgentEnv {
    pub name: AgentName,
    pub run: RunId,
    pub config: Arc<RunConfig>,
    pub bus: Arc<dyn Bus>,
    pub topology: Topology,
    pub folder: RunFolder,
    /// Differs at every start.
    pub incarnation: String,
    pub observer: Observer,
    pub traces: Traces,
    /// This process's place among ranks of the trainer that a launcher started.
    pub launched: Option<Launched>,
}

/// The agent's state, apart from its ledger and its engine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentStatus {
    pub phase: RunPhase,
    /// The number of batches trained. Set before the batch's verdicts are recorded, so that no
    /// coordinator sees both room and old weights.
    pub step: u64,
    pub serving: bool,
    pub reward: Option<f64>,
    /// The run's state, as stored.
    pub run: RunState,
    /// This agent's part of the newest joint snapshot.
    pub saved: Option<Saved>,
    /// The holds that training keeps. Announced before an evaluation relies on them, and withdrawn
    /// before the next batch.
    pub holding: Vec<String>,
}

/// A running agent.
pub struct Agent {
    pub name: AgentName,
    pub run: RunId,
    pub config: Arc<RunConfig>,
    pub bus: Arc<dyn Bus>,
    pub topology: Topology,
    pub folder: RunFolder,
    pub incarnation: String,
    pub observer: Observer,
    pub traces: Traces,
    pub launched: Option<Launched>,
    pub text: Arc<dyn Speech>,
    /// The file of recorded tokens, if any are recorded.
    pub(crate) records: Option<TokenRecords>,
    pub ledger: LedgerHandle,
    /// Groups that may be reserved or ready at once: (max_staleness + 1) * batch.
    pub window: u64,
    /// Counts changes of the ledger.
    pub changed: watch::Sender<u64>,
    pub status: watch::Sender<AgentStatus>,
    /// Notified when a coordinator reports that the run is closed.
    pub closing: Notify,
    /// The newest joint snapshot that a coordinator wants a checkpoint for.
    pub wanted: watch::Sender<Option<String>>,
    /// The holds that coordinators ask for.
    pub(crate) holds: watch::Sender<Holds>,
    /// The coordinators' announcements of the next evaluation.
    pub(crate) due: watch::Sender<Due>,
    /// The reason why the router gave up: see [`broken`].
    pub(crate) broken: watch::Sender<Option<String>>,
    /// The first rank of the trainer that ended before it.
    pub(crate) lost_rank: watch::Sender<Option<LostRank>>,
    others: Mutex<BTreeMap<AgentName, Heartbeat>>,
}

impl Agent {
    /// Creates an agent that has sent no heartbeat yet.
    pub(crate) async fn new(
        env: AgentEnv,
        settings: &AgentConfig,
        text: Arc<dyn Speech>,
        ledger: LedgerHandle,
    ) -> anyhow::Result<Arc<Self>> {
        let (changed, _) = watch::channel(0);
        let records = match env.config.run.token_records {
            TokenRecordPolicy::None => None,
            _ => Some(TokenRecords::open(&env.folder.tokens(&env.name)).context("opening the file of tokens")?),
        };
        let run = ledger.state().await?;
        let holds = Holds::new(env.config.run.lease.0, env.config.eval.hold_at_most.0);
        let due = Due::new(env.config.run.lease.0, tokio::time::Instant::now());
        let (status, _) = watch::channel(AgentStatus {
            run,
            ..AgentStatus::default()
        });
        if let Some(series) = env.observer.series() {
            series.standing.describe(&env.name, &env.config);
        }
        Ok(Arc::new(Self {
            window: window(&settings.train),
            name: env.name,
            run: env.run,
            config: env.config,
            bus: env.bus,
            topology: env.topology,
            folder: env.folder,
            incarnation: env.incarnation,
            observer: env.observer,
            traces: env.traces,
            launched: env.launched,
            text,
            records,
            ledger,
            changed,
            status,
            closing: Notify::new(),
            wanted: watch::Sender::new(None),
            holds: watch::Sender::new(holds),
            due: watch::Sender::new(due),
            broken: watch::Sender::new(None),
            lost_rank: watch::Sender::new(None),
            others: Mutex::new(BTreeMap::new()),
        }))
    }

    /// This agent's part of the configuration.
    pub fn settings(&self) -> anyhow::Result<&AgentConfig> {
        self.config
            .agents
            .get(&self.name)
            .ok_or_else(|| no_such_agent(&self.name, &self.config))
    }

    pub fn ledger_changed(&self) {
        self.changed.send_modify(|changes| *changes += 1);
    }

    pub(super) fn saw(&self, beat: Heartbeat) {
        self.others
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(beat.agent.clone(), beat);
    }

    /// The step of another agent's last heartbeat, and the holds that it keeps.
    pub(super) fn holding_of(&self, name: &AgentName) -> Option<(u64, Vec<String>)> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.get(name).map(|beat| (beat.step, beat.holding.clone()))
    }

    /// Announces that training is over with weights `version`, and serves until the other agents
    /// have closed too.
    pub(crate) async fn close(&self, version: WeightVersion) -> anyhow::Result<()> {
        self.ledger.set_note(ledger::ENDED, version.to_string()).await?;
        self.status.send_modify(|status| status.phase = RunPhase::Closed);
        self.wait_for_others().await;
        Ok(())
    }

    /// Serves until every participant has reported that it is closed. A participant that is gone is
    /// waited for a few leases at most.
    async fn wait_for_others(&self) {
        let patience = tokio::time::Instant::now() + self.config.run.lease.0 * 4;
        while !self.all_closed() && tokio::time::Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // The other agents must receive the last heartbeat too.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    fn all_closed(&self) -> bool {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = |name: &AgentName| others.get(name).is_some_and(|beat| beat.phase == RunPhase::Closed);
        self.config
            .participants()
            .iter()
            .filter(|name| **name != self.name)
            .all(closed)
    }
}

/// Groups that may be reserved or ready at once. Refilling keeps the groups it discards until their
/// batch is recorded.
fn window(train: &TrainConfig) -> u64 {
    let refill = if train.zero_advantage == ZeroAdvantage::Refill {
        REFILL_CAP as u64
    } else {
        1
    };
    (train.max_staleness + 1) * train.batch_groups as u64 * refill
}

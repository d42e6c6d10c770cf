//! The coordinator: takes tasks, plays their conversations, sends what they earned.
//!
//! One actor ([`actor`]) holds all open groups and decides; it never waits. What takes time (broker, store) runs beside it
//! ([`io`]) and comes back as one of its [`actor::Input`]s, the closed list of everything that can happen. Its parts:
//! [`phases`] (where the run is), [`beats`] (who is there), [`leases`] (what is ours), [`gate`] (how much may be admitted), [`rounds`]
//! (the journal of a synchronous round), [`snapshot`] (joint checkpoints), [`admission`] (custody and claim), [`turns`] (asking), [`commits`] (what the answers do), [`frames`] (what
//! travels), [`hosted`] (turns of programs), [`closing`] (bundles), [`outcome`] (what is decided of a group), [`evals`] (greedy conversations beside training), [`suites`] (sets of tasks in evaluations), [`hold`] and [`versions`] (of which
//! weights an evaluation is), [`talk`] (figures of
//! conversations), [`pool`] (solutions on which a
//! verifier is measured).

pub mod actor;
pub mod admission;
pub mod closing;
pub mod evaluation;
pub mod figures;
pub mod peers;
pub mod play;
pub mod rounds;
pub mod snapshot;
pub mod transcripts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr};
use broker::AgentName;
use broker::bus::Bus;
use broker::ids::RunId;
use broker::seal::SealKey;
use broker::store::Store;
use broker::topology::Topology;
use configs::RunConfig;
use rollout::workflow::Workflow;
use tokio::sync::oneshot;

use crate::participant::Line;
use crate::run_folder::RunFolder;
use crate::turn::past::Past;

/// What a coordinator works with.
pub struct Env {
    pub run: RunId,
    pub config: Arc<RunConfig>,
    pub workflow: Arc<dyn Workflow>,
    pub bus: Arc<dyn Bus>,
    pub store: Arc<dyn Store>,
    pub topology: Topology,
    pub folder: RunFolder,
    /// Differs at every start.
    pub incarnation: String,
    /// Marks tasks that go into custody; with it, only those are taken back.
    pub seal: Option<SealKey>,
    /// The whole run is in this process: no other coordinator can be, and what the bus holds ends with us.
    pub alone: bool,
}

impl Env {
    /// Agents that play a role, in the order in which they are asked for room.
    #[must_use]
    pub fn participants(&self) -> Vec<AgentName> {
        self.config.participants()
    }

    /// Participants that train: those whose ledgers take custody.
    #[must_use]
    pub fn trainers(&self) -> Vec<AgentName> {
        let trains = |name: &AgentName| self.config.agents.get(name).is_some_and(|agent| agent.train.enabled);
        self.participants().into_iter().filter(trains).collect()
    }

    #[must_use]
    pub fn training_set(&self) -> BTreeSet<AgentName> {
        self.trainers().into_iter().collect()
    }

    /// Participants that play with another's past.
    fn pasts(&self) -> Vec<(AgentName, Past)> {
        let participants = self.participants().into_iter();
        participants
            .filter_map(|name| Past::of(&self.config, &name).map(|past| (name, past)))
            .collect()
    }

    fn batches(&self) -> BTreeMap<AgentName, u64> {
        let batch = |name: AgentName| {
            let groups = self
                .config
                .agents
                .get(&name)
                .map_or(1, |agent| agent.train.batch_groups as u64);
            (name, groups)
        };
        self.trainers().into_iter().map(batch).collect()
    }
}

/// Resolves when the run has ended, or when this coordinator cannot go on.
pub type End = oneshot::Receiver<anyhow::Result<()>>;

/// Tells a coordinator to stop: it gives its groups up, so that another need not wait for the lease. Returns when that is
/// done, or after `patience`.
pub async fn stop(addr: &Addr<actor::Coordinator>, patience: Duration) {
    let (done, stopped) = oneshot::channel();
    let told = async {
        // A coordinator that is gone has nothing to give up.
        if addr.send(actor::Input::Stop(done)).await.is_ok() {
            let _ = stopped.await;
        }
    };
    if tokio::time::timeout(patience, told).await.is_err() {
        tracing::warn!("the store did not answer; what is open is taken over after its lease");
    }
}

/// Starts a coordinator: declares its queue, listens, and begins.
pub async fn start(env: Env) -> anyhow::Result<(Addr<actor::Coordinator>, End)> {
    let env = Arc::new(env);
    env.bus.declare(&env.topology, &env.participants()).await?;
    let results = env.topology.results(&env.incarnation);
    let control = env.topology.control(&env.incarnation);
    env.bus.declare_queue(&results).await?;
    env.bus.declare_queue(&control).await?;
    let (ended, end) = oneshot::channel();
    let mut workflows = vec![env.workflow.clone()];
    for suite in env.config.eval.suites.values().filter(|suite| suite.every.is_some()) {
        workflows.push(crate::eval::suites::workflow(&env.config, suite)?);
    }
    let workflows: Vec<&dyn Workflow> = workflows.iter().map(AsRef::as_ref).collect();
    let line = Line::open(&env.bus, &env.topology, &env.incarnation, &workflows).await?;
    let mut coordinator = actor::Coordinator::new(env.clone(), line, ended)?;
    if env.alone {
        coordinator.resent = rounds::resend(&env).await?;
    }
    let addr = coordinator.start();
    admission::intake::listen(&env, &addr, &results, &control).await?;
    Ok((addr, end))
}

//! The coordinator: takes tasks, plays their conversations, sends what they earned.
//!
//! One actor ([`actor`]) holds all open groups and decides; it never waits. What takes time (broker, store) runs beside it
//! ([`io`]) and comes back as one of its [`actor::Input`]s, the closed list of everything that can happen. Its parts:
//! [`gate`] (how much may be admitted), [`admission`] (custody and claim), [`turns`] (asking and committing), [`frames`] (what
//! travels), [`closing`] (outcome and bundles), [`evals`] (greedy conversations beside training), [`pool`] (solutions on which a
//! verifier is measured).

pub mod actor;
pub mod admission;
pub mod closing;
pub mod evals;
pub mod frames;
pub mod gate;
pub mod intake;
pub mod io;
pub mod pool;
pub mod transcripts;
pub mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::{Actor, Addr};
use broker::AgentName;
use broker::bus::Bus;
use broker::ids::RunId;
use broker::store::Store;
use broker::topology::Topology;
use configs::RunConfig;
use rollout::workflow::Workflow;

use crate::folder::RunFolder;

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

/// Starts a coordinator: declares its queue, listens, and begins. The receiver resolves when the run has ended.
pub async fn start(env: Env) -> anyhow::Result<(Addr<actor::Coordinator>, tokio::sync::oneshot::Receiver<()>)> {
    let env = Arc::new(env);
    env.bus.declare(&env.topology, &env.participants()).await?;
    let results = env.topology.results(&env.incarnation);
    let control = env.topology.control(&env.incarnation);
    env.bus.declare_queue(&results).await?;
    env.bus.declare_queue(&control).await?;
    let (ended, end) = tokio::sync::oneshot::channel();
    let addr = actor::Coordinator::new(env.clone(), ended)?.start();
    intake::listen(&env, &addr, &results, &control).await?;
    Ok((addr, end))
}

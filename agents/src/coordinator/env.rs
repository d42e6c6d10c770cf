//! The environment that a coordinator is given when it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use broker::AgentName;
use broker::bus::Bus;
use broker::ids::RunId;
use broker::seal::SealKey;
use broker::store::Store;
use broker::topology::Topology;
use configs::RunConfig;
use rollout::workflow::Workflow;

use crate::ledger::completion;
use crate::observe::Observer;
use crate::run_folder::RunFolder;
use crate::traces::Traces;
use crate::turn::past::Past;

/// Room left in a message for its envelope, in bytes.
const ENVELOPE: usize = 4096;

/// The run, its configuration, and the systems that a coordinator works with.
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
    /// Seals tasks that go into custody. With a key, the coordinator takes back sealed tasks only.
    pub seal: Option<SealKey>,
    /// True if the whole run is in this process: there is no other coordinator, and the bus ends
    /// with the process.
    pub alone: bool,
    pub observer: Observer,
    pub traces: Traces,
}

impl Env {
    /// Agents that play a role, in the order in which they are asked for room.
    #[must_use]
    pub fn participants(&self) -> Vec<AgentName> {
        self.config.participants()
    }

    /// Participants that train. Their ledgers take custody.
    #[must_use]
    pub fn trainers(&self) -> Vec<AgentName> {
        let trains = |name: &AgentName| self.config.agents.get(name).is_some_and(|agent| agent.train.enabled);
        self.participants().into_iter().filter(trains).collect()
    }

    /// The trainers as a set.
    #[must_use]
    pub fn training_set(&self) -> BTreeSet<AgentName> {
        self.trainers().into_iter().collect()
    }

    /// Participants that play with the past of another agent.
    pub(super) fn pasts(&self) -> Vec<(AgentName, Past)> {
        let participants = self.participants().into_iter();
        participants
            .filter_map(|name| Past::of(&self.config, &name).map(|past| (name, past)))
            .collect()
    }

    /// Groups per batch of each trainer.
    pub(super) fn batches(&self) -> BTreeMap<AgentName, u64> {
        let batch = |name: AgentName| {
            let agent = self.config.agents.get(&name);
            let groups = agent.map_or(1, |agent| agent.train.batch_groups as u64);
            (name, groups)
        };
        self.trainers().into_iter().map(batch).collect()
    }

    /// The largest bundle that fits into a message, in bytes.
    pub(super) fn bundle_cap(&self) -> usize {
        usize::try_from(self.config.run.message_cap.0)
            .unwrap_or(usize::MAX)
            .saturating_sub(ENVELOPE)
    }

    /// Participants that have written their last checkpoint, as far as the run folder shows.
    pub(super) fn ended_agents(&self) -> BTreeSet<AgentName> {
        let participants = self.participants().into_iter();
        participants
            .filter(|name| completion::agent(&self.folder, name))
            .collect()
    }
}

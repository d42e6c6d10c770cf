//! The memory that a run's agents need on each device.

use std::collections::{BTreeMap, BTreeSet};

use configs::{AgentConfig, AgentName, DeviceName, ModelConfig, RunConfig};
use trainer::model::ModelShape;

use super::{Memory, shape};

/// Memory that CUDA takes on a GPU for each process: its context and the code of kernels.
const CONTEXT: u64 = 512 << 20;

/// The way in which a run's processes hold a base that agents share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    /// All agents in one process have one copy.
    One,
    /// Each agent's process has its own copy.
    Each,
}

/// The agents of one device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OnDevice {
    /// Agents with a known model. In one process, the first of those that share a base has it.
    pub agents: Vec<(AgentName, Memory)>,
    /// Agents with a model that is not on this machine.
    pub unknown: Vec<AgentName>,
    /// Host memory of agents on any device. Listed under the CPU.
    pub hosted: Vec<Hosted>,
}

/// Host memory of an agent's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosted {
    pub agent: AgentName,
    /// The rank of its trainer.
    pub rank: usize,
    pub is_engine: bool,
    /// The device that the process computes on.
    pub device: DeviceName,
    pub bytes: u64,
}

impl OnDevice {
    /// Returns the bytes that the agents cannot do without.
    #[must_use]
    pub fn least(&self) -> u64 {
        let agents: u64 = self.agents.iter().map(|(_, memory)| memory.least()).sum();
        let hosted: u64 = self.hosted.iter().map(|hosted| hosted.bytes).sum();
        agents + hosted
    }

    /// Returns the bytes that steps take for a moment.
    #[must_use]
    pub fn passing(&self) -> u64 {
        self.agents.iter().map(|(_, memory)| memory.passing()).sum()
    }
}

/// Returns the memory that the run's agents need, by device. Models on servers need none here.
/// `launched` is the number of ranks, on all hosts, that a launcher starts for each trainer.
/// Without a launcher `train.devices` gives their number.
#[must_use]
pub fn by_device(config: &RunConfig, processes: Processes, launched: Option<usize>) -> BTreeMap<DeviceName, OnDevice> {
    by_device_of(config, processes, launched, shape)
}

pub(super) fn by_device_of(
    config: &RunConfig,
    processes: Processes,
    launched: Option<usize>,
    shape: impl Fn(&ModelConfig) -> Option<ModelShape>,
) -> BTreeMap<DeviceName, OnDevice> {
    let mut devices: BTreeMap<DeviceName, OnDevice> = BTreeMap::new();
    let mut bases: Vec<&AgentConfig> = Vec::new();
    let mut opened = BTreeSet::new();
    for (name, agent) in &config.agents {
        if matches!(agent.model, ModelConfig::Served(_)) || !config.plays(name) {
            continue;
        }
        let Some(shape) = shape(&agent.model) else {
            devices.entry(agent.device).or_default().unknown.push(name.clone());
            continue;
        };
        let ranks = launched.unwrap_or(agent.train.devices.len()).max(1);
        let mut memory = Memory::of(agent, &shape, ranks);
        if agent.lora.is_some() && processes == Processes::One {
            if bases.iter().any(|other| same_base(other, agent)) {
                memory.base = 0;
            } else if memory.base > 0 {
                bases.push(agent);
            }
        }
        let mut all = vec![(agent.device, memory)];
        let later = agent.train.devices.iter().enumerate().skip(1);
        all.extend(later.map(|(rank, place)| (*place, Memory::of_rank(agent, &shape, rank, ranks))));
        let engines = agent.engine.here();
        let places = engines.map(|(.., place)| place.unwrap_or(agent.device));
        all.extend(places.map(|place| (place, Memory::of_engine(agent, &shape, place))));
        for (place, mut memory) in all {
            let is_shared = processes == Processes::One && memory.rank == 0 && !memory.is_engine;
            if place != DeviceName::Cpu && memory.least() > 0 && (!is_shared || opened.insert(place)) {
                memory.context = CONTEXT;
            }
            devices.entry(place).or_default().agents.push((name.clone(), memory));
            if memory.host > 0 {
                let hosted = Hosted {
                    agent: name.clone(),
                    rank: memory.rank,
                    is_engine: memory.is_engine,
                    device: place,
                    bytes: memory.host,
                };
                devices.entry(DeviceName::Cpu).or_default().hosted.push(hosted);
            }
        }
    }
    devices
}

/// Returns true if two agents compute with the same model in the same way.
#[must_use]
pub fn same_base(a: &AgentConfig, b: &AgentConfig) -> bool {
    let model = match (&a.model, &b.model) {
        (ModelConfig::Path(a), ModelConfig::Path(b)) => a == b,
        (ModelConfig::Random(a), ModelConfig::Random(b)) => a == b,
        _ => false,
    };
    model && a.device == b.device && a.dtype == b.dtype
}

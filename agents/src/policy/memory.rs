//! Estimates the memory that an agent needs, before anything is loaded. [`split`] has the parts of
//! a trainer's ranks.

mod split;

use std::collections::BTreeMap;

use configs::{
    AgentConfig, AgentName, DeviceName, Dtype, EngineKind, ModelConfig, Offload, RunConfig, TokenizerConfig,
};
use trainer::loss::head::chunk_elements;
use trainer::model::{Layout, ModelShape};

use self::split::Split;
use super::lora_shape;
use crate::run_folder::models::{self, Reads};

/// Largest number of control tokens in a generated tokenizer.
const CONTROL: usize = 4;
/// Bytes of a trained number, of its gradient, and of each AdamW moment.
const F32: u64 = 4;
/// Tensors in f32 that a chunk of the loss holds at once: logits, their softmax, their gradient.
const CHUNKS: u64 = 3;

/// Bytes that an agent's process holds, on its device if not stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// The rank of the agent's trainer that this is; the first is in the agent's own process.
    pub rank: usize,
    /// True for an engine in a process of its own.
    pub is_engine: bool,
    /// The frozen model below an adapter, which agents of one process share.
    pub base: u64,
    /// The weights that its engine computes with, those that it gets next, and the copies that
    /// training computes with.
    pub weights: u64,
    /// The trained weights in f32, and their moving average.
    pub masters: u64,
    /// Host memory: the f32 weights, their average and the moments, if they are offloaded. If the
    /// ranks split the weights, the first rank also collects the model here to publish it.
    pub host: u64,
    /// The gradient.
    pub gradient: u64,
    /// The two moments of AdamW.
    pub optimizer: u64,
    /// An estimate of what one micro-batch keeps for the backward pass.
    pub activations: u64,
    /// The keys and values that its engines allocate at their start (`engine.cache_mib`).
    pub cache: u64,
    /// Without that bound, the keys and values for one generation at the longest context; each slot
    /// may reach it.
    pub row: u64,
    /// The keys and values if every slot reaches it.
    pub rows: u64,
    /// The number of engines that hold these rows.
    pub engines: u64,
}

impl Memory {
    /// Returns the bytes on the device that training cannot do without: everything but activations
    /// and keys and values that grow.
    #[must_use]
    pub fn least(&self) -> u64 {
        self.base + self.weights + self.masters + self.gradient + self.optimizer + self.cache
    }

    /// Returns the bytes of an agent's own process, with this model and `ranks` ranks in its
    /// trainer.
    #[must_use]
    pub fn of(agent: &AgentConfig, shape: &ModelShape, ranks: usize) -> Self {
        let (own, base) = parameters(agent, shape);
        let memory = Self {
            base: base * copies(agent) * width(agent.dtype),
            ..Self::default()
        };
        memory.serving(agent, shape, own).training(agent, shape, own, ranks)
    }

    /// Returns the bytes of a later rank of the agent's trainer, in a process of its own.
    #[must_use]
    pub fn of_rank(agent: &AgentConfig, shape: &ModelShape, rank: usize, ranks: usize) -> Self {
        let (own, base) = parameters(agent, shape);
        let memory = Self {
            rank,
            base: base * width(agent.dtype),
            ..Self::default()
        };
        memory.training(agent, shape, own, ranks)
    }

    /// Returns the bytes of an engine in a process of its own.
    #[must_use]
    pub fn of_engine(agent: &AgentConfig, shape: &ModelShape, device: DeviceName) -> Self {
        let (own, base) = parameters(agent, shape);
        let memory = Self {
            is_engine: true,
            base: base * computing(agent, device) * width(agent.dtype),
            ..Self::default()
        };
        memory.with_engine(agent, shape, own, device)
    }

    /// Adds an embedded engine.
    fn serving(self, agent: &AgentConfig, shape: &ModelShape, own: u64) -> Self {
        match agent.engine.kind {
            EngineKind::Embedded => self.with_engine(agent, shape, own, agent.device),
            _ => self,
        }
    }

    /// Adds what an engine holds. `own` is the number of served parameters, without a base.
    fn with_engine(mut self, agent: &AgentConfig, shape: &ModelShape, own: u64, device: DeviceName) -> Self {
        let replicas = agent.engine.replicas.max(1) as u64;
        let served = match agent.lora {
            Some(_) => 1,
            None => computing(agent, device),
        };
        // The next weights are copied while the engine computes with the last ones.
        let copies = served + u64::from(agent.train.enabled);
        self.weights += own * copies * replicas * width(agent.dtype);
        if agent.engine.cache_mib > 0 {
            self.cache = replicas * ((agent.engine.cache_mib as u64) << 20);
            return self;
        }
        let token = 2 * (shape.layers * shape.kv_heads * shape.head_dim) as u64 * width(agent.dtype);
        self.row = context(agent, shape) as u64 * token;
        self.engines = replicas;
        self.rows = self.row * agent.engine.slots as u64 * replicas;
        self
    }

    /// Adds what the trainer holds. `own` is the number of trained parameters.
    fn training(mut self, agent: &AgentConfig, shape: &ModelShape, own: u64, ranks: usize) -> Self {
        let train = &agent.train;
        if !train.enabled {
            return self;
        }
        if train.is_external() {
            // Only the published weights are counted: the memory of the program is not known.
            self.host += own * width(agent.dtype);
            return self;
        }
        let (width, layout) = (width(agent.dtype), Split::of(agent, ranks));
        // The reference policy of the KL.
        if train.kl.coef > 0.0 {
            self.weights += own * width;
        }
        if agent.dtype == Dtype::Bf16 {
            self.weights += layout.weights(shape, own, width);
        }
        if !layout.apart {
            self.masters += own * F32;
        } else if layout.computes_in_f32 {
            self.weights += layout.weights(shape, own, F32);
        }
        let (buffer, average) = (layout.share(own * F32), u64::from(train.ema.is_some()));
        let offloaded = match train.offload {
            Offload::Optimizer => pinned(agent, buffer),
            Offload::None => 0,
        };
        if self.rank == 0 && layout.weights {
            self.host += own * width;
        }
        self.host += (3 + average) * offloaded;
        if offloaded == 0 {
            self.masters += (average + u64::from(layout.apart)) * buffer;
            self.optimizer += 2 * buffer;
        }
        self.gradient += layout.gradient(agent, shape, own);
        if !train.checkpoint_activations {
            // The backward pass returns the gradients of all layers at once.
            self.gradient += own * width;
        }
        self.activations += activations(agent, shape);
        self
    }
}

/// Returns the number of tokens in an agent's longest row.
#[must_use]
pub fn context(agent: &AgentConfig, shape: &ModelShape) -> usize {
    let limit = agent.sampling.max_context.filter(|limit| *limit > 0);
    limit.map_or(shape.max_context, |limit| shape.max_context.min(limit as usize))
}

/// Returns the bytes of a buffer in host memory. A GPU reads pinned memory, which libtorch rounds
/// up to a power of two.
fn pinned(agent: &AgentConfig, bytes: u64) -> u64 {
    match agent.device {
        DeviceName::Cpu => bytes,
        DeviceName::Cuda(_) => bytes.next_power_of_two(),
    }
}

/// The numbers of an agent's own parameters and of those in the base below them.
fn parameters(agent: &AgentConfig, shape: &ModelShape) -> (u64, u64) {
    let model = Layout::of(shape).numel() as u64;
    match &agent.lora {
        Some(lora) => (Layout::of_adapter(shape, &lora_shape(lora)).numel() as u64, model),
        None => (model, 0),
    }
}

/// How a run's processes hold a base that agents share.
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
    /// State of trainers on other devices: agent, rank, device and bytes. Only the CPU has it.
    pub hosted: Vec<(AgentName, usize, DeviceName, u64)>,
}

impl OnDevice {
    /// Returns the bytes that the agents cannot do without.
    #[must_use]
    pub fn least(&self) -> u64 {
        let agents: u64 = self.agents.iter().map(|(_, memory)| memory.least()).sum();
        let hosted: u64 = self.hosted.iter().map(|(_, _, _, bytes)| bytes).sum();
        agents + hosted
    }
}

/// Returns the memory that the run's agents need, by device. Models on servers need none here.
/// `launched` is the number of ranks, on all hosts, that a launcher starts for each trainer.
/// Without a launcher `train.devices` gives their number.
#[must_use]
pub fn by_device(config: &RunConfig, processes: Processes, launched: Option<usize>) -> BTreeMap<DeviceName, OnDevice> {
    by_device_of(config, processes, launched, shape)
}

fn by_device_of(
    config: &RunConfig,
    processes: Processes,
    launched: Option<usize>,
    shape: impl Fn(&ModelConfig) -> Option<ModelShape>,
) -> BTreeMap<DeviceName, OnDevice> {
    let mut devices: BTreeMap<DeviceName, OnDevice> = BTreeMap::new();
    let mut bases: Vec<&AgentConfig> = Vec::new();
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
        for (place, memory) in all {
            devices.entry(place).or_default().agents.push((name.clone(), memory));
            if memory.host > 0 {
                let hosted = (name.clone(), memory.rank, place, memory.host);
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

/// Estimates what a micro-batch keeps: per token and layer two norms, queries, keys, values, the
/// output of attention, two residuals, and four widths of the SwiGLU layer. With
/// `checkpoint_activations` one layer at a time, and the input of each. A chunk of the loss comes
/// on top.
fn activations(agent: &AgentConfig, shape: &ModelShape) -> u64 {
    let attention = 2 * shape.heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim;
    let layer = 4 * shape.hidden + attention + 4 * shape.intermediate;
    let numbers = if agent.train.checkpoint_activations {
        shape.layers * shape.hidden + layer
    } else {
        shape.layers * layer
    };
    let tokens = agent.train.micro_batch_tokens as u64;
    let chunk = (chunk_elements(device(agent)).max(0) as u64).min(tokens * shape.vocab as u64);
    tokens * numbers as u64 * width(agent.dtype) + CHUNKS * chunk * F32
}

fn device(agent: &AgentConfig) -> trainer::device::Device {
    match agent.device {
        DeviceName::Cpu => trainer::device::Device::Cpu,
        DeviceName::Cuda(index) => trainer::device::Device::Cuda(index),
    }
}

/// Returns how many copies of a model an agent's process holds to compute with.
fn copies(agent: &AgentConfig) -> u64 {
    match Reads::of(agent) {
        Reads::NoWeights => 0,
        Reads::Whole if agent.engine.kind == EngineKind::Embedded => computing(agent, agent.device),
        Reads::Whole => 1,
    }
}

/// Returns how many copies of a model an engine computes with. On a CPU it keeps a second,
/// reordered copy (`engine.prepack`).
fn computing(agent: &AgentConfig, device: DeviceName) -> u64 {
    let is_prepacked = agent.engine.prepack && device == DeviceName::Cpu;
    1 + u64::from(is_prepacked)
}

fn width(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::F32 => 4,
        Dtype::Bf16 => 2,
    }
}

/// Formats a number of bytes for people: `3.2 GiB`.
#[must_use]
pub fn amount(bytes: u64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", bytes as f64 / *size as f64),
        None => format!("{bytes} bytes"),
    }
}

/// Returns the shape of a model, or `None` if it is not on this machine or cannot be read.
#[must_use]
pub fn shape(model: &ModelConfig) -> Option<ModelShape> {
    match model {
        ModelConfig::Path(path) => ModelShape::load(&models::locate(path, Reads::NoWeights).ok()?).ok(),
        ModelConfig::Random(random) => {
            let words = match &random.tokenizer {
                TokenizerConfig::Bytes => 256,
                TokenizerConfig::Words(words) => words.len(),
            };
            ModelShape::from_random(random, words + CONTROL, &[]).ok()
        }
        ModelConfig::Served(_) => None,
    }
}

#[cfg(test)]
mod tests;

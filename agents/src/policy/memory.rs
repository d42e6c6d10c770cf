//! Estimates the memory that an agent needs, before anything is loaded.

use std::collections::BTreeMap;

use configs::{
    AgentConfig, AgentName, DeviceName, Dtype, EngineKind, ModelConfig, Offload, RunConfig, Shard, TokenizerConfig,
};
use trainer::loss::head::chunk_elements;
use trainer::model::{Layout, ModelShape};

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
    /// The frozen model below an adapter, which agents of one process share.
    pub base: u64,
    /// The weights that its engine computes with, and the copies that training computes with.
    pub weights: u64,
    /// The trained weights in f32, and their moving average.
    pub masters: u64,
    /// The f32 weights, their average and the moments, if the host's memory has them.
    pub host: u64,
    /// The gradient.
    pub gradient: u64,
    /// The two moments of AdamW.
    pub optimizer: u64,
    /// An estimate of what one micro-batch keeps for the backward pass.
    pub activations: u64,
    /// The engine's keys and values for one generation at the longest context; each slot may reach
    /// it.
    pub row: u64,
}

impl Memory {
    /// Returns the bytes on the device that training cannot do without: everything but activations
    /// and keys and values.
    #[must_use]
    pub fn least(&self) -> u64 {
        self.base + self.weights + self.masters + self.gradient + self.optimizer
    }

    /// Returns the bytes of an agent with these settings and a model of this shape.
    #[must_use]
    pub fn of(agent: &AgentConfig, shape: &ModelShape) -> Self {
        let (own, base) = parameters(agent, shape);
        let memory = Self {
            base: base * copies(agent) * width(agent.dtype),
            ..Self::default()
        };
        memory.serving(agent, shape, own).training(agent, shape, own)
    }

    /// Returns the bytes of a later rank of the agent's trainer, in a process of its own.
    #[must_use]
    pub fn of_rank(agent: &AgentConfig, shape: &ModelShape, rank: usize) -> Self {
        let (own, base) = parameters(agent, shape);
        let memory = Self {
            rank,
            base: base * width(agent.dtype),
            ..Self::default()
        };
        memory.training(agent, shape, own)
    }

    /// Adds what the engine holds. `own` is the number of served parameters, without a base.
    fn serving(mut self, agent: &AgentConfig, shape: &ModelShape, own: u64) -> Self {
        if agent.engine.kind != EngineKind::Embedded {
            return self;
        }
        let replicas = agent.engine.replicas.max(1) as u64;
        let copies = match agent.lora {
            Some(_) => 1,
            None => copies(agent),
        };
        self.weights += own * copies * replicas * width(agent.dtype);
        let token = 2 * (shape.layers * shape.kv_heads * shape.head_dim) as u64 * width(agent.dtype);
        let limit = agent.sampling.max_context.filter(|limit| *limit > 0);
        let context = limit.map_or(shape.max_context, |limit| shape.max_context.min(limit as usize)) as u64;
        self.row = context * token;
        self
    }

    /// Adds what the trainer holds. `own` is the number of trained parameters.
    fn training(mut self, agent: &AgentConfig, shape: &ModelShape, own: u64) -> Self {
        let train = &agent.train;
        if !train.enabled {
            return self;
        }
        let (width, layout) = (width(agent.dtype), Split::of(agent));
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
        let average = own * F32 * u64::from(train.ema.is_some());
        let masters = average + own * F32 * u64::from(layout.apart);
        let (masters, optimizer) = (layout.share(masters), layout.share(own * F32 * 2));
        if train.offload == Offload::Optimizer {
            self.host += masters + optimizer;
        } else {
            self.masters += masters;
            self.optimizer += optimizer;
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

/// How the ranks of a trainer hold its f32 state.
#[derive(Debug, Clone, Copy)]
struct Split {
    /// Ranks that the state is split among.
    ranks: u64,
    /// True if the gradient is split too.
    gradient: bool,
    /// True if the weights to compute with are split too.
    weights: bool,
    /// True if the f32 weights are not the ones that the model computes with.
    apart: bool,
    /// True if the weights of all ranks are in f32: for an adapter, or in an f32 run.
    computes_in_f32: bool,
}

impl Split {
    fn of(agent: &AgentConfig) -> Self {
        let train = &agent.train;
        let ranks = match train.shard {
            Shard::None => 1,
            Shard::Optimizer | Shard::Gradient | Shard::Full => train.devices.len().max(1) as u64,
        };
        let computes_in_f32 = agent.lora.is_some() || agent.dtype == Dtype::F32;
        let gradient = matches!(train.shard, Shard::Gradient | Shard::Full) && ranks > 1;
        Self {
            ranks,
            gradient,
            weights: train.shard == Shard::Full && ranks > 1,
            apart: train.offload == Offload::Optimizer || gradient || (ranks > 1 && !computes_in_f32),
            computes_in_f32,
        }
    }

    /// The bytes of a gradient of `own` elements: all of it, or a rank's part with the parts of the
    /// model that are not split yet.
    fn gradient(self, agent: &AgentConfig, shape: &ModelShape, own: u64) -> u64 {
        if !self.gradient {
            return own * F32;
        }
        let open = match agent.lora {
            Some(_) => own,
            None => window(shape, own),
        };
        self.share(own * F32) + open * F32
    }

    /// The bytes of `own` weights to compute with, `width` bytes each: all of them, or a rank's
    /// part with the parts of the model that are there together.
    fn weights(self, shape: &ModelShape, own: u64, width: u64) -> u64 {
        if self.weights {
            self.share(own * width) + window(shape, own) * width
        } else {
            own * width
        }
    }

    /// A rank's part of these bytes.
    fn share(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.ranks)
    }
}

/// The parameters of the embedding, the head and one layer.
fn window(shape: &ModelShape, own: u64) -> u64 {
    let matrix = (shape.vocab * shape.hidden) as u64;
    let outer = if shape.tied { matrix } else { 2 * matrix };
    outer + own.saturating_sub(outer) / shape.layers.max(1) as u64
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

/// Returns what the run's agents need, by device. Models of servers need nothing here.
#[must_use]
pub fn by_device(config: &RunConfig, processes: Processes) -> BTreeMap<DeviceName, OnDevice> {
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
        let mut memory = Memory::of(agent, &shape);
        if agent.lora.is_some() && processes == Processes::One {
            if bases.iter().any(|other| same_base(other, agent)) {
                memory.base = 0;
            } else if memory.base > 0 {
                bases.push(agent);
            }
        }
        let mut all = vec![(agent.device, memory)];
        let later = agent.train.devices.iter().enumerate().skip(1);
        all.extend(later.map(|(rank, place)| (*place, Memory::of_rank(agent, &shape, rank))));
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

/// Returns how many copies of a model an agent's process holds to compute with. An embedded engine
/// in f32 on a CPU keeps a second, reordered copy (`engine.prepack`).
fn copies(agent: &AgentConfig) -> u64 {
    match Reads::of(agent) {
        Reads::NoWeights => 0,
        Reads::Whole if is_prepacked(agent) => 2,
        Reads::Whole => 1,
    }
}

fn is_prepacked(agent: &AgentConfig) -> bool {
    let embedded = agent.engine.kind == EngineKind::Embedded && agent.engine.prepack;
    embedded && agent.dtype == Dtype::F32 && agent.device == DeviceName::Cpu
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
mod tests {
    use std::path::Path;

    use configs::RunConfig;

    use super::*;

    /// Qwen3-8B's shape.
    fn eight_billion() -> ModelShape {
        let model = r#"{"layers": 36, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "intermediate": 12288,
            "max_context": 40960, "tokenizer": "bytes"}"#;
        ModelShape::from_random(&serde_json::from_str(model).unwrap(), 151_936, &[]).unwrap()
    }

    fn agent(change: &str) -> AgentConfig {
        let text = include_str!("../../../configs/two-lora.toml");
        let text = text.replace("[agents.b]", &format!("[agents.b]\n{change}"));
        let config = RunConfig::parse(&text, Path::new("x.toml")).unwrap();
        config.agents.last_key_value().unwrap().1.clone()
    }

    #[test]
    fn full_training_in_bf16_takes_the_bytes_of_its_parts() {
        let mut agent = agent("dtype = \"bf16\"\ndevice = \"cuda:0\"\ntrain.checkpoint_activations = true");
        agent.lora = None;
        let shape = eight_billion();
        let own = Layout::of(&shape).numel() as u64;
        let memory = Memory::of(&agent, &shape);
        assert!((8_190_000_000..8_200_000_000).contains(&own), "{own}");
        // Master 4, gradient 4, moments 8, a copy to train with and a copy to serve with of 2 each.
        assert_eq!(memory.least(), 20 * own);
        let gib = memory.activations >> 30;
        assert!((6..=10).contains(&gib), "{gib} GiB for 16,384 tokens");
        agent.train.checkpoint_activations = false;
        let kept = Memory::of(&agent, &shape);
        assert_eq!(kept.gradient, 6 * own);
        assert!(kept.activations > 5 * memory.activations);
    }

    #[test]
    fn adapter_adds_little_to_its_base() {
        let shape = eight_billion();
        let memory = Memory::of(&agent("dtype = \"bf16\"\ndevice = \"cuda:0\""), &shape);
        assert_eq!(memory.base, 2 * Layout::of(&shape).numel() as u64);
        assert!(memory.least() - memory.base < memory.base / 5, "{memory:?}");
    }

    #[test]
    fn ranks_split_the_moments_and_hold_no_engine() {
        let ranks = "dtype = \"bf16\"\ndevice = \"cuda:0\"\ntrain.devices = [\"cuda:0\", \"cuda:1\"]";
        let mut agent = agent(&format!("{ranks}\ntrain.shard = \"optimizer\""));
        agent.lora = None;
        let shape = eight_billion();
        let own = Layout::of(&shape).numel() as u64;
        let (first, second) = (Memory::of(&agent, &shape), Memory::of_rank(&agent, &shape, 1));
        assert_eq!((first.optimizer, second.optimizer), (4 * own, 4 * own));
        assert_eq!(first.weights - second.weights, 2 * own, "the engine's copy");
        assert_eq!((second.masters, second.row, second.rank), (2 * own, 0, 1));
        // Copies of 2 bytes to serve and to train with, the gradient, and half of 12 bytes.
        agent.train.checkpoint_activations = true;
        assert_eq!(Memory::of(&agent, &shape).least(), (2 + 2 + 4 + 6) * own);
        agent.train.shard = Shard::Gradient;
        let split = Memory::of_rank(&agent, &shape, 1);
        let open = split.gradient - 2 * own;
        // Embedding, head and one of 36 layers in f32.
        let matrices = 2 * 4 * (shape.vocab * shape.hidden) as u64;
        assert!((matrices..matrices + own / 8).contains(&open), "{open}");
        agent.train.shard = Shard::Full;
        let full = Memory::of_rank(&agent, &shape, 1);
        assert_eq!((full.gradient, full.optimizer), (split.gradient, 4 * own));
        assert_eq!(
            split.weights - full.weights,
            own - open / 2,
            "half of them, and the open parts"
        );
        agent.train.shard = Shard::None;
        assert_eq!(Memory::of_rank(&agent, &shape, 1).optimizer, 8 * own);
    }

    #[test]
    fn offload_moves_12_bytes_to_the_host() {
        let ranks = "dtype = \"bf16\"\ndevice = \"cuda:0\"\ntrain.checkpoint_activations = true";
        let mut agent = agent(&format!("{ranks}\ntrain.offload = \"optimizer\""));
        agent.lora = None;
        let shape = eight_billion();
        let own = Layout::of(&shape).numel() as u64;
        let memory = Memory::of(&agent, &shape);
        // Copies of 2 bytes to serve and to train with, and the gradient.
        assert_eq!((memory.least(), memory.host), (8 * own, 12 * own));
        agent.train.devices = vec![DeviceName::Cuda(0), DeviceName::Cuda(1)];
        agent.train.shard = Shard::Optimizer;
        let memory = Memory::of_rank(&agent, &shape, 1);
        assert_eq!((memory.least(), memory.host), (6 * own, 6 * own));
        agent.dtype = Dtype::F32;
        let memory = Memory::of_rank(&agent, &shape, 1);
        assert_eq!((memory.least(), memory.host), (8 * own, 6 * own));
    }

    #[test]
    fn frozen_agent_needs_no_trainer() {
        let memory = Memory::of(&agent("train.enabled = false"), &eight_billion());
        assert_eq!((memory.masters, memory.optimizer, memory.activations), (0, 0, 0));
        assert!(memory.base > 0 && memory.row > 0);
        let mut served = agent("train.enabled = false");
        served.engine.kind = EngineKind::Vllm;
        assert_eq!(Memory::of(&served, &eight_billion()), Memory::default());
    }
}

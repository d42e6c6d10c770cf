//! Estimates the memory that an agent needs, before anything is loaded. [`split`] has the parts of
//! a trainer's ranks, [`passing`] what a step takes, and [`by_device`] the sums of a run.

mod by_device;
mod passing;
mod split;

use configs::{AgentConfig, DeviceName, Dtype, EngineKind, ModelConfig, Offload, TokenizerConfig};
use trainer::model::{Layout, ModelShape};
use trainer::transfer::footprint;

pub use self::by_device::{Hosted, OnDevice, Processes, by_device, same_base};
use self::passing::{activations, logits};
use self::split::Split;
use super::lora_shape;
use crate::run_folder::models::{self, Reads};

/// Largest number of control tokens in a generated tokenizer.
const CONTROL: usize = 4;
/// Bytes of a trained number, of its gradient, and of each AdamW moment.
const F32: u64 = 4;

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
    /// Host memory: the f32 weights, their average and the moments, if they are offloaded, and
    /// weights between processes ([`footprint`]).
    pub host: u64,
    /// The gradient.
    pub gradient: u64,
    /// The two moments of AdamW.
    pub optimizer: u64,
    /// An estimate of what one micro-batch keeps for the backward pass.
    pub activations: u64,
    /// Memory that CUDA itself takes on a GPU; agents of one process share it.
    pub context: u64,
    /// An estimate of the logits that decode steps keep, and of what drawing tokens takes.
    pub logits: u64,
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
    /// Returns the bytes on the device that the agent cannot do without: everything but
    /// activations, logits, and keys and values that grow.
    #[must_use]
    pub fn least(&self) -> u64 {
        self.base + self.weights + self.masters + self.gradient + self.optimizer + self.context + self.cache
    }

    /// Returns the bytes on the device that steps take for a moment, or for some numbers of rows.
    #[must_use]
    pub fn passing(&self) -> u64 {
        self.activations + self.logits
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
        let memory = memory.serving(agent, shape, own).training(agent, shape, own, ranks);
        memory.handing_over(agent, own)
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
            host: footprint::of_receiver(own * width(agent.dtype)),
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
        self.logits = replicas * logits(agent, shape, device);
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

    /// Adds the weights in host memory, on their way to engines in other processes.
    fn handing_over(mut self, agent: &AgentConfig, own: u64) -> Self {
        if agent.engine.kind == EngineKind::Dyad {
            let bytes = own * width(agent.dtype);
            self.host += match agent.train.enabled {
                true => footprint::of_trained(bytes),
                false => footprint::of_frozen(bytes),
            };
            if agent.engine.here().count() < agent.engine.urls.len() {
                self.host += footprint::of_packed(bytes);
            }
        }
        self
    }

    /// Adds what the trainer holds. `own` is the number of trained parameters.
    fn training(mut self, agent: &AgentConfig, shape: &ModelShape, own: u64, ranks: usize) -> Self {
        let train = &agent.train;
        if !train.enabled {
            return self;
        }
        if train.is_external() {
            // The memory of the program is not known.
            return self;
        }
        let (width, layout) = (width(agent.dtype), Split::of(agent, ranks));
        // The reference policy of the KL.
        if train.kl.coef > 0.0 {
            self.weights += layout.weights(shape, own, width);
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

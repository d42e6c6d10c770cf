//! The parts of an engine, except for the weights that its agent trains.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use broker::AgentName;
use broker::ids::WeightVersion;
use configs::{AgentConfig, ModelConfig};
use rollout::text::TextCodec;
use trainer::device::Device;
use trainer::engine::{Engine, EngineOptions};
use trainer::model::{Layout, ModelShape, Weights};
use trainer::transfer::{Form, State};
use trainer::weights::Published;

use crate::base::startup;
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::process::model_match;
use crate::policy;
use crate::run_folder::models;
use crate::run_folder::models::Reads;

pub(crate) struct Parts {
    shape: ModelShape,
    layout: Arc<Layout>,
    /// The frozen model below an adapter. Locked, since a tensor must not be shared between
    /// threads.
    base: Option<Mutex<Weights>>,
    text: Arc<TextCodec>,
    /// The properties that its agent's model must have.
    pub(crate) facts: model_match::Facts,
    pub(crate) form: Form,
    pub(crate) device: Device,
    pub(crate) settings: AgentConfig,
}

/// Opens the agent's model folder, except for the weights. A random model is made again below
/// `folder`, for as long as it takes to open it.
pub(crate) fn open(name: &AgentName, settings: AgentConfig, seed: u64, folder: &Path) -> anyhow::Result<Arc<Parts>> {
    let (path, _scratch) = match &settings.model {
        ModelConfig::Path(path) => {
            let path =
                models::locate(path, Reads::Whole).with_context(|| format!("finding the model of agent {name}"))?;
            (path, None)
        }
        ModelConfig::Random(random) => {
            let scratch = Scratch::below(folder)?;
            let model = policy::model_name(&settings, name)?;
            startup::enter(name, "making a random model");
            policy::make(random, &scratch.0, &model, seed, name)
                .with_context(|| format!("making the model of agent {name}"))?;
            (scratch.0.clone(), Some(scratch))
        }
        ModelConfig::Served(model) => anyhow::bail!("the model {model:?} belongs to a server"),
    };
    let device = policy::open_device(settings.device).with_context(|| format!("serving an engine of agent {name}"))?;
    let shape = ModelShape::load(&path)?;
    if let Some(limit) = EngineOptions::from(&settings).cache {
        limit.check(&shape, settings.dtype)?;
    }
    let (layout, base) = match &settings.lora {
        None => (Arc::new(Layout::of(&shape)), None),
        Some(lora) => {
            let adapter = policy::adapter(lora, &shape, 0)?;
            startup::enter(name, "reading weights");
            let base = policy::base(&shape, &path, device, settings.dtype)?;
            (adapter.layout().clone(), Some(base))
        }
    };
    let text = TextCodec::open_for(&path, &settings)?;
    policy::check_tokens(&path, &shape, &text)?;
    Ok(Arc::new(Parts {
        form: policy::form(&layout, settings.dtype, base.as_ref())?,
        facts: model_match::facts(&shape, &text),
        text: Arc::new(text),
        shape,
        layout,
        base: base.map(Mutex::new),
        device,
        settings,
    }))
}

impl Parts {
    /// Returns a state as weights, on the CPU.
    pub(crate) fn weights(&self, state: &State) -> anyhow::Result<Weights> {
        Ok(Weights::from_bytes(
            self.layout.clone(),
            self.settings.dtype,
            state.bytes(),
        )?)
    }

    /// Starts the engine on its own thread, with its first weights.
    pub(crate) fn engine(&self, name: &AgentName, state: &State) -> anyhow::Result<Arc<EmbeddedEngine>> {
        let version: WeightVersion = state.version();
        let weights = self.weights(state)?;
        let weights = if self.device == Device::Cpu {
            weights
        } else {
            weights.copied_to(self.device, self.settings.dtype)?
        };
        let options = EngineOptions::from(&self.settings);
        let weights = Published::new(weights, version);
        let engine = match &self.base {
            Some(base) => {
                let base = base.lock().unwrap_or_else(PoisonError::into_inner).share();
                Engine::with_base(&self.shape, base, weights, options)?
            }
            None => Engine::new(&self.shape, weights, options)?,
        };
        Ok(EmbeddedEngine::start(
            name.as_str(),
            engine,
            version,
            self.text.clone(),
        )?)
    }
}

/// A temporary folder that is removed on drop.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn below(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(format!("engine-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir_all(&path).with_context(|| format!("making the folder {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover folder is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

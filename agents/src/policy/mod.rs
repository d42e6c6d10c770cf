//! The agent's policy before it trains: its model folder, its tokenizer, and the checkpoint it goes on from.

pub mod bases;
pub mod warm_start;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use broker::AgentName;
use configs::{AgentConfig, Dtype, EngineKind, LoraConfig, LoraTarget, ModelConfig, RandomModel};
use rollout::text::TextCodec;
use rollout::text::make::write_tokenizer;
use trainer::checkpoint;
use trainer::device::{self, Device};
use trainer::model::{Init, Layout, LoraShape, ModelShape, Module, Weights, has_weights, kind_of, peft};
use trainer::transfer::Form;

use crate::run_folder::models::{self, Reads};
use crate::run_folder::{RunFolder, input_digests};

/// A policy ready to serve and to train.
pub struct Prepared {
    pub folder: PathBuf,
    pub shape: ModelShape,
    /// What is trained and served: the model, or an adapter of `base`. In f32, on the CPU; but the model of an agent that does not train
    /// as it is served, on its device (on the CPU where engines elsewhere serve it). None where servers alone have them
    /// ([`Reads::NoWeights`]); an adapter that they are given is here.
    weights: Option<Weights>,
    /// Whether `weights` are the trainer's own: nobody else may read them.
    handed: bool,
    /// The frozen model below an adapter, as it computes, on its device (as `weights`); shared with the agents that name the same folder.
    /// None where servers alone have it.
    pub base: Option<Weights>,
    pub text: Arc<TextCodec>,
    /// Where its engine and its trainer compute.
    pub device: Device,
    pub settings: AgentConfig,
}

impl Prepared {
    /// What an engine serves first: a copy, or the storage itself where nobody changes it.
    pub(crate) fn served(&self) -> anyhow::Result<Weights> {
        let weights = self.weights()?;
        let (device, dtype) = (self.device, self.settings.dtype);
        let as_is = weights.device() == device && weights.kind() == kind_of(dtype);
        if as_is && !self.settings.train.enabled {
            return Ok(weights.share());
        }
        Ok(weights.copied_to(device, dtype)?)
    }

    /// What a trainer moves, in f32 on its device. On the CPU that is the storage of `weights` itself, which nobody may read from then
    /// on: a second copy of the whole model would serve nobody.
    ///
    /// # Errors
    /// A trainer has that storage already.
    pub(crate) fn trained(&mut self) -> anyhow::Result<Weights> {
        let weights = self.weights()?;
        let as_is = weights.device() == self.device && weights.kind() == kind_of(Dtype::F32);
        if as_is && self.device == Device::Cpu {
            let own = weights.share();
            self.handed = true;
            return Ok(own);
        }
        Ok(weights.copied_to(self.device, Dtype::F32)?)
    }

    /// Goes on with other weights of the same layout, which nobody else moves.
    pub(crate) fn renew(&mut self, weights: Weights) {
        (self.weights, self.handed) = (Some(weights), false);
    }

    /// What is trained and served.
    ///
    /// # Errors
    /// A trainer has its storage already, or servers alone have it.
    pub(crate) fn weights(&self) -> anyhow::Result<&Weights> {
        ensure!(
            !self.handed,
            "the first weights of {} are asked for after the trainer has them: this is a bug, engines begin before their trainer",
            self.folder.display()
        );
        self.weights.as_ref().with_context(|| {
            format!(
                "the weights in {} are asked for, which this process has left to the agent's servers: this is a bug",
                self.folder.display()
            )
        })
    }

    /// What engines in other processes hold its weights against.
    pub fn form(&self) -> anyhow::Result<Form> {
        form(self.weights()?.layout(), self.settings.dtype, self.base.as_ref())
    }
}

/// What weights of `layout`, served in `dtype` over `base`, are held against.
pub(crate) fn form(layout: &Layout, dtype: Dtype, base: Option<&Weights>) -> anyhow::Result<Form> {
    let base = base
        .map(Weights::frozen_digest)
        .transpose()
        .context("reading the base")?;
    Ok(Form::of(layout, dtype, base))
}

/// The frozen model in `folder`, one copy for this process.
pub(crate) fn base(shape: &ModelShape, folder: &Path, device: Device, dtype: Dtype) -> anyhow::Result<Weights> {
    bases::shared(shape, folder, device, dtype)
}

/// Opens the model's folder, making a random one first if the configuration asks for that.
///
/// `seed`: the run's; `name`: the agent's.
pub async fn prepare(run: &RunFolder, name: &AgentName, settings: &AgentConfig, seed: u64) -> anyhow::Result<Prepared> {
    let (run, name, settings) = (run.clone(), name.clone(), settings.clone());
    let prepare = move || {
        input_digests::models::verify_one(&run, &name, &settings.model)?;
        let prepared = prepare_in(|model| run.model(model), &settings, &name, seed)?;
        input_digests::models::settle(&run, &name, &settings.model)?;
        Ok(prepared)
    };
    tokio::task::spawn_blocking(prepare).await?
}

/// The policy of agent `name` as a run of this seed begins, before any warm start; `place` says where random models lie. Blocking.
pub(crate) fn prepare_in(
    place: impl Fn(&AgentName) -> PathBuf,
    settings: &AgentConfig,
    name: &AgentName,
    seed: u64,
) -> anyhow::Result<Prepared> {
    let folder = folder_in(place, settings, name, seed)?;
    open(folder, settings.clone(), adapter_seed(seed, name))
}

/// What [`prepare_in`] opens, as files: the folder of the model, and the adapter of it where there is one, in f32 on the CPU.
pub(crate) fn files_in(
    place: impl Fn(&AgentName) -> PathBuf,
    settings: &AgentConfig,
    name: &AgentName,
    seed: u64,
) -> anyhow::Result<(PathBuf, Option<Weights>)> {
    let folder = folder_in(place, settings, name, seed)?;
    let Some(lora) = &settings.lora else {
        return Ok((folder, None));
    };
    let shape = ModelShape::load(&folder).context("reading the base of the adapter")?;
    let adapter = adapter(lora, &shape, adapter_seed(seed, name))?;
    Ok((folder, Some(adapter)))
}

/// The folder of the agent's model, made if it is a random one.
fn folder_in(
    place: impl Fn(&AgentName) -> PathBuf,
    settings: &AgentConfig,
    name: &AgentName,
    seed: u64,
) -> anyhow::Result<PathBuf> {
    match &settings.model {
        ModelConfig::Path(path) => {
            models::locate(path, Reads::of(settings)).with_context(|| format!("finding the model of agent {name}"))
        }
        ModelConfig::Served(model) => anyhow::bail!("the model {model:?} is a server's: there is no policy to open"),
        ModelConfig::Random(random) => {
            let model = model_name(settings, name)?;
            let folder = place(&model);
            make(random, &folder, &model, seed, name).with_context(|| format!("making the model of agent {name}"))?;
            Ok(folder)
        }
    }
}

pub(crate) fn open(folder: PathBuf, settings: AgentConfig, seed: u64) -> anyhow::Result<Prepared> {
    let device = device::init(settings.device.into())?;
    let shape = ModelShape::load(&folder)?;
    if let Some((original, reach)) = shape.rope.unused_reach(shape.max_context) {
        let limit = shape.max_context;
        tracing::warn!(
            folder = %folder.display(), limit, original, reach,
            "config.json stretches the model by yarn, and its max_position_embeddings is that of before: contexts above are refused; write the \
             reach there to have them, and the original as original_max_position_embeddings beside yarn's factor where it is not told yet"
        );
    }
    let (weights, base) = load(&shape, &folder, &settings, device, seed)?;
    let text = Arc::new(TextCodec::open_for(&folder, &settings)?);
    Ok(Prepared {
        folder,
        shape,
        weights,
        handed: false,
        base,
        text,
        device,
        settings,
    })
}

/// What is trained and served, and the frozen model below it if that is an adapter; neither model where servers alone have it.
fn load(
    shape: &ModelShape,
    folder: &Path,
    settings: &AgentConfig,
    device: Device,
    seed: u64,
) -> anyhow::Result<(Option<Weights>, Option<Weights>)> {
    let (at, dtype) = (frozen_at(settings, device), settings.dtype);
    let here = Reads::of(settings) == Reads::Whole;
    if !here {
        tracing::info!(folder = %folder.display(), "its weights are not read: those that its servers were started with play");
    }
    if let Some(lora) = &settings.lora {
        let adapter = adapter(lora, shape, seed)?;
        let base = here.then(|| bases::shared(shape, folder, at, dtype)).transpose()?;
        if let (Some(path), Some(base)) = (&lora.path, &base) {
            warn_of_other_base(path, shape, base, folder)?;
        }
        return Ok((Some(adapter), base));
    }
    if !here {
        return Ok((None, None));
    }
    // One that plays with another's past is not warmed.
    let warmed = settings.train.warm_start.is_some() && settings.past.is_none();
    let weights = if settings.train.enabled || warmed {
        Weights::load(shape, folder)?
    } else {
        Weights::load_as(shape, folder, at, dtype)?
    };
    Ok((Some(weights), None))
}

/// An adapter fits every base of its widths. There are reasons to put one over another base than its own, so that is told, not refused.
pub(crate) fn warn_of_other_base(
    adapter: &Path,
    shape: &ModelShape,
    base: &Weights,
    folder: &Path,
) -> anyhow::Result<()> {
    if let Some(reason) = checkpoint::other_base(adapter, shape, base)? {
        tracing::warn!(
            adapter = %adapter.display(), base = %folder.display(), reason,
            "an adapter is put over another base than its own, where what it has learned may mean nothing; its adapter_config.json names its own, \
             for model.path"
        );
    }
    Ok(())
}

/// Where frozen weights lie: on the agent's `device` if something of this process computes with them, a trainer or an engine. Those that
/// engines elsewhere serve are only sent or compared, which takes none of its memory.
fn frozen_at(settings: &AgentConfig, device: Device) -> Device {
    let trains = settings.train.enabled || settings.train.warm_start.is_some();
    if trains || settings.engine.kind == EngineKind::Embedded {
        device
    } else {
        Device::Cpu
    }
}

/// The name from which a random model of an agent is made, and under which it lies.
pub(crate) fn model_name(settings: &AgentConfig, agent: &AgentName) -> anyhow::Result<AgentName> {
    match (&settings.model, &settings.lora) {
        (ModelConfig::Random(random), Some(_)) => base_name(random),
        _ => Ok(agent.clone()),
    }
}

/// Agents with adapters of equally described random models have one base between them: its name follows from what it is.
fn base_name(random: &RandomModel) -> anyhow::Result<AgentName> {
    let digest = broker::ids::Digest::of(&serde_json::to_vec(random)?).to_string();
    Ok(AgentName::new(&format!("base-{}", &digest[..8]))?)
}

/// Makes tokenizer and weights, the same for the same seed and `name`. A folder that is whole already is left as it is, and
/// one without weights, from which somebody took them or a disk lost them, is made anew. Several agents may make the same one
/// at once: each makes it aside, and the first to be done gives it its place.
pub(crate) fn make(
    random: &RandomModel,
    folder: &Path,
    name: &AgentName,
    seed: u64,
    maker: &AgentName,
) -> anyhow::Result<()> {
    let whole = || has_weights(folder);
    if whole() {
        return Ok(());
    }
    let aside = folder.with_extension(format!("{maker}-{}", std::process::id()));
    std::fs::create_dir_all(&aside)?;
    write_tokenizer(&aside, &random.tokenizer)?;
    let text = TextCodec::open(&aside)?;
    let shape = ModelShape::from_random(random, text.vocab_size(), &text.stop_ids())?;
    let init = Init {
        embedding_std: random.embedding_std,
        matrix_std: random.matrix_std,
    };
    Weights::random(&shape, init, model_seed(seed, name))?.save(&shape, &aside)?;
    let mut renamed = std::fs::rename(&aside, folder);
    if renamed.is_err() && folder.is_dir() && !whole() {
        tracing::warn!(folder = %folder.display(), "a model folder without weights is made anew");
        std::fs::remove_dir_all(folder).with_context(|| format!("removing the torn {}", folder.display()))?;
        renamed = std::fs::rename(&aside, folder);
    }
    match renamed {
        Err(_) if whole() => Ok(std::fs::remove_dir_all(&aside)?),
        renamed => renamed.with_context(|| format!("moving it to {}", folder.display())),
    }
}

pub(crate) fn adapter(config: &LoraConfig, shape: &ModelShape, seed: u64) -> anyhow::Result<Weights> {
    if let Some(path) = &config.path {
        return Ok(peft::load(path, shape)?.1);
    }
    Ok(Weights::adapter(shape, &lora_shape(config), seed)?)
}

/// The shape of a new adapter.
#[must_use]
pub fn lora_shape(config: &LoraConfig) -> LoraShape {
    let modules = |target: &LoraTarget| match target {
        LoraTarget::Attn => &Module::ALL[..4],
        LoraTarget::Mlp => &Module::ALL[4..7],
        LoraTarget::Unembed => &Module::ALL[7..],
    };
    LoraShape {
        rank: config.rank(),
        alpha: config.alpha(),
        targets: config.targets().iter().flat_map(modules).copied().collect(),
    }
}

/// Every token that is no control token.
pub(crate) fn words(text: &TextCodec) -> Vec<u32> {
    (0..text.vocab_size() as u32)
        .filter(|id| !text.is_control(*id))
        .collect()
}

fn model_seed(run_seed: u64, name: &AgentName) -> u64 {
    seed_of(&format!("model/{run_seed}/{name}"))
}

/// Two agents over one base begin with different adapters.
fn adapter_seed(run_seed: u64, name: &AgentName) -> u64 {
    seed_of(&format!("lora/{run_seed}/{name}"))
}

fn seed_of(text: &str) -> u64 {
    broker::ids::Digest::of(text.as_bytes()).number()
}

#[cfg(test)]
mod tests;

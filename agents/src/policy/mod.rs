//! The agent's policy before training: its model folder, its tokenizer, and its checkpoint.

pub mod bases;
pub mod memory;
mod prepared;
pub mod warm_start;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use broker::AgentName;
use configs::{AgentConfig, DeviceName, Dtype, EngineKind, LoraConfig, LoraTarget, ModelConfig, RandomModel};
use rollout::text::TextCodec;
use rollout::text::make::write_tokenizer;
use trainer::checkpoint;
use trainer::device::{self, Device};
use trainer::model::{Init, Layout, LoraShape, ModelShape, Module, StoredParams, Weights, has_weights, kind_of, peft};
use trainer::transfer::Form;

use crate::base::fault::Usage;
use crate::base::{log_scope, startup};
use crate::run_folder::models::{self, Reads};
use crate::run_folder::{RunFolder, input_digests};
use prepared::FirstWeights;

pub use prepared::Prepared;

/// Returns the form that weights of `layout`, served in `dtype` over `base`, are compared with.
pub(crate) fn form(layout: &Layout, dtype: Dtype, base: Option<&Weights>) -> anyhow::Result<Form> {
    let base = base
        .map(Weights::frozen_digest)
        .transpose()
        .context("reading the base")?;
    Ok(Form::of(layout, dtype, base))
}

/// Returns the frozen model in `folder`, one copy for this process.
pub(crate) fn base(shape: &ModelShape, folder: &Path, device: Device, dtype: Dtype) -> anyhow::Result<Weights> {
    bases::shared(shape, folder, device, dtype)
}

/// Opens the model's folder. Makes a random model first if the configuration asks for one.
///
/// `seed` is the run's, `name` the agent's.
pub async fn prepare(run: &RunFolder, name: &AgentName, settings: &AgentConfig, seed: u64) -> anyhow::Result<Prepared> {
    let (run, name, settings) = (run.clone(), name.clone(), settings.clone());
    let prepare = move || {
        startup::enter(&name, "checking the model's files");
        input_digests::models::verify_one(&run, &name, &settings.model)?;
        let prepared = prepare_in(|model| run.model(model), &settings, &name, seed)?;
        input_digests::models::settle(&run, &name, &settings.model)?;
        Ok(prepared)
    };
    log_scope::spawn_blocking(prepare).await?
}

/// Returns the policy with which agent `name` begins a run of this seed, before any warm start.
/// `place` returns the folder of a random model. Blocks the thread.
pub(crate) fn prepare_in(
    place: impl Fn(&AgentName) -> PathBuf,
    settings: &AgentConfig,
    name: &AgentName,
    seed: u64,
) -> anyhow::Result<Prepared> {
    let folder = folder_in(place, settings, name, seed)?;
    startup::enter(name, "reading weights");
    open(folder, settings.clone(), adapter_seed(seed, name))
}

/// Returns as files what [`prepare_in`] opens: the model's folder, and its adapter, if any, in f32
/// on the CPU.
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

/// Returns the folder of the agent's model, after making a random one.
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
        ModelConfig::Served(model) => {
            anyhow::bail!("the model {model:?} belongs to a server: there is no policy to open")
        }
        ModelConfig::Random(random) => {
            let model = model_name(settings, name)?;
            startup::enter(name, "making a random model");
            let folder = place(&model);
            make(random, &folder, &model, seed, name).with_context(|| format!("making the model of agent {name}"))?;
            Ok(folder)
        }
    }
}

/// Opens a device. A process that begins with the CPU cannot add a GPU.
pub(crate) fn open_device(name: DeviceName) -> anyhow::Result<Device> {
    device::init(name.into()).with_context(|| format!("opening the device {name}"))
}

pub(crate) fn open(folder: PathBuf, settings: AgentConfig, seed: u64) -> anyhow::Result<Prepared> {
    let device = open_device(settings.device)?;
    let shape = ModelShape::load(&folder)?;
    if let Some((original, reach)) = shape.rope.unused_reach(shape.max_context) {
        let limit = shape.max_context;
        tracing::warn!(
            folder = %folder.display(), limit, original, reach,
            "config.json extends the context by yarn, but max_position_embeddings is the original one: longer contexts are rejected; write the \
             reach there to allow them, and the original as original_max_position_embeddings next to yarn's factor if it is missing"
        );
    }
    let (own, base) = load(&shape, &folder, &settings, device, seed)?;
    let text = Arc::new(TextCodec::open_for(&folder, &settings)?);
    check_tokens(&folder, &shape, &text)?;
    Ok(Prepared {
        folder,
        shape,
        own,
        base,
        text,
        device,
        settings,
    })
}

/// Checks that the model has a row for every token of its tokenizer.
///
/// # Errors
/// The first token without one: a prompt with it could not be computed.
pub(crate) fn check_tokens(folder: &Path, shape: &ModelShape, text: &TextCodec) -> anyhow::Result<()> {
    let Some((id, token)) = text.first_beyond(shape.vocab) else {
        return Ok(());
    };
    Err(Usage::new(format!(
        "the tokenizer of {} has {} ids and the model {}: the first token without an embedding is {token:?}, id {id}; \
         resize the model's embeddings to the tokenizer, or remove the tokens from tokenizer.json",
        folder.display(),
        text.vocab_size(),
        shape.vocab
    ))
    .into())
}

/// Returns the weights that are trained and served, and the frozen model below an adapter, unless
/// only servers have it.
fn load(
    shape: &ModelShape,
    folder: &Path,
    settings: &AgentConfig,
    device: Device,
    seed: u64,
) -> anyhow::Result<(FirstWeights, Option<Weights>)> {
    let (at, dtype) = (frozen_at(settings, device), settings.dtype);
    let here = Reads::of(settings) == Reads::Whole;
    if !here {
        tracing::info!(folder = %folder.display(), "the weights are not read: the agent's servers use those they were started with");
    }
    if let Some(lora) = &settings.lora {
        let adapter = adapter(lora, shape, seed)?;
        let base = here.then(|| bases::shared(shape, folder, at, dtype)).transpose()?;
        if let (Some(path), Some(base)) = (&lora.path, &base) {
            warn_of_other_base(path, shape, base, folder)?;
        }
        return Ok((FirstWeights::Memory(adapter), base));
    }
    // An agent that plays with another agent's past is not warmed.
    let warmed = settings.train.warm_start.is_some() && settings.past.is_none();
    let own = if !here {
        FirstWeights::Elsewhere
    } else if settings.train.enabled || warmed {
        FirstWeights::Files(StoredParams::of_model(shape, folder, kind_of(Dtype::F32))?)
    } else {
        FirstWeights::Memory(Weights::load_as(shape, folder, at, dtype)?)
    };
    Ok((own, None))
}

/// Logs a warning if an adapter was trained over another base. An adapter fits every base of its
/// widths, and there are reasons to combine them, so this is not an error.
pub(crate) fn warn_of_other_base(
    adapter: &Path,
    shape: &ModelShape,
    base: &Weights,
    folder: &Path,
) -> anyhow::Result<()> {
    if let Some(reason) = checkpoint::other_base(adapter, shape, base)? {
        tracing::warn!(
            adapter = %adapter.display(), base = %folder.display(), reason,
            "an adapter is applied to another base than its own, which may make it useless; its adapter_config.json names its own, \
             to be set as model.path"
        );
    }
    Ok(())
}

/// Returns the device of frozen weights: the agent's, if a trainer or an engine of this process
/// computes with them. Weights that engines elsewhere serve are only sent or compared, so they take
/// no device memory.
fn frozen_at(settings: &AgentConfig, device: Device) -> Device {
    let trains = settings.train.enabled || settings.train.warm_start.is_some();
    if trains || settings.engine.kind == EngineKind::Embedded {
        device
    } else {
        Device::Cpu
    }
}

/// Returns the name that seeds an agent's random model and names its folder.
pub(crate) fn model_name(settings: &AgentConfig, agent: &AgentName) -> anyhow::Result<AgentName> {
    match (&settings.model, &settings.lora) {
        (ModelConfig::Random(random), Some(_)) => base_name(random),
        _ => Ok(agent.clone()),
    }
}

/// Returns the name of a shared base, made from the random model's description. Agents with
/// adapters of equally described random models share one base.
fn base_name(random: &RandomModel) -> anyhow::Result<AgentName> {
    let digest = broker::ids::Digest::of(&serde_json::to_vec(random)?).to_string();
    Ok(AgentName::new(&format!("base-{}", &digest[..8]))?)
}

/// Makes tokenizer and weights, the same for the same seed and `name`. A complete folder stays as
/// it is. A folder that lost its weights is made again. Several agents may make the same model at
/// once: each makes it in a folder next to the place, and the first to finish moves it there.
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
        tracing::warn!(folder = %folder.display(), "a model folder without weights is made again");
        std::fs::remove_dir_all(folder).with_context(|| format!("removing the incomplete {}", folder.display()))?;
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

/// Returns the shape of a new adapter.
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

/// Returns every token that is not a control token.
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

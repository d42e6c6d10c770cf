//! The agent's policy before it trains: its model folder, its tokenizer, and the checkpoint it goes on from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use broker::AgentName;
use configs::{AgentConfig, ModelConfig, RandomModel};
use rollout::text::TextCodec;
use rollout::text::make::write_tokenizer;
use trainer::device::{self, Device};
use trainer::model::{Init, ModelShape, Weights};

use super::Env;

/// A policy ready to serve and to train.
pub struct Prepared {
    pub folder: PathBuf,
    pub shape: ModelShape,
    pub weights: Weights,
    pub text: Arc<TextCodec>,
    /// Where its engine and its trainer compute.
    pub device: Device,
    pub settings: AgentConfig,
}

/// Opens the model's folder, making a random one first if the configuration asks for that.
pub async fn prepare(env: &Env, settings: &AgentConfig) -> anyhow::Result<Prepared> {
    let folder = match &settings.model {
        ModelConfig::Path(path) => path.clone(),
        ModelConfig::Random(_) => env.folder.model(&env.name),
    };
    let (settings, name, seed) = (settings.clone(), env.name.clone(), env.config.run.seed);
    tokio::task::spawn_blocking(move || {
        if let ModelConfig::Random(random) = &settings.model {
            make(random, &folder, &name, seed).with_context(|| format!("making the model of agent {name}"))?;
        }
        open(folder, settings)
    })
    .await?
}

fn open(folder: PathBuf, settings: AgentConfig) -> anyhow::Result<Prepared> {
    let device = device::init(settings.device.into())?;
    let shape = ModelShape::load(&folder)?;
    let weights = Weights::load(&shape, &folder)?;
    let text = Arc::new(TextCodec::open(&folder)?);
    Ok(Prepared {
        folder,
        shape,
        weights,
        text,
        device,
        settings,
    })
}

/// Makes tokenizer and weights, the same for the same seed and name. A folder that is whole already is left as it is.
fn make(random: &RandomModel, folder: &Path, name: &AgentName, seed: u64) -> anyhow::Result<()> {
    if folder.join("model.safetensors").exists() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    write_tokenizer(folder, &random.tokenizer)?;
    let text = TextCodec::open(folder)?;
    let shape = ModelShape::from_random(random, text.vocab_size(), &text.stop_ids())?;
    let init = Init {
        embedding_std: random.embedding_std,
        matrix_std: random.matrix_std,
    };
    Weights::random(&shape, init, model_seed(seed, name))?.save(&shape, folder)?;
    Ok(())
}

fn model_seed(run_seed: u64, name: &AgentName) -> u64 {
    let digest = broker::ids::Digest::of(format!("model/{run_seed}/{name}").as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.0[..8]);
    u64::from_le_bytes(bytes)
}

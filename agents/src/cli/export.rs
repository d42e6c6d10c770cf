//! `dyad export AGENT`: a checkpoint's weights as a folder that others load.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use broker::AgentName;
use clap::{Args, ValueEnum};
use configs::{ByteSize, Dtype, ModelConfig};
use serde_json::json;
use trainer::checkpoint::{CheckpointError, EXPORT, Export, ExportError, Exported, export};
use trainer::model::SHARD_BYTES;

use super::select::RunArg;
use crate::base::fault::Usage;
use crate::eval::engines::Scratch;
use crate::eval::weights::{Chosen, Files};
use crate::run_folder::RunFolder;
use crate::run_folder::telemetry;
use crate::run_folder::telemetry::Telemetry;

/// Write an agent's weights as a folder that others load: Hugging Face's form, or PEFT's for an adapter
///
/// Without what only training needs. The folder is whole or not there.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The agent
    pub agent: String,
    #[command(flatten)]
    pub run: RunArg,
    /// Which weights: the newest checkpoint (`latest`), the newest undamaged one (`last-good`), that of step N, or the policy as the
    /// run began (`initial`)
    #[arg(long, value_name = "N|latest|last-good|initial", default_value = "latest")]
    pub step: Step,
    /// The folder to make; of a link, the folder that it leads to
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Of an adapter: base and adapter in one, as a whole model; needs memory for it in f32, for two where a tied head is changed
    #[arg(long)]
    pub merged: bool,
    /// Of the weights in the files; checkpoints have f32
    #[arg(long, value_enum, default_value = "f32")]
    pub dtype: Kind,
    /// Bytes of one file of weights at most, such as "2 GiB"; a larger model is written in shards with an index
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(SHARD_BYTES))]
    pub max_shard_size: ByteSize,
    /// Replace an earlier export: a folder with a dyad_export.json and nothing below it
    #[arg(long)]
    pub force: bool,
}

/// Which checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Latest,
    LastGood,
    Initial,
    At(u64),
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latest" => Ok(Self::Latest),
            "last-good" => Ok(Self::LastGood),
            "initial" => Ok(Self::Initial),
            number => number
                .parse()
                .map(Self::At)
                .map_err(|_| "write the step of a checkpoint, latest, last-good or initial".into()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    F32,
    Bf16,
}

impl From<Kind> for Dtype {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::F32 => Self::F32,
            Kind::Bf16 => Self::Bf16,
        }
    }
}

pub fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let _telemetry = telemetry::init(Telemetry::of_command("export"))?;
    print!("{}", write(args)?);
    Ok(())
}

/// Exports, and says what.
fn write(args: &ExportArgs) -> anyhow::Result<String> {
    let run = args.run.folder()?;
    let config = run.config()?;
    let named = AgentName::new(&args.agent)
        .ok()
        .and_then(|name| config.agents.get_key_value(&name));
    let Some((agent, settings)) = named else {
        let known: Vec<&str> = config.agents.keys().map(AgentName::as_str).collect();
        let problem = format!("run {} has no agent {:?}", run.run(), args.agent);
        return Err(Usage::new(problem).hint(format!("it has {}", known.join(", "))).into());
    };
    if let ModelConfig::Served(model) = &settings.model {
        let problem = format!("the model {model:?} of agent {agent} is a server's: there are no weights to export");
        return Err(Usage::new(problem).into());
    }
    // Before the checkpoint's files are read and compared with their digests, which takes long.
    let out = place(&args.out)?;
    may_write(&out, args.force)?;
    let chosen = choose(&run, agent, args.step)?;
    let scratch = Scratch::new()?;
    let files = chosen.files(&config, agent, scratch.path())?;
    no_source(&out, &files)?;
    let what = Export {
        model: &files.model,
        adapter: files.adapter.as_ref(),
        adapter_folder: files.adapter_folder.as_deref(),
        merged: args.merged,
        tokenizer: &files.tokenizer,
        dtype: args.dtype.into(),
        shard_bytes: args.max_shard_size.0,
        provenance: provenance(&run, agent, &chosen),
    };
    let exported = match export(&what, &out, args.force) {
        Err(ExportError::Files(error @ CheckpointError::OtherModel { .. })) => {
            let problem = format!("agent {agent} cannot be merged with {}: {error}", files.model.display());
            let hint = "bring back the base that it was trained over, or export the adapter alone, without --merged";
            return Err(Usage::new(problem).hint(hint).into());
        }
        exported => exported.with_context(|| format!("exporting agent {agent} to {}", args.out.display()))?,
    };
    Ok(told(agent, &chosen.label, &files.model, args, &exported))
}

/// The weights, with what to try where they are damaged.
fn choose(run: &RunFolder, agent: &AgentName, step: Step) -> anyhow::Result<Chosen> {
    let (chosen, hint) = match step {
        Step::Latest => (
            Chosen::newest(run, agent),
            "--step last-good takes the newest checkpoint that is not damaged",
        ),
        Step::LastGood => (
            Chosen::last_good(run, agent),
            "--step initial takes the policy as the run began",
        ),
        Step::Initial => (
            Chosen::initial(run, agent),
            "--step last-good takes the newest checkpoint that is not damaged",
        ),
        Step::At(step) => (
            Chosen::step(run, agent, step),
            "--step last-good takes the newest checkpoint that is not damaged, --step N that of another step",
        ),
    };
    chosen.map_err(|error| match error.downcast_ref::<CheckpointError>() {
        Some(_) => Usage::new(format!("{error:#}")).hint(hint).into(),
        None => error,
    })
}

/// What an export says of where it came from.
fn provenance(run: &RunFolder, agent: &AgentName, chosen: &Chosen) -> serde_json::Value {
    let manifest = chosen.manifest();
    json!({
        "run": run.run().to_string(),
        "agent": agent.as_str(),
        "weights": chosen.label,
        "step": manifest.as_ref().map(|manifest| manifest.step),
        "digest": manifest.as_ref().map(|manifest| manifest.digest.as_str()),
        "dyad": env!("CARGO_PKG_VERSION"),
    })
}

fn refused(out: &Path, why: &str, hint: &str) -> anyhow::Error {
    Usage::new(format!("--out {}: {why}", out.display())).hint(hint).into()
}

/// Where the folder is to be: what is there goes by its own name, so that of a link not the link is replaced.
fn place(out: &Path) -> anyhow::Result<PathBuf> {
    if out.exists() {
        return out
            .canonicalize()
            .with_context(|| format!("looking at {}", out.display()));
    }
    if out.is_symlink() {
        return Err(refused(
            out,
            "it is a link to nothing",
            "name another folder, or remove the link",
        ));
    }
    Ok(out.to_owned())
}

/// Refuses a folder with content, and with `force` one that is no export alone: replacing it would lose what nobody meant.
fn may_write(out: &Path, force: bool) -> anyhow::Result<()> {
    if !out.exists() {
        return Ok(());
    }
    if !out.is_dir() {
        return Err(refused(
            out,
            "there is a file of that name",
            "name a folder that is not there",
        ));
    }
    if is_mount(out).with_context(|| format!("looking at {}", out.display()))? {
        return Err(refused(
            out,
            "a file system is mounted there, which cannot be replaced",
            "name a folder below it",
        ));
    }
    let entries = fs::read_dir(out).with_context(|| format!("listing {}", out.display()))?;
    let entries: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .with_context(|| format!("listing {}", out.display()))?;
    if entries.is_empty() {
        return Ok(());
    }
    if !force {
        return Err(refused(
            out,
            "the folder is not empty",
            "name another folder, or replace an earlier export with --force",
        ));
    }
    let has = |name: &str| entries.iter().any(|path| path.ends_with(name));
    if !has(EXPORT) || has("manifest.json") || entries.iter().any(|path| path.is_dir()) {
        let why = format!("it is no earlier export: --force replaces a folder with {EXPORT} and nothing below it");
        return Err(refused(out, &why, "name another folder, or remove this one yourself"));
    }
    Ok(())
}

/// Whether another file system begins at this folder, whose path is canonical. Nothing can be renamed to there.
fn is_mount(folder: &Path) -> std::io::Result<bool> {
    match folder.parent() {
        Some(parent) => Ok(fs::metadata(folder)?.dev() != fs::metadata(parent)?.dev()),
        None => Ok(true),
    }
}

/// Refuses to replace what is exported.
fn no_source(out: &Path, files: &Files) -> anyhow::Result<()> {
    let Ok(out) = out.canonicalize() else {
        return Ok(());
    };
    let sources = [
        Some(&files.model),
        Some(&files.tokenizer),
        files.adapter_folder.as_ref(),
    ];
    let same = |source: &PathBuf| source.canonicalize().is_ok_and(|source| source == out);
    if sources.into_iter().flatten().any(same) {
        return Err(refused(&out, "the weights are read from there", "name another folder"));
    }
    Ok(())
}

fn told(agent: &AgentName, weights: &str, base: &Path, args: &ExportArgs, exported: &Exported) -> String {
    let what = if exported.adapter {
        "a PEFT adapter"
    } else {
        "a Hugging Face model"
    };
    let dtype = match args.dtype {
        Kind::F32 => "f32",
        Kind::Bf16 => "bf16",
    };
    let mut text = format!(
        "{agent} ({weights}): {what} in {}\n  {} parameters in {dtype}: {}\n",
        args.out.display(),
        exported.parameters,
        exported.files.join(", ")
    );
    if exported.adapter {
        text += &format!("  its base: {}; --merged writes both as one model\n", base.display());
    }
    if exported.untied {
        text += "  untied: the adapter changes the head, and the embedding stays\n";
    }
    if !exported.files.iter().any(|name| name == "tokenizer.json") {
        text += "  NOT complete: there was no tokenizer.json beside the weights; add the tokenizer's files\n";
    }
    text
}

#[cfg(test)]
mod tests;

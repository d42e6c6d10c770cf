//! `dyad export AGENT`: writes a checkpoint's weights as a folder that other programs load.

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

/// Export an agent's weights in Hugging Face or PEFT format
///
/// A PEFT folder holds an adapter. Training state is left out. The folder appears complete or not
/// at all.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Name of the agent
    pub agent: String,
    #[command(flatten)]
    pub run: RunArg,
    /// Weights: the newest checkpoint (`latest`), the newest undamaged one (`last-good`), the one
    /// of step N, or the initial policy (`initial`)
    #[arg(long, value_name = "N|latest|last-good|initial", default_value = "latest")]
    pub step: ExportStep,
    /// The folder to create; for a link, the folder that it points to
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Merge an adapter into its base and write one model. Needs memory for the model in f32, and
    /// for two if the adapter changes a tied head
    #[arg(long)]
    pub merged: bool,
    /// Type of the exported weights; checkpoints have f32
    #[arg(long, value_enum, default_value = "f32")]
    pub dtype: Kind,
    /// Largest file of weights, for example "2 GiB"; a larger model is written in shards with an
    /// index
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(SHARD_BYTES), value_parser = shard_size)]
    pub max_shard_size: ByteSize,
    /// Replace an earlier export: a folder with a dyad_export.json and no subfolder
    #[arg(long)]
    pub force: bool,
}

/// Reads a size. Hugging Face's spelling counts in powers of 1000: `5GB`.
fn shard_size(text: &str) -> Result<ByteSize, String> {
    let decimal = [("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];
    let decimal = decimal.iter().find_map(|(unit, factor)| {
        let number: u64 = text.trim().strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(*factor).map(ByteSize)
    });
    let size = decimal.map_or_else(|| text.parse(), Ok)?;
    match size {
        ByteSize(0) => Err("no weights fit into files of 0 bytes: write for example \"2 GiB\"".into()),
        size => Ok(size),
    }
}

/// The checkpoint to export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportStep {
    Latest,
    LastGood,
    Initial,
    At(u64),
}

impl FromStr for ExportStep {
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

/// Exports the weights and returns a summary.
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
        let problem = format!("model {model:?} of agent {agent} runs on a server: there are no weights to export");
        return Err(Usage::new(problem).into());
    }
    // Checked first: reading the checkpoint's files and comparing their digests takes long.
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
            let hint = "restore the base of the training, or export only the adapter, without --merged";
            return Err(Usage::new(problem).hint(hint).into());
        }
        exported => exported.with_context(|| format!("exporting agent {agent} to {}", args.out.display()))?,
    };
    Ok(summary(agent, &chosen.label, &files.model, args, &exported))
}

/// Finds the weights. The error for damaged weights has a hint.
fn choose(run: &RunFolder, agent: &AgentName, step: ExportStep) -> anyhow::Result<Chosen> {
    let (chosen, hint) = match step {
        ExportStep::Latest => (
            Chosen::newest(run, agent),
            "--step last-good takes the newest undamaged checkpoint",
        ),
        ExportStep::LastGood => (
            Chosen::last_good(run, agent),
            "--step initial takes the initial policy of the run",
        ),
        ExportStep::Initial => (
            Chosen::initial(run, agent),
            "--step last-good takes the newest undamaged checkpoint",
        ),
        ExportStep::At(step) => (
            Chosen::step(run, agent, step),
            "--step last-good takes the newest undamaged checkpoint, --step N the one of step N",
        ),
    };
    chosen.map_err(|error| match error.downcast_ref::<CheckpointError>() {
        Some(_) => Usage::new(format!("{error:#}")).hint(hint).into(),
        None => error,
    })
}

/// Returns where an export came from, for its dyad_export.json.
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

/// Returns the canonical path of the folder, so that a link's target is replaced and not the link.
fn place(out: &Path) -> anyhow::Result<PathBuf> {
    if out.exists() {
        return out
            .canonicalize()
            .with_context(|| format!("looking at {}", out.display()));
    }
    if out.is_symlink() {
        return Err(refused(
            out,
            "the link has no target",
            "name another folder, or remove the link",
        ));
    }
    Ok(out.to_owned())
}

/// Rejects a folder with content. With `force`, accepts only an earlier export, so that no other
/// files are lost.
fn may_write(out: &Path, force: bool) -> anyhow::Result<()> {
    if !out.exists() {
        return Ok(());
    }
    if !out.is_dir() {
        return Err(refused(
            out,
            "a file has this name",
            "name a folder that does not exist",
        ));
    }
    if is_mount(out).with_context(|| format!("looking at {}", out.display()))? {
        return Err(refused(
            out,
            "a file system is mounted there and cannot be replaced",
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
        let why = format!("it is not an earlier export: --force replaces a folder with {EXPORT} and no subfolder");
        return Err(refused(
            out,
            &why,
            "name another folder, or remove this folder yourself",
        ));
    }
    Ok(())
}

/// Returns true if another file system is mounted at this folder; nothing can be renamed to it. The
/// path must be canonical.
fn is_mount(folder: &Path) -> std::io::Result<bool> {
    match folder.parent() {
        Some(parent) => Ok(fs::metadata(folder)?.dev() != fs::metadata(parent)?.dev()),
        None => Ok(true),
    }
}

/// Rejects a target that holds the exported weights themselves.
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

fn summary(agent: &AgentName, weights: &str, base: &Path, args: &ExportArgs, exported: &Exported) -> String {
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
        text += "  untied: the adapter changes the head but not the embedding\n";
    }
    if !exported.files.iter().any(|name| name == "tokenizer.json") {
        text += "  NOT complete: there was no tokenizer.json next to the weights; add the tokenizer's files\n";
    }
    text
}

#[cfg(test)]
mod tests;

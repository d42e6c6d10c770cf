//! Runs in separate processes, and their results.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use configs::RunConfig;

use crate::run_folder::RunFolder;
use crate::stats::summary;
use crate::stats::summary::Evaluation;

/// A run that has ended.
pub(super) struct PlayedRun {
    pub(super) config: RunConfig,
    pub(super) folder: RunFolder,
    pub(super) seconds: f64,
}

/// Runs a configuration in a process, with its progress on this terminal.
pub(super) fn play(config: &RunConfig, base: &Path, name: &str) -> anyhow::Result<PlayedRun> {
    let folder = base.join(name);
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let file = folder.join("config.toml");
    std::fs::write(&file, toml::to_string(config)?)?;
    eprintln!("{name}: at most {} steps", config.run.train_steps);
    let began = std::time::Instant::now();
    let program = std::env::current_exe().context("finding this program")?;
    let status = Command::new(program)
        .arg("run")
        .arg(&file)
        .arg("--folder")
        .arg(&folder)
        .status()?;
    ensure!(
        status.success(),
        "{name} ended with {status}; its run is in {}",
        folder.display()
    );
    Ok(PlayedRun {
        config: config.clone(),
        folder: RunFolder::find(&folder, "latest")?,
        seconds: began.elapsed().as_secs_f64(),
    })
}

pub(super) fn last_evaluation(folder: &RunFolder) -> anyhow::Result<Evaluation> {
    let evaluations = summary::evaluations(folder)?;
    evaluations
        .into_values()
        .next_back()
        .context("the run made no evaluation")
}

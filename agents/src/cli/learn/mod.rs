//! `dyad learn CONFIG...`: measures whether a recipe learns. It trains several seeds, compares
//! before and after, and plays cross-play. A solve-verify team is also compared with its solver
//! alone.

mod gains;
mod runs;
mod solo;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use configs::RunConfig;

use super::cross_play;
use crate::base::fault::Usage;
use crate::eval::suites;
use crate::run_folder::RunFolder;

/// Train a recipe over several seeds and measure what it learned
///
/// A development command. Prints reward and success before and after, cross-play, and intervals
/// over seeds. A solve-verify team is also compared with its solver alone, at equal trained and
/// generated tokens.
#[derive(Debug, Args)]
pub struct LearnArgs {
    /// Configurations, for example configs/arithmetic.toml
    #[arg(required = true, value_name = "CONFIG")]
    pub configs: Vec<PathBuf>,
    /// Runs of each configuration, with seeds from 0
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: u64,
    /// Largest number of steps
    #[arg(long)]
    pub steps: Option<u64>,
    /// Folder in which the folder of all runs is created
    #[arg(long, default_value = "runs")]
    pub folder: PathBuf,
}

pub fn run(args: &LearnArgs) -> anyhow::Result<()> {
    ensure!(args.steps != Some(0), "--steps must be at least 1");
    let configs = args.configs.iter().map(|path| Ok((path, config(path, args.steps)?)));
    // All configurations are checked before the first run starts.
    for (path, config) in configs.collect::<anyhow::Result<Vec<_>>>()? {
        println!("{}", path.display());
        learn(&config, args)?;
    }
    Ok(())
}

/// Reads the configuration and adds an evaluation before the first step.
fn config(path: &Path, steps: Option<u64>) -> anyhow::Result<RunConfig> {
    let mut config = super::check::check(path)?;
    config.run.train_steps = config.run.train_steps.min(steps.unwrap_or(u64::MAX));
    if !suites::has_tasks(&config) {
        let problem = format!("{}: there are no tasks to evaluate", path.display());
        return Err(Usage::new(problem)
            .hint("add [eval] with source = \"jsonl:PATH\"")
            .into());
    }
    if config.eval.every == 0 {
        config.eval.every = config.run.train_steps;
    }
    Ok(config)
}

fn learn(config: &RunConfig, args: &LearnArgs) -> anyhow::Result<()> {
    let base = args
        .folder
        .join(format!("learn-{}-{}", config.run.name, crate::base::ids::incarnation()));
    let mut teams = Vec::new();
    for seed in 0..args.seeds {
        let mut config = config.clone();
        config.run.seed = seed;
        teams.push(runs::play(&config, &base, &format!("seed-{seed}"))?);
    }
    println!("\n{}", gains::table(&teams)?);
    let folders: Vec<RunFolder> = teams.iter().map(|team| team.folder.clone()).collect();
    // Hours of training must not be lost to an error: the error is printed and the tables follow.
    match cross_play::of_runs(&folders) {
        Ok(table) => println!("{}", cross_play::render(&table)),
        Err(error) => eprintln!("cross-play was not possible: {error:#}"),
    }
    if config.workflow.kind == "solve-verify" {
        solo::compare(&teams, &base)?;
    }
    println!("runs  {}\n", base.display());
    Ok(())
}

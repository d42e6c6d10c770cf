//! `dyad eval CONFIG`: the evaluation's tasks and suites, with chosen weights.

pub(super) mod measure;
mod sets;
pub(super) mod weights;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::output_file::OutputFile;
use super::render::eval::render;
use crate::eval::engines::{self, Scratch};
use crate::eval::pass_rates;
use crate::run_folder::telemetry;
use crate::run_folder::telemetry::Telemetry;
use measure::{Measured, measure, measure_pool, pool};
use sets::sets;
use weights::{chosen, find_run, pin_initial};

/// Play evaluation tasks and suites with chosen weights, without training
///
/// The weights do not change during the measurement. Greedy conversations have the seeds of a run's
/// first evaluation.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// The configuration; without it the configuration of --run
    #[arg(required_unless_present = "run", value_parser = super::shipped::parser())]
    pub config: Option<PathBuf>,
    /// Weights of all agents: this run's newest checkpoints (`latest`, id, folder), RUN@N or
    /// RUN@initial
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Weights of one agent: `initial`, a folder (checkpoint, model, adapter), RUN, RUN@N or
    /// RUN@initial
    #[arg(long = "checkpoint", value_name = "AGENT=WHERE")]
    pub checkpoints: Vec<String>,
    /// Sampled conversations per task, in addition to the greedy one
    #[arg(long, value_name = "K")]
    pub samples: Option<u16>,
    /// Temperature of the samples (1.0, or the suite's own)
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,
    /// A suite of the configuration, or a preset with its file; without it [eval] and all suites
    #[arg(long = "suite", value_name = "NAME[=FILE]")]
    pub suites: Vec<String>,
    /// Play the run's own tasks, those of [tasks], once each, without the curriculum
    #[arg(long)]
    pub own_tasks: bool,
    /// Write how often each task was solved to this file, for tasks.curriculum
    #[arg(long, value_name = "FILE")]
    pub pass_rates: Option<PathBuf>,
    /// Write every conversation's figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Folder that holds the run folders
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
}

/// The document that `--json` writes.
#[derive(Serialize)]
struct Document {
    config: String,
    seed: u64,
    weights: BTreeMap<String, String>,
    intervals: &'static str,
    sets: Vec<Measured>,
}

const INTERVALS: &str = "95% over tasks: Wilson's where every task's value is 0 or 1, else Student's t";

pub fn run(args: &EvalArgs) -> anyhow::Result<()> {
    let _telemetry = telemetry::init(Telemetry::of_command("eval"))?;
    let home = args.run.as_deref().map(|run| find_run(&args.runs, run)).transpose()?;
    let config = match (&args.config, &home) {
        (Some(path), _) => super::check::check(path)?,
        (None, Some(home)) => home.config()?,
        (None, None) => anyhow::bail!("name a configuration or --run RUN"),
    };
    let sets = sets(args, &config)?;
    let rates_file = args.pass_rates.as_deref().map(OutputFile::new).transpose()?;
    let json_file = args.json.as_deref().map(OutputFile::new).transpose()?;
    let own = home.as_ref().filter(|_| args.config.is_none());
    let checkpoints = pin_initial(&args.checkpoints, own);
    let chosen = chosen(&checkpoints, args.run.as_deref(), &args.runs, &config)?;
    let scratch = Scratch::new()?;
    crate::cli::embedded::system().block_on(async {
        tokio::spawn(super::progress::print_starts());
        let seats = engines::start(&config, &chosen, scratch.path())?;
        for (agent, chosen) in &chosen {
            println!("{agent}: {}", chosen.label);
        }
        let mut measured = Vec::new();
        for set in sets {
            // The pool belongs to the tasks of [eval].
            let pool = if set.name.is_none() {
                pool(&config, home.as_ref())?
            } else {
                None
            };
            let mut found = vec![measure(&config, set, &seats).await?];
            if let Some(pool) = pool {
                found.push(measure_pool(&config, &pool, &seats).await?);
            }
            found.iter().for_each(|one| println!("\n{}", render(one)));
            measured.extend(found);
        }
        println!("{INTERVALS}");
        if let Some(file) = rates_file {
            let rates = measured
                .iter()
                .flat_map(|one| pass_rates::of(&one.conversations, &one.keys));
            file.write(pass_rates::lines(&rates.collect::<Vec<_>>())?.as_bytes())?;
        }
        let all_failed = measured.iter().all(|one| one.score.rows.is_empty());
        if let Some(file) = json_file {
            let document = Document {
                config: args
                    .config
                    .as_ref()
                    .map_or_else(String::new, |path| path.display().to_string()),
                seed: config.run.seed,
                weights: chosen
                    .iter()
                    .map(|(agent, one)| (agent.to_string(), one.label.clone()))
                    .collect(),
                intervals: INTERVALS,
                sets: measured,
            };
            file.write(&serde_json::to_vec_pretty(&document)?)?;
        }
        anyhow::ensure!(!all_failed, "every conversation failed: the reasons are in the log");
        Ok(())
    })
}

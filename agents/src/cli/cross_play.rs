//! `dyad cross-play RUN...`: trained agents with initial partners.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use configs::{Mode, RunConfig};

use super::output_file::OutputFile;
use super::render::table::{Align, Table, difference, interval};
use crate::base::fault::Usage;
use crate::eval::cross::{self, CellFigures, OfRun};
use crate::run_folder::RunFolder;
use crate::run_folder::telemetry;
use crate::run_folder::telemetry::Telemetry;

/// Show which training helped: trained agents play with initial partners
///
/// The runs must be seeds of one recipe; intervals are then over runs. The dashboard shows the
/// table on the evaluations page of the first one.
#[derive(Debug, Args)]
pub struct CrossPlayArgs {
    /// Runs: `latest`, ids or folders
    #[arg(required = true, value_name = "RUN")]
    pub which: Vec<String>,
    /// Write the table to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Folder that holds the run folders
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
}

pub fn run(args: &CrossPlayArgs) -> anyhow::Result<()> {
    let _telemetry = telemetry::init(Telemetry::of_command("cross-play"))?;
    let folders = args.which.iter().map(|which| RunFolder::find(&args.runs, which));
    let folders = folders.collect::<Result<Vec<_>, _>>()?;
    let file = args.json.as_deref().map(OutputFile::new).transpose()?;
    let table = of_runs(&folders)?;
    print!("{}", render(&table));
    let text = serde_json::to_vec_pretty(&table)?;
    for folder in folders.iter().take(1) {
        let written = OutputFile::new(&folder.cross_play()).and_then(|file| file.write(&text));
        if let Err(error) = written {
            eprintln!("the dashboard will not show this table: {error}");
        }
    }
    if let Some(file) = file {
        file.write(&text)?;
    }
    Ok(())
}

/// Returns the table of runs that are seeds of one recipe.
///
/// # Errors
/// Returns an error if the runs' agents differ, a run is named twice, or playing fails.
pub fn of_runs(folders: &[RunFolder]) -> anyhow::Result<cross::CrossTable> {
    let first = folders.first().context("no run was named")?;
    let of_first = first.config()?;
    let trained = cross::trained(&of_first);
    for (index, other) in folders.iter().enumerate().skip(1) {
        if folders.iter().take(index).any(|folder| folder.run() == other.run()) {
            return Err(Usage::new(format!("run {} is named twice", other.run())).into());
        }
        let config = other.config()?;
        let seeds_differ = config.run.seed != of_first.run.seed || config.run.mode == Mode::Async;
        if !seeds_differ || !same_recipe(&of_first, &config)? {
            let problem = format!(
                "the runs {} and {} are not two seeds of one recipe",
                first.run(),
                other.run()
            );
            return Err(Usage::new(problem)
                .hint("they must have the same workflow, tasks, evaluation and agents, and in synchronous rounds different seeds")
                .into());
        }
        if cross::trained(&config) != trained {
            let problem = format!("the runs {} and {} train different agents", first.run(), other.run());
            return Err(Usage::new(problem).hint("name seeds of one recipe").into());
        }
    }
    crate::cli::embedded::system().block_on(async {
        tokio::spawn(super::progress::print_starts());
        let mut runs: Vec<OfRun> = Vec::new();
        for folder in folders {
            let tell = |cell: &str| eprintln!("{}: played {cell}", folder.run());
            runs.push(
                cross::play(folder, tell)
                    .await
                    .with_context(|| format!("run {}", folder.run()))?,
            );
        }
        Ok(cross::table(&runs, &trained))
    })
}

/// Returns true if two runs differ only in their seeds, as far as learning is concerned.
fn same_recipe(a: &RunConfig, b: &RunConfig) -> anyhow::Result<bool> {
    let recipe = |config: &RunConfig| -> serde_json::Result<serde_json::Value> {
        Ok(serde_json::json!([
            serde_json::to_value(&config.workflow)?,
            serde_json::to_value(&config.tasks)?,
            serde_json::to_value(&config.eval)?,
            serde_json::to_value(&config.agents)?,
        ]))
    };
    Ok(recipe(a)? == recipe(b)?)
}

/// Formats the table.
#[must_use]
pub fn render(table: &cross::CrossTable) -> String {
    let part = |heading: &str, rows: &[(String, CellFigures)], shown: fn(Option<crate::stats::Interval>) -> String| {
        let mut text = Table::new(&[(heading, Align::Left)]);
        table.figures.iter().for_each(|name| text.column(name, Align::Left));
        for (name, figures) in rows {
            let cells = table.figures.iter().map(|figure| shown(figures.get(figure).copied()));
            text.row(std::iter::once(name.clone()).chain(cells).collect());
        }
        text.to_string()
    };
    format!(
        "{}\n{}\n95% intervals over {}\n",
        part("weights", &table.cells, interval),
        part("difference", &table.differences, difference),
        table.over
    )
}

//! `dyad cross-play RUN...`: trained agents with initial partners.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use configs::{Mode, RunConfig};

use super::table::{Align, Table, difference, interval};
use crate::base::fault::Usage;
use crate::eval::cross::{self, Figures, OfRun};
use crate::run_folder::RunFolder;
use crate::run_folder::telemetry;
use crate::run_folder::telemetry::Telemetry;

/// Play trained agents with partners as they began, and all together: whose training made the team better?
///
/// Several runs are seeds of one recipe: intervals are over runs then.
#[derive(Debug, Args)]
pub struct CrossPlayArgs {
    /// Runs: `latest`, ids, or folders
    #[arg(required = true, value_name = "RUN")]
    pub which: Vec<String>,
    /// Write the table there, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where run folders are
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
}

pub fn run(args: &CrossPlayArgs) -> anyhow::Result<()> {
    let _telemetry = telemetry::init(Telemetry::of_command("cross-play"))?;
    let folders = args.which.iter().map(|which| RunFolder::find(&args.runs, which));
    let folders = folders.collect::<Result<Vec<_>, _>>()?;
    // Before all is played: a place that cannot be written.
    if let Some(path) = &args.json {
        std::fs::File::create(path).with_context(|| format!("writing {}", path.display()))?;
    }
    let table = of_runs(&folders)?;
    print!("{}", render(&table));
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&table)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// The table of runs that are seeds of one recipe.
///
/// # Errors
/// Runs whose agents differ, the same run twice, and those of playing.
pub fn of_runs(folders: &[RunFolder]) -> anyhow::Result<cross::CrossTable> {
    let first = folders.first().context("there is no run")?;
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
                "the runs {} and {} are no two seeds of one recipe",
                first.run(),
                other.run()
            );
            return Err(Usage::new(problem)
                .hint("they must have the same workflow, tasks, evaluation and agents, and in synchronous rounds other seeds")
                .into());
        }
        if cross::trained(&config) != trained {
            let problem = format!("the runs {} and {} train other agents", first.run(), other.run());
            return Err(Usage::new(problem).hint("name seeds of one recipe").into());
        }
    }
    crate::cli::embedded::system().block_on(async {
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

/// Whether two runs differ in nothing that decides what is learnt but their seeds.
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

/// As text.
#[must_use]
pub fn render(table: &cross::CrossTable) -> String {
    let part = |heading: &str, rows: &[(String, Figures)], shown: fn(Option<crate::stats::Interval>) -> String| {
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

//! `dyad publish FILE`: validates tasks, sends them to a run and counts the broker's confirms.

pub(super) mod input;
pub(super) mod sender;

use std::path::PathBuf;

use broker::ids::RunId;
use broker::protocol::control::{RunPhase, RunState};
use broker::topology::Topology;
use clap::Args;
use configs::RunConfig;
use indicatif::{ProgressBar, ProgressStyle};

use super::conversation::outcome_line;
use super::task_fate::{self, Outcome, TaskFate};
use super::task_rules::Rules;
use super::{ended, select};
use crate::base::fault::Usage;
use crate::ledger::Inspector;
use crate::run_folder::logs::printable;
use crate::run_folder::{FolderError, RunFolder};
use input::checked;
use sender::{PublishedTasks, Sent, send};

/// Time between two looks for outcomes.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(500);

/// Publish tasks to a run, one JSON object per line
///
/// Every line is checked first; if one is wrong, no task is sent. A task is {"prompt": "...",
/// "label": ..., "id": "..."}. The workflow defines prompt and label. The id is optional; a run
/// handles the same id once. A data set is named like tasks.source and read with the keys of the
/// run's [tasks].
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// JSON lines, - for standard input, or a data set: jsonl:PATH, parquet:PATH, arrow:PATH,
    /// hf:FOLDER[:SPLIT]
    pub file: PathBuf,
    /// The run: `latest`, its id or the beginning of it, or its folder
    #[arg(long, env = "DYAD_RUN", default_value = "latest", value_name = "RUN")]
    pub run: String,
    /// Folder that holds the run folders
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
    /// The run's configuration, if its folder is not on this machine; its workflow checks the lines
    #[arg(long, env = "DYAD_CONFIG", value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// Broker URL, instead of the run's own
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    /// Wait until every task has an outcome, and print each
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Only check the lines, send nothing
    #[arg(long)]
    pub dry_run: bool,
}

pub fn run(args: &PublishArgs) -> anyhow::Result<()> {
    let folder = find_folder(args)?;
    let config = match (&args.config, &folder) {
        (Some(path), _) => Some(RunConfig::load(path)?),
        (None, Some(folder)) => Some(folder.config()?),
        (None, None) => None,
    };
    let rules = config.as_ref().map(Rules::of).transpose()?.unwrap_or_default();
    let tasks = checked(&args.file, config.as_ref(), &rules)?;
    if args.dry_run {
        println!("{} tasks are valid; nothing was sent{}", tasks.len(), rules.unjudged());
        return Ok(());
    }
    let run = match &folder {
        Some(folder) => folder.run().clone(),
        None => RunId::new(&args.run).ok_or_else(|| Usage::new(format!("{:?} is not a run id", args.run)))?,
    };
    folder.as_ref().map_or(Ok(()), ended::require_open)?;
    let ids: Vec<String> = tasks.iter().map(|task| task.id.clone()).collect();
    if args.wait && folder.is_none() {
        return Err(
            Usage::new("--wait reads outcomes from the run's folder, which is not here")
                .hint("give the folder with --run and --runs")
                .into(),
        );
    }
    let url = select::broker_url(args.broker.as_deref(), folder.as_ref())?;
    let known = match &folder {
        Some(folder) => task_fate::of_tasks(folder, &ids)?,
        None => Vec::new(),
    };
    select::block_on(async {
        let bus = select::connect(&url, "publish").await?;
        let manifest = match &folder {
            Some(folder) => Some(PublishedTasks::open(&folder.published())?),
            None => None,
        };
        let sent = send(
            bus.clone(),
            &Topology::new(run.clone()),
            tasks,
            manifest.as_ref(),
            progress,
        )
        .await;
        bus.close().await;
        let Sent { confirmed, refused } = sent?;
        println!(
            "{confirmed} tasks confirmed by the broker for run {run}{}{}",
            full_queue_note(refused),
            rules.unjudged()
        );
        // A corrected task may have the id of a rejected one.
        let known: Vec<&TaskFate> = known
            .iter()
            .filter(|fate| !matches!(fate.outcome, Outcome::Rejected(_)))
            .collect();
        if let Some(first) = known.first() {
            eprintln!(
                "{} of the ids had been published before, such as {}: a task is played once, so give a new one another id",
                known.len(),
                printable(&first.task)
            );
        }
        let Some(folder) = &folder else { return Ok(()) };
        if is_paused(folder)? {
            eprintln!("run {run} is paused: it plays no task until `dyad resume --run {run}`");
        }
        if args.wait { wait(folder, ids).await } else { Ok(()) }
    })
}

/// Returns true if the run is paused, as an agent that trains last stored.
fn is_paused(folder: &RunFolder) -> anyhow::Result<bool> {
    let mut newest = RunState::default();
    for name in folder.config()?.participants() {
        if let Some(ledger) = Inspector::find(&folder.ledger(&name))? {
            newest = newest.max(ledger.state()?);
        }
    }
    Ok(newest.phase == RunPhase::Paused)
}

/// Prints the outcome of each task as soon as it has one. Ends with the run at the latest.
async fn wait(folder: &RunFolder, mut waiting: Vec<String>) -> anyhow::Result<()> {
    let mut failed = 0;
    while !waiting.is_empty() {
        // Read first: an outcome may be written until the run is over.
        let over = ended::over(folder)?;
        for fate in task_fate::of_tasks(folder, &waiting)? {
            if fate.outcome.is_final() || over.is_some() {
                println!("{}", printable(&outcome_line(&fate, &[])));
                failed += usize::from(fate.outcome != Outcome::Played);
                waiting.retain(|id| *id != fate.task);
            }
        }
        if let Some(over) = over {
            anyhow::ensure!(
                waiting.is_empty(),
                "{}; {} tasks have no outcome",
                over.text(),
                waiting.len()
            );
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    anyhow::ensure!(failed == 0, "{failed} tasks were not played");
    Ok(())
}

/// Returns the run's folder, or `None` if only a broker and a run id were given.
fn find_folder(args: &PublishArgs) -> anyhow::Result<Option<RunFolder>> {
    match select::found(&args.runs, &args.run, args.broker.as_deref()) {
        Ok(folder) => Ok(Some(folder)),
        Err(FolderError::NotFound { .. }) if args.broker.is_some() && args.run != "latest" => Ok(None),
        Err(FolderError::NotFound { .. }) if args.dry_run => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn full_queue_note(refused: u64) -> String {
    match refused {
        0 => String::new(),
        times => format!("; the task queue was full {times} times"),
    }
}

fn progress(tasks: usize) -> ProgressBar {
    use std::io::IsTerminal;
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(tasks as u64);
    if let Ok(style) = ProgressStyle::with_template("publishing {bar:32} {pos}/{len}  {per_sec}  {eta} left") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;

    #[test]
    fn pause_is_read_from_the_newest_state_of_an_agent() {
        let base = tempfile::tempdir().unwrap();
        let config = crate::run_folder::tests::config_in(base.path());
        let folder = RunFolder::create(base.path(), &config, None).unwrap();
        assert!(!is_paused(&folder).unwrap());
        for (name, seq, phase, paused) in [
            ("a", 2, RunPhase::Running, false),
            ("b", 3, RunPhase::Paused, true),
            ("a", 4, RunPhase::Running, false),
        ] {
            let name = broker::AgentName::new(name).unwrap();
            let mut ledger = Ledger::open(&folder.ledger(&name), folder.run(), &name).unwrap();
            ledger.adopt(RunState { seq, phase }).unwrap();
            assert_eq!(is_paused(&folder).unwrap(), paused, "{seq}");
        }
    }
}

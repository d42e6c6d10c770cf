//! `dyad publish FILE`: validates tasks, sends them to a run and counts the broker's confirms.

pub(super) mod sender;

use std::io::Read;
use std::path::PathBuf;

use anyhow::Context;
use broker::ids::RunId;
use broker::protocol::control::{RunPhase, RunState};
use broker::topology::Topology;
use clap::Args;
use configs::RunConfig;
use indicatif::{ProgressBar, ProgressStyle};
use rollout::tasks::{MARK, TaskSource};

use super::conversation::outcome_line;
use super::task_fate::{self, Outcome, TaskFate};
use super::task_rules::{Checked, Origin, Rules, validate_from};
use super::{ended, select};
use crate::base::fault::Usage;
use crate::ledger::Inspector;
use crate::run_folder::logs::printable;
use crate::run_folder::{FolderError, RunFolder};
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
    #[arg(long, visible_alias = "validate-only")]
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
        let path = folder.ledger(&name);
        if path.is_file() {
            newest = newest.max(Inspector::open(&path)?.state()?);
        }
    }
    Ok(newest.phase == RunPhase::Paused)
}

/// Returns the tasks of a file or a data set. Each of them can be played.
fn checked(file: &std::path::Path, config: Option<&RunConfig>, rules: &Rules) -> anyhow::Result<Vec<Checked>> {
    let Some(source) = data_set(file) else {
        return validate_from(&Origin::of_file(file), &read(file)?, rules);
    };
    let Some(mut found) = open(source, config)? else {
        return validate_from(&Origin::default(), &[], rules);
    };
    let text = rows(&mut found)?;
    validate_from(&Origin::of_rows(source, &found), &text, rules)
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
    match RunFolder::find(&args.runs, &args.run) {
        Ok(folder) => Ok(Some(folder)),
        Err(FolderError::NotFound { .. }) if args.broker.is_some() && args.run != "latest" => Ok(None),
        Err(FolderError::NotFound { .. }) if args.dry_run => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the name of a data set, if it has the form of tasks.source and no file has that name.
fn data_set(file: &std::path::Path) -> Option<&str> {
    let text = file.to_str()?;
    let kinds = ["jsonl:", "parquet:", "arrow:", "hf:"];
    let known = kinds.iter().any(|kind| text.starts_with(kind));
    (known && !file.exists()).then_some(text)
}

fn open(source: &str, config: Option<&RunConfig>) -> anyhow::Result<Option<TaskSource>> {
    let tasks = match config {
        Some(config) => config.tasks.on(source.to_owned()),
        None => toml::Table::from_iter([("source".to_owned(), toml::Value::from(source))]).try_into()?,
    };
    TaskSource::open(&tasks, 0).map_err(|error| Usage::new(format!("{error:#}")).into())
}

/// Returns the tasks of a data set as lines, each once. Rows without ids get content ids later, so
/// that they match no id of the run's own tasks or of another data set.
fn rows(found: &mut TaskSource) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    for task in found.rows() {
        text.extend(broker::codec::encode_json(&task?));
        text.push(b'\n');
    }
    Ok(text)
}

pub(super) fn read(file: &std::path::Path) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    if file.as_os_str() == "-" {
        std::io::stdin()
            .lock()
            .read_to_end(&mut text)
            .context("cannot read standard input")?;
    } else {
        let unread = |error| Usage::new(format!("cannot read {}: {error}", file.display()));
        text = rollout::tasks::read_unpacked(file).map_err(unread)?;
    }
    if text.starts_with(&[0x1f, 0x8b]) {
        return Err(Usage::new(format!("{} is gzip: name the file .gz", file.display())).into());
    }
    if text.starts_with(MARK.as_bytes()) {
        text.drain(..MARK.len());
    }
    Ok(text)
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
    use crate::cli::exit_code::render;
    use crate::cli::task_rules::validate;
    use crate::ledger::Ledger;

    #[test]
    fn refused_line_or_row_is_named_with_its_file_and_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("more.jsonl");
        let good = r#"{"prompt": "1+1=", "label": 2}"#;
        std::fs::write(&path, format!("{good}\n\n{{\"prompt\": \"1+2=\", \"label\": \"x\"}}\n")).unwrap();
        let text = include_str!("../../../configs/arithmetic.toml");
        let config = RunConfig::parse(text, std::path::Path::new("a.toml")).unwrap();
        let rules = Rules::of(&config).unwrap();
        let said = |file: &str| render(&checked(file.as_ref(), Some(&config), &rules).unwrap_err());
        let path = path.display().to_string();
        let lines = said(&path);
        assert!(
            lines.starts_with(&format!("error: 1 of 2 lines of {path} are not tasks")),
            "{lines}"
        );
        assert!(lines.contains("\n  line 3: the label is \"x\""), "{lines}");
        let rows = said(&format!("jsonl:{path}"));
        assert!(
            rows.starts_with(&format!("error: 1 of 2 rows of jsonl:{path} are not tasks")),
            "{rows}"
        );
        assert!(
            rows.contains(&format!("\n  {path}, line 3: the label is \"x\"")),
            "{rows}"
        );
        std::fs::write(&path, r#"{"prompt": [{"role": "user", "content": 5}], "label": 2}"#).unwrap();
        let wanted = "prompt[0].content is 5: write a text";
        for (name, place) in [
            (path.clone(), "line 1: "),
            (format!("jsonl:{path}"), "more.jsonl, line 1: "),
        ] {
            let said = said(&name);
            assert!(said.contains(wanted) && said.contains(place), "{said}");
        }
    }

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

    #[test]
    fn data_set_is_recognised_by_its_prefix() {
        for source in ["jsonl:a", "parquet:a", "arrow:a", "hf:a"] {
            assert_eq!(data_set(std::path::Path::new(source)), Some(source));
        }
        for file in ["a.arrow", "arrow", "-"] {
            assert_eq!(data_set(std::path::Path::new(file)), None, "{file}");
        }
    }

    #[test]
    fn byte_order_mark_is_not_published() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.jsonl");
        std::fs::write(&path, "\u{feff}{\"prompt\": \"o1\"}\n").unwrap();
        let tasks = validate(&read(&path).unwrap(), &Rules::of_signal()).unwrap();
        assert_eq!(tasks[0].body, br#"{"prompt": "o1"}"#.as_slice());
    }

    #[test]
    fn packed_file_is_published_as_its_lines() {
        let folder = tempfile::tempdir().unwrap();
        // The line {"prompt": "o1"}, as `gzip -n` packs it.
        let packed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\x56\x2a\x28\xca\xcf\x2d\x28\x51\xb2\x52\x50\xca\x37\x54\xaa\xe5\x02\x00\x50\xb6\x46\x34\x11\x00\x00\x00";
        let named = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, packed).unwrap();
            read(&path)
        };
        assert_eq!(named("a.jsonl.gz").unwrap(), b"{\"prompt\": \"o1\"}\n");
        let error = render(&named("a.jsonl").unwrap_err());
        assert!(error.contains("a.jsonl is gzip: name the file .gz"), "{error}");
    }

    #[test]
    fn data_set_rows_need_no_ids_and_ignore_the_generator() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("more.jsonl");
        std::fs::write(
            &path,
            "{\"prompt\": \"1+1=\", \"label\": 2}\n{\"prompt\": \"1+2=\", \"label\": 3}\n",
        )
        .unwrap();
        let text = include_str!("../../../configs/arithmetic.toml");
        let mut config = RunConfig::parse(text, std::path::Path::new("a.toml")).unwrap();
        config.tasks.params.insert("max".into(), toml::Value::from(9));
        let source = format!("jsonl:{}", path.display());
        let found = rows(&mut open(&source, Some(&config)).unwrap().unwrap()).unwrap();
        let lines: Vec<serde_json::Value> = found
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.get("id").is_none()), "{lines:?}");
    }
}

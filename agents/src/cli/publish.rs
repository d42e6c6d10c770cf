//! `dyad publish FILE`: tasks to a run, validated before the first is sent, counted by the broker's confirms.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use broker::bus::{Bus, Outgoing, PublishError};
use broker::ids::RunId;
use broker::protocol::Kind;
use broker::topology::Topology;
use clap::Args;
use configs::RunConfig;
use futures_util::stream::{self, TryStreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use rollout::tasks::{MARK, TaskSource};

use super::select;
use super::task_rules::{Checked, Rules, validate};
use crate::base::fault::{Unavailable, Usage};
use crate::run_folder::{FolderError, RunFolder};

/// Tasks that wait for their confirm at once.
const WINDOW: usize = 512;

/// Publish tasks to a run: one JSON object per line
///
/// Every line is checked first; if one is wrong, none is sent. A task is {"prompt": "...", "label": ..., "id": "..."};
/// prompt and label are what the workflow wants, id is optional (the same id is done once). A data set is named as tasks.source is,
/// and read with the keys of the run's [tasks].
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// JSON lines, - for standard input, or a data set: jsonl:PATH, parquet:PATH, arrow:PATH, hf:FOLDER[:SPLIT]
    pub file: PathBuf,
    /// The run: `latest`, its id or the start of it, or its folder
    #[arg(long, env = "DYAD_RUN", default_value = "latest", value_name = "RUN")]
    pub run: String,
    /// Where run folders are
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
    /// The run's configuration, where its folder is not at hand: lines are checked against its workflow
    #[arg(long, env = "DYAD_CONFIG", value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// Broker URL, instead of the run's own
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    /// Only check the lines
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
    let text = match data_set(&args.file) {
        Some(source) => rows(source, config.as_ref())?,
        None => read(&args.file)?,
    };
    let tasks = validate(&text, &rules)?;
    if args.dry_run {
        println!("{} tasks are good; nothing was sent{}", tasks.len(), rules.unjudged());
        return Ok(());
    }
    let run = match &folder {
        Some(folder) => folder.run().clone(),
        None => RunId::new(&args.run).ok_or_else(|| Usage::new(format!("{:?} is no run id", args.run)))?,
    };
    let url = select::broker_url(args.broker.as_deref(), folder.as_ref())?;
    select::block_on(async {
        let bus = select::connect(&url, "publish").await?;
        let manifest = match &folder {
            Some(folder) => Some(Manifest::open(&folder.published())?),
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
            held_up(refused),
            rules.unjudged()
        );
        Ok(())
    })
}

/// The run's folder; none where only a broker and a run id were given.
fn find_folder(args: &PublishArgs) -> anyhow::Result<Option<RunFolder>> {
    match RunFolder::find(&args.runs, &args.run) {
        Ok(folder) => Ok(Some(folder)),
        Err(FolderError::NotFound { .. }) if args.broker.is_some() && args.run != "latest" => Ok(None),
        Err(FolderError::NotFound { .. }) if args.dry_run => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The file if it is written as a source of tasks is, and there is no file of that name.
fn data_set(file: &std::path::Path) -> Option<&str> {
    let text = file.to_str()?;
    let kinds = ["jsonl:", "parquet:", "arrow:", "hf:"];
    let known = kinds.iter().any(|kind| text.starts_with(kind));
    (known && !file.exists()).then_some(text)
}

/// The tasks of a data set, each once, as lines. Rows without ids get the ids that lines without ids get, so that they meet no id
/// of the run's own tasks, nor of another data set.
fn rows(source: &str, config: Option<&RunConfig>) -> anyhow::Result<Vec<u8>> {
    let tasks = match config {
        Some(config) => config.tasks.on(source.to_owned()),
        None => toml::Table::from_iter([("source".to_owned(), toml::Value::from(source))]).try_into()?,
    };
    let found = TaskSource::open(&tasks, 0).map_err(|error| Usage::new(format!("{error:#}")))?;
    let mut text = Vec::new();
    let Some(mut found) = found else { return Ok(text) };
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
        text = std::fs::read(file).map_err(|error| Usage::new(format!("cannot read {}: {error}", file.display())))?;
    }
    if text.starts_with(MARK.as_bytes()) {
        text.drain(..MARK.len());
    }
    Ok(text)
}

/// What became of the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    pub confirmed: usize,
    /// How often a full queue refused one, which was sent again until it was taken.
    pub refused: u64,
}

fn held_up(refused: u64) -> String {
    match refused {
        0 => String::new(),
        times => format!("; the queue of tasks was full {times} times, and was waited for"),
    }
}

/// Sends all, in order of the file as far as the window goes.
pub async fn send(
    bus: Arc<dyn Bus>,
    topology: &Topology,
    tasks: Vec<Checked>,
    manifest: Option<&Manifest>,
    progress: impl FnOnce(usize) -> ProgressBar,
) -> anyhow::Result<Sent> {
    let to = topology.to(&topology.tasks());
    let pressure = Pressure::default();
    let bar = progress(tasks.len());
    let run = topology.run().to_string();
    let sent = stream::iter(tasks.into_iter().map(|task| {
        let message = Outgoing {
            to: to.clone(),
            kind: Kind::Task,
            message_id: task.id.clone(),
            correlation_id: None,
            headers: vec![("run".into(), run.clone())],
            body: task.body,
            durable: true,
        };
        let confirmed = confirm(bus.as_ref(), message, &pressure);
        Ok::<_, anyhow::Error>(async move { confirmed.await.map(|()| task.id) })
    }))
    .try_buffered(WINDOW)
    .try_fold(0usize, |sent, id| {
        bar.inc(1);
        let noted = manifest.map_or(Ok(()), |manifest| manifest.note(&id));
        std::future::ready(noted.map(|()| sent + 1))
    })
    .await;
    bar.finish_and_clear();
    let sent = sent.map(|confirmed| Sent {
        confirmed,
        refused: pressure.0.load(Ordering::Relaxed),
    });
    sent.with_context(|| {
        format!(
            "{} tasks were confirmed; sending all again is safe, an id is done once",
            bar.position()
        )
    })
}

/// What was confirmed, task by task, for `dyad audit`: appended to, never rewritten.
pub struct Manifest {
    file: std::fs::File,
    path: PathBuf,
}

impl Manifest {
    pub fn open(path: &std::path::Path) -> anyhow::Result<Self> {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// One line in one write, so that several publishers may append at once.
    pub(super) fn note(&self, id: &str) -> anyhow::Result<()> {
        let line = format!("{}\n", serde_json::json!({ "id": id }));
        (&self.file)
            .write_all(line.as_bytes())
            .with_context(|| format!("cannot write to {}", self.path.display()))
    }
}

/// How often a full queue has refused a task. The first time is told.
#[derive(Debug, Default)]
struct Pressure(AtomicU64);

impl Pressure {
    fn refused(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            eprintln!(
                "the queue of tasks is full: waiting until the run has taken some (`dyad status` shows how it does)"
            );
        }
    }
}

/// Publishes until it is confirmed; a full queue is waited for.
async fn confirm(bus: &dyn Bus, message: Outgoing, pressure: &Pressure) -> anyhow::Result<()> {
    let mut pause = Duration::from_millis(50);
    loop {
        match bus.publish(message.clone()).await {
            Ok(()) => return Ok(()),
            Err(error @ (PublishError::Full(_) | PublishError::Unknown)) => {
                if matches!(error, PublishError::Full(_)) {
                    pressure.refused();
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            Err(error @ PublishError::Unroutable(_)) => {
                return Err(anyhow::Error::new(error).context(Unavailable {
                    message: "the run has no task queue on this broker, or this user may not publish to it".into(),
                    hint: Some("is it up, and is this its id and its broker? `dyad status --run RUN` says".into()),
                }));
            }
            Err(error) => return Err(error.into()),
        }
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
    use broker::bus::memory::MemoryBus;
    use bytes::Bytes;

    use super::*;
    use crate::cli::exit_code::{code, render};

    #[test]
    fn data_sets_are_known_by_what_leads_their_names() {
        for source in ["jsonl:a", "parquet:a", "arrow:a", "hf:a"] {
            assert_eq!(data_set(std::path::Path::new(source)), Some(source));
        }
        for file in ["a.arrow", "arrow", "-"] {
            assert_eq!(data_set(std::path::Path::new(file)), None, "{file}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_what_is_published() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.jsonl");
        std::fs::write(&path, "\u{feff}{\"prompt\": \"o1\"}\n").unwrap();
        let tasks = validate(&read(&path).unwrap(), &Rules::of_signal()).unwrap();
        assert_eq!(tasks[0].body, br#"{"prompt": "o1"}"#.as_slice());
    }

    #[test]
    fn rows_without_ids_bring_none_and_are_read_whatever_the_generator_of_the_run() {
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
        let found = rows(&format!("jsonl:{}", path.display()), Some(&config)).unwrap();
        let lines: Vec<serde_json::Value> = found
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.get("id").is_none()), "{lines:?}");
    }

    #[tokio::test]
    async fn tasks_arrive_byte_exact_in_order_with_their_ids() {
        let bus = MemoryBus::new();
        let topology = Topology::new(RunId::new("r-1").unwrap());
        bus.declare(&topology, &[]).await.unwrap();
        let lines: Vec<String> = (0..2000)
            .map(|i| format!(r#"{{"prompt": "o{i}",  "id": "t{i}"}}"#))
            .collect();
        let tasks = validate(lines.join("\n").as_bytes(), &Rules::of_signal()).unwrap();
        let sent = send(bus.clone(), &topology, tasks, None, |_| ProgressBar::hidden())
            .await
            .unwrap();
        let all = Sent {
            confirmed: 2000,
            refused: 0,
        };
        assert_eq!(sent, all);
        let mut consumer = bus.consume(&topology.tasks(), 2000).await.unwrap();
        for (i, line) in lines.iter().enumerate() {
            let delivery = consumer.next().await.unwrap();
            assert_eq!(delivery.body, line.as_bytes());
            assert_eq!(delivery.message_id.as_deref(), Some(format!("t{i}").as_str()));
            assert!(delivery.ack().await);
        }
    }

    #[tokio::test]
    async fn a_full_queue_is_waited_for_and_told() {
        let bus = MemoryBus::new();
        let topology = Topology::new(RunId::new("r-1").unwrap());
        bus.declare(&topology, &[]).await.unwrap();
        let quarter = usize::try_from(topology.tasks().max_bytes / 4).unwrap();
        // Never read: five views of zeros that the system has not even made.
        let body = Bytes::from(vec![0; quarter]);
        let task = |id: usize| Checked {
            id: id.to_string(),
            body: body.clone(),
        };
        let tasks = (0..5).map(task).collect();
        let sending = send(bus.clone(), &topology, tasks, None, |_| ProgressBar::hidden());
        let taking = async {
            while bus.depth(&topology.tasks()).await != Some(4) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // Long enough to be refused meanwhile, and asked again.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut consumer = bus.consume(&topology.tasks(), 5).await.unwrap();
            for _ in 0..5 {
                assert!(consumer.next().await.unwrap().ack().await);
            }
        };
        let (sent, ()) = tokio::join!(sending, taking);
        let sent = sent.unwrap();
        assert_eq!(sent.confirmed, 5);
        assert!(
            sent.refused > 0 && held_up(sent.refused).contains("was full"),
            "{sent:?}"
        );
    }

    #[tokio::test]
    async fn a_run_that_is_not_up_is_said() {
        let bus = MemoryBus::new();
        let topology = Topology::new(RunId::new("r-1").unwrap());
        let tasks = validate(br#"{"prompt": "o1"}"#, &Rules::of_signal()).unwrap();
        let error = send(bus, &topology, tasks, None, |_| ProgressBar::hidden())
            .await
            .unwrap_err();
        assert_eq!(code(&error), 75);
        assert!(render(&error).contains("no task queue"), "{error:#}");
    }
}

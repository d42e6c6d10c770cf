//! `dyad publish FILE`: tasks to a run, validated before the first is sent, counted by the broker's confirms.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use broker::bus::{Bus, Outgoing, PublishError};
use broker::ids::RunId;
use broker::protocol::Kind;
use broker::protocol::task::Task;
use broker::topology::Topology;
use bytes::Bytes;
use clap::Args;
use futures_util::stream::{self, TryStreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use rollout::workflow::Workflow;

use super::failure::{Unavailable, Usage};
use super::select;
use crate::folder::{FolderError, RunFolder};

/// Problems printed at most.
const SHOWN: usize = 20;
/// Tasks that wait for their confirm at once.
const WINDOW: usize = 512;

/// Publish tasks to a run: one JSON object per line
///
/// Every line is checked first; if one is wrong, none is sent. A task is {"prompt": "...", "label": ..., "id": "..."};
/// prompt and label are what the workflow wants, id is optional (the same id is done once).
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// JSON lines, or - for standard input
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
    #[arg(long)]
    pub dry_run: bool,
}

pub fn run(args: &PublishArgs) -> anyhow::Result<()> {
    let folder = find_folder(args)?;
    let config = match (&args.config, &folder) {
        (Some(path), _) => Some(configs::RunConfig::load(path)?),
        (None, Some(folder)) => Some(folder.config()?),
        (None, None) => None,
    };
    let rules = config.as_ref().map_or_else(Rules::default, Rules::of);
    let text = read(&args.file)?;
    let tasks = validate(&text, &rules)?;
    if args.dry_run {
        println!("{} tasks are good; nothing was sent", tasks.len());
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
            "{confirmed} tasks confirmed by the broker for run {run}{}",
            held_up(refused)
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

pub(super) fn read(file: &std::path::Path) -> anyhow::Result<Vec<u8>> {
    if file.as_os_str() == "-" {
        let mut text = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut text)
            .context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read(file).map_err(|error| Usage::new(format!("cannot read {}: {error}", file.display())).into())
}

/// What a task must be.
pub struct Rules {
    pub limit: usize,
    /// The run's workflow by name, if known.
    pub kind: Option<String>,
    pub workflow: Option<Arc<dyn Workflow>>,
}

/// Of a run of which nothing is known.
impl Default for Rules {
    fn default() -> Self {
        Self {
            limit: 1 << 20,
            kind: None,
            workflow: None,
        }
    }
}

impl Rules {
    #[must_use]
    pub fn of(config: &configs::RunConfig) -> Self {
        Self {
            limit: usize::try_from(config.run.message_cap.0).unwrap_or(usize::MAX),
            kind: Some(config.workflow.kind.clone()),
            workflow: rollout::workflow::build(&config.workflow, &config.graders).ok(),
        }
    }
}

/// A line that is a task, with its id.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    pub id: String,
    pub body: Bytes,
}

/// Every line as a task, or every line that is none, by number. Blank lines are passed over.
pub fn validate(text: &[u8], rules: &Rules) -> anyhow::Result<Vec<Checked>> {
    let mut problems = Vec::new();
    let mut tasks = Vec::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let number = index + 1;
        let checked = check(line, rules, None).and_then(|task| match seen.insert(task.id.clone(), number) {
            None => Ok(task),
            Some(first) => Err(format!(
                "it has the id {:?} of line {first}: an id is done once",
                task.id
            )),
        });
        match checked {
            Ok(task) => tasks.push(task),
            Err(problem) => problems.push(format!("line {number}: {problem}")),
        }
    }
    if problems.is_empty() && !tasks.is_empty() {
        return Ok(tasks);
    }
    if problems.is_empty() {
        return Err(Usage::new("there is no task in it")
            .hint("one JSON object per line")
            .into());
    }
    let (wrong, all) = (problems.len(), problems.len() + tasks.len());
    problems.truncate(SHOWN);
    let more = if wrong > SHOWN {
        format!("\n  ... and {} more", wrong - SHOWN)
    } else {
        String::new()
    };
    let list = problems.join("\n  ");
    Err(Usage::new(format!("{wrong} of {all} lines are no task for this run; nothing was sent\n  {list}{more}"))
        .hint("a task is {\"prompt\": \"...\", \"label\": ..., \"id\": \"...\"}; label and id may be left out if the workflow allows it")
        .into())
}

/// Judges a task; `message_id` names it if it does not name itself.
pub(super) fn check(line: &[u8], rules: &Rules, message_id: Option<&str>) -> Result<Checked, String> {
    let task = Task::parse(line, rules.limit).map_err(|e| e.to_string())?;
    if let (Some(asked), Some(plays)) = (&task.workflow, &rules.kind)
        && asked != plays
    {
        return Err(format!("it asks for workflow {asked:?} and this run plays {plays:?}"));
    }
    if let Some(workflow) = &rules.workflow {
        workflow.check_task(&task)?;
    }
    Ok(Checked {
        id: task.resolve_id(message_id, line),
        body: Bytes::copy_from_slice(line),
    })
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

    use super::*;
    use crate::cli::failure::{code, render};

    fn rules() -> Rules {
        Rules {
            limit: 200,
            kind: Some("signal".into()),
            workflow: None,
        }
    }

    #[test]
    fn every_wrong_line_is_named_and_none_is_sent() {
        let text = [
            r#"{"prompt": "o1", "id": "x"}"#.to_owned(),
            r#"{"prompt": "o1""#.into(),
            String::new(),
            r#"{"prompt": 7}"#.into(),
            r#"{"prompt": "o2", "workflow": "chess"}"#.into(),
            r#"{"prompt": "o3", "id": "x"}"#.into(),
            format!(r#"{{"prompt": "{}"}}"#, "o".repeat(300)),
            r#"{"prompt": "o1", "lable": 3}"#.into(),
        ]
        .join("\n");
        let error = validate(text.as_bytes(), &rules()).unwrap_err();
        assert_eq!(code(&error), 2);
        let text = render(&error);
        assert!(text.starts_with("error: 6 of 7 lines are no task"), "{text}");
        for part in [
            "line 2: ",
            "line 4: ",
            "line 5: it asks for workflow \"chess\"",
            "of line 1",
            "line 7: ",
            "`lable`",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[tokio::test]
    async fn tasks_arrive_byte_exact_in_order_with_their_ids() {
        let bus = MemoryBus::new();
        let topology = Topology::new(RunId::new("r-1").unwrap());
        bus.declare(&topology, &[]).await.unwrap();
        let lines: Vec<String> = (0..2000)
            .map(|i| format!(r#"{{"prompt": "o{i}",  "id": "t{i}"}}"#))
            .collect();
        let tasks = validate(lines.join("\n").as_bytes(), &rules()).unwrap();
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
        let tasks = validate(br#"{"prompt": "o1"}"#, &rules()).unwrap();
        let error = send(bus, &topology, tasks, None, |_| ProgressBar::hidden())
            .await
            .unwrap_err();
        assert_eq!(code(&error), 75);
        assert!(render(&error).contains("no task queue"), "{error:#}");
    }
}

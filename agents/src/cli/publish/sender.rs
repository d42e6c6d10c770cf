//! Sends tasks and notes each task that the broker has confirmed.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use broker::bus::{Bus, Outgoing, PublishError};
use broker::protocol::Kind;
use broker::topology::Topology;
use futures_util::stream::{self, TryStreamExt};
use indicatif::ProgressBar;

use crate::base::fault::Unavailable;
use crate::base::outgoing::{self, Addressed};
use crate::base::retry::Pauses;
use crate::cli::task_rules::Checked;

/// Largest number of tasks that wait for their confirm at once.
const WINDOW: usize = 512;

/// The result of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub confirmed: usize,
    /// The number of times that a full queue rejected a task, which was then sent again.
    pub refused: u64,
}

/// Sends all tasks. They stay in the file's order except within the window.
pub(crate) async fn send(
    bus: Arc<dyn Bus>,
    topology: &Topology,
    tasks: Vec<Checked>,
    manifest: Option<&PublishedTasks>,
    progress: impl FnOnce(usize) -> ProgressBar,
) -> anyhow::Result<Sent> {
    let to = topology.to(&topology.tasks());
    let pressure = Pressure::default();
    let bar = progress(tasks.len());
    let run = topology.run().to_string();
    let sent = stream::iter(tasks.into_iter().map(|task| {
        let message = outgoing::durable(to.clone(), Kind::Task, task.body)
            .with_id(task.id.clone())
            .with_headers([("run", run.clone())]);
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
    match bar.position() {
        0 => sent,
        confirmed => {
            sent.with_context(|| format!("{confirmed} tasks were confirmed; send all again: a run handles an id once"))
        }
    }
}

/// The list of confirmed tasks, for `dyad audit`. It is only appended to.
pub(crate) struct PublishedTasks {
    file: std::fs::File,
    path: PathBuf,
}

impl PublishedTasks {
    pub(crate) fn open(path: &std::path::Path) -> anyhow::Result<Self> {
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

    /// Appends one line in one write, so that several publishers may write at once.
    pub(in crate::cli) fn note(&self, id: &str) -> anyhow::Result<()> {
        let line = format!("{}\n", serde_json::json!({ "id": id }));
        (&self.file)
            .write_all(line.as_bytes())
            .with_context(|| format!("cannot write to {}", self.path.display()))
    }
}

/// Counts how often a full queue rejected a task, and reports the first time.
#[derive(Debug, Default)]
struct Pressure(AtomicU64);

impl Pressure {
    fn refused(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            eprintln!("the task queue is full: waiting for the run to take tasks (see `dyad status`)");
        }
    }
}

/// Publishes until the broker confirms; waits while the queue is full.
async fn confirm(bus: &dyn Bus, message: Outgoing, pressure: &Pressure) -> anyhow::Result<()> {
    let mut pauses = Pauses::between(Duration::from_millis(50), Duration::from_secs(5));
    loop {
        match bus.publish(message.clone()).await {
            Ok(()) => return Ok(()),
            Err(error @ (PublishError::Full(_) | PublishError::Unknown)) => {
                if matches!(error, PublishError::Full(_)) {
                    pressure.refused();
                }
                pauses.wait().await;
            }
            Err(error @ PublishError::Unroutable(_)) => {
                return Err(anyhow::Error::new(error).context(Unavailable {
                    message: "the run has no task queue on this broker, or this user may not publish to it".into(),
                    hint: Some(
                        "check with `dyad status --run RUN` that the run is up, and check its id and broker".into(),
                    ),
                }));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use broker::bus::memory::MemoryBus;
    use broker::ids::RunId;
    use bytes::Bytes;

    use super::*;
    use crate::cli::exit_code::{code, render};
    use crate::cli::task_rules::{Rules, validate};

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
    async fn full_queue_is_retried_and_counted() {
        let bus = MemoryBus::new();
        let topology = Topology::new(RunId::new("r-1").unwrap());
        bus.declare(&topology, &[]).await.unwrap();
        let quarter = usize::try_from(topology.tasks().max_bytes / 4).unwrap();
        // The body is never read: five views of zeros that the system does not even allocate.
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
            // Long enough for a rejection and a retry.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut consumer = bus.consume(&topology.tasks(), 5).await.unwrap();
            for _ in 0..5 {
                assert!(consumer.next().await.unwrap().ack().await);
            }
        };
        let (sent, ()) = tokio::join!(sending, taking);
        let sent = sent.unwrap();
        assert_eq!(sent.confirmed, 5);
        assert!(sent.refused > 0, "{sent:?}");
    }

    #[tokio::test]
    async fn run_without_a_queue_is_unavailable() {
        let bus = MemoryBus::new();
        let topology = Topology::new(RunId::new("r-1").unwrap());
        let tasks = validate(br#"{"prompt": "o1"}"#, &Rules::of_signal()).unwrap();
        let error = send(bus, &topology, tasks, None, |_| ProgressBar::hidden())
            .await
            .unwrap_err();
        assert_eq!(code(&error), 75);
        assert!(
            render(&error).starts_with("error: the run has no task queue"),
            "{error:#}"
        );
    }
}

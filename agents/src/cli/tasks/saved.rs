//! The dead letters of a run that has ended with its own broker: saved in the run folder, as
//! `dead.jsonl`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use broker::atomic_file;
use broker::bus::Bus;
use broker::topology::Topology;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::letters::{Letter, Order, handle};
use crate::base::fault::Usage;
use crate::cli::ended::{self, Over};
use crate::cli::select;
use crate::run_folder::RunFolder;

/// Longest time that the end of a run waits for its dead letters.
const PATIENCE: Duration = Duration::from_secs(5);

/// Saves the letters of a broker that ends with the run. A broker that the user runs keeps its own.
/// Prints a warning if that fails: the run's outcome matters more.
pub(in crate::cli) async fn save(bus: &Arc<dyn Bus>, folder: &RunFolder, broker: &str) {
    let saving = async {
        match broker {
            "local:" => replace(bus, folder, Vec::new()).await,
            // Memory does not survive: the letters of an earlier start are in the file only.
            "memory:" => replace(bus, folder, read(folder)?.unwrap_or_default()).await,
            _ => Ok(()),
        }
    };
    let saved = tokio::time::timeout(PATIENCE, saving).await;
    warn_of(
        saved.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {PATIENCE:?}"))),
        broker,
    );
}

/// Saves the letters of a private RabbitMQ over a connection of its own.
pub(in crate::cli) async fn save_from(url: &str, folder: &RunFolder, broker: &str) {
    if broker != "local:" {
        return;
    }
    match select::connect(url, "dead letters").await {
        Ok(bus) => {
            save(&bus, folder, broker).await;
            bus.close().await;
        }
        Err(error) => warn_of(Err(error), broker),
    }
}

fn warn_of(saved: anyhow::Result<()>, broker: &str) {
    let Err(error) = saved else { return };
    let error = format!("{error:#}");
    tracing::warn!(error, "the dead letters were not saved in the run folder");
    let then = match broker {
        "local:" => "; `dyad up --resume` has them again",
        _ => "",
    };
    eprintln!("the dead letters were not saved in the run folder: {error}{then}");
}

/// Writes `before` and the letters of the queue to the file, as a whole.
async fn replace(bus: &Arc<dyn Bus>, folder: &RunFolder, before: Vec<Letter>) -> anyhow::Result<()> {
    let topology = Topology::new(folder.run().clone());
    let mut letters = before;
    // A run that failed early has declared no queue.
    if bus.exists(&topology.dead()).await? {
        let waiting = bus.depth(&topology.dead()).await;
        let found = match waiting {
            Some(0) => Vec::new(),
            _ => handle(bus, &topology, &Order::List(Vec::new())).await?,
        };
        if let Some(waiting) = waiting.filter(|waiting| *waiting > found.len() as u64) {
            eprintln!(
                "only {} of {waiting} dead letters were saved in the run folder",
                found.len()
            );
        }
        letters.retain(|old| {
            !found
                .iter()
                .any(|new| (&new.facts.id, &new.body) == (&old.facts.id, &old.body))
        });
        letters.extend(found);
    }
    let mut text = Vec::new();
    for letter in &letters {
        text.extend(serde_json::to_vec(letter)?);
        text.push(b'\n');
    }
    let path = folder.dead();
    atomic_file::replace(&path, &text).with_context(|| format!("writing {}", path.display()))
}

/// Reads the saved letters; `None` if none were saved.
fn read(folder: &RunFolder) -> anyhow::Result<Option<Vec<Letter>>> {
    let path = folder.dead();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    let letters = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    letters.map(Some).with_context(|| format!("reading {}", path.display()))
}

/// Returns the saved letters that the order names, and how the run is over; `None` if the run may
/// be live, or saved none.
///
/// # Errors
/// The order changes letters, which only a running run can do.
pub(in crate::cli) fn of_an_ended_run(
    folder: &RunFolder,
    order: &Order,
) -> anyhow::Result<Option<(Vec<Letter>, Over)>> {
    let Some((over, mut letters)) = ended::over(folder)?.zip(read(folder)?) else {
        return Ok(None);
    };
    let Order::List(ids) = order else {
        let message = format!(
            "{}; its dead letters are requeued and dropped only while it runs",
            over.text()
        );
        return Err(Usage::new(message).hint(advice(folder, &over)).into());
    };
    letters.retain(|letter| letter.is_wanted(ids));
    letters.iter_mut().for_each(|letter| letter.fate = "saved".into());
    Ok(Some((letters, over)))
}

/// Shows each saved letter to `visit`. Returns how many there are, or `None` if the run may be
/// live, or saved none.
///
/// # Errors
/// The file cannot be read.
pub(in crate::cli) fn look(folder: &RunFolder, mut visit: impl FnMut(&Letter)) -> anyhow::Result<Option<u64>> {
    let path = folder.dead();
    if ended::over(folder)?.is_none() || !path.exists() {
        return Ok(None);
    }
    let reading = || format!("reading {}", path.display());
    let mut seen = 0;
    for line in BufReader::new(File::open(&path).with_context(reading)?).lines() {
        let letter = serde_json::from_str(&line.with_context(reading)?).with_context(reading)?;
        visit(&letter);
        seen += 1;
    }
    Ok(Some(seen))
}

/// Returns what to do with letters of a run that is over. The queues of a run in memory are gone.
pub(super) fn advice(folder: &RunFolder, over: &Over) -> String {
    let in_memory = folder.config().is_ok_and(|config| config.run.broker == "memory:");
    match over {
        Over::Failed(_) | Over::Stopped(_) if !in_memory => format!(
            "continue it with `dyad up --resume {}`, then requeue them",
            folder.run()
        ),
        _ => "print the tasks with `dyad tasks dead --bodies`, and publish them to a live run".into(),
    }
}

/// A body as text, or as bytes if it is none.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Body {
    Text(String),
    Bytes(Vec<u8>),
}

pub(super) fn write_body<S: Serializer>(body: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    let body = match std::str::from_utf8(body) {
        Ok(text) => Body::Text(text.to_owned()),
        Err(_) => Body::Bytes(body.to_vec()),
    };
    body.serialize(serializer)
}

pub(super) fn read_body<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    Ok(match Body::deserialize(deserializer)? {
        Body::Text(text) => text.into(),
        Body::Bytes(bytes) => bytes.into(),
    })
}

#[cfg(test)]
mod tests {
    use broker::bus::Outgoing;
    use broker::bus::letter::{Class, Refusal, Stage, dead_letter};
    use broker::bus::memory::MemoryBus;
    use broker::protocol::Kind;

    use super::*;
    use crate::cli::ended::tests::ended_run;
    use crate::cli::exit_code::code;

    /// Puts a message with this id and body into the dead letters.
    async fn die(bus: &Arc<dyn Bus>, topology: &Topology, id: &str, body: &'static [u8]) {
        let message = Outgoing {
            to: topology.to(&topology.tasks()),
            kind: Kind::Task,
            message_id: id.into(),
            correlation_id: None,
            headers: Vec::new(),
            body: Bytes::from_static(body),
            durable: true,
        };
        bus.publish(message).await.unwrap();
        // Deliveries return to the queue when their consumer ends.
        let mut tasks = bus.consume(&topology.tasks(), 1).await.unwrap();
        let delivery = tasks.next().await.unwrap();
        let refusal = Refusal::new(Class::Malformed, "the body is not a task");
        dead_letter(bus.as_ref(), topology, &delivery, Stage::Intake, &refusal)
            .await
            .unwrap();
    }

    async fn bus_of(folder: &RunFolder) -> (Arc<dyn Bus>, Topology) {
        let topology = Topology::new(folder.run().clone());
        let bus: Arc<dyn Bus> = MemoryBus::new();
        bus.declare(&topology, &[]).await.unwrap();
        (bus, topology)
    }

    #[tokio::test]
    async fn letters_of_an_ended_run_are_read_from_its_folder() {
        let base = tempfile::tempdir().unwrap();
        let folder = ended_run(base.path());
        assert!(
            of_an_ended_run(&folder, &Order::List(Vec::new())).unwrap().is_none(),
            "none were saved"
        );
        let (bus, topology) = bus_of(&folder).await;
        die(&bus, &topology, "t1", b"{").await;
        die(&bus, &topology, "t2", b"\xff\x00").await;
        save(&bus, &folder, "local:").await;
        let (letters, over) = of_an_ended_run(&folder, &Order::List(Vec::new())).unwrap().unwrap();
        let shown: Vec<_> = letters
            .iter()
            .map(|one| (one.facts.id.as_str(), one.facts.reason.as_str(), one.body.as_ref()))
            .collect();
        let reason = "the body is not a task";
        assert_eq!(
            shown,
            [("t1", reason, b"{".as_slice()), ("t2", reason, b"\xff\x00".as_slice())]
        );
        assert!(over.text().contains("eval.stop_at reached"));
        let mut seen = Vec::new();
        assert_eq!(look(&folder, |one| seen.push(one.facts.id.clone())).unwrap(), Some(2));
        assert_eq!(seen, ["t1", "t2"]);
        let (one, _) = of_an_ended_run(&folder, &Order::List(vec!["t2".into()]))
            .unwrap()
            .unwrap();
        assert_eq!(one.len(), 1);
        let error = of_an_ended_run(&folder, &Order::Requeue(vec!["t1".into()]))
            .err()
            .unwrap();
        assert_eq!(code(&error), 2);
        assert!(error.to_string().contains("only while it runs"), "{error}");
    }

    #[tokio::test]
    async fn memory_adds_to_earlier_letters_and_a_server_replaces_them() {
        let base = tempfile::tempdir().unwrap();
        let folder = ended_run(base.path());
        let ids = || {
            read(&folder)
                .unwrap()
                .unwrap()
                .into_iter()
                .map(|one| one.facts.id)
                .collect::<Vec<_>>()
        };
        for (id, broker, all) in [
            ("t1", "memory:", vec!["t1"]),
            ("t2", "memory:", vec!["t1", "t2"]),
            ("t3", "local:", vec!["t3"]),
            ("t4", "amqp://h", vec!["t3"]),
        ] {
            let (bus, topology) = bus_of(&folder).await;
            die(&bus, &topology, id, b"{").await;
            save(&bus, &folder, broker).await;
            assert_eq!(ids(), all, "{broker}");
        }
    }

    #[tokio::test]
    async fn run_without_queues_or_letters_has_an_empty_file() {
        let base = tempfile::tempdir().unwrap();
        let folder = ended_run(base.path());
        let bus: Arc<dyn Bus> = MemoryBus::new();
        save(&bus, &folder, "local:").await;
        assert!(read(&folder).unwrap().unwrap().is_empty());
    }
}

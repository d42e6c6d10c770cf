//! Selects the run of a command and connects to its broker.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::{Bus, BusHealth, blocked};
use clap::Args;

use super::ended;
use crate::base::fault::{Unavailable, Usage};
use crate::run_folder::connect::bus_options;
use crate::run_folder::logs::printable;
use crate::run_folder::{FolderError, RunFolder};

/// The option `--run` of commands that work on an existing run.
#[derive(Debug, Clone, Args)]
pub struct RunArg {
    /// The run: `latest`, its id or the beginning of it, or its folder
    #[arg(long, env = "DYAD_RUN", default_value = "latest", value_name = "RUN")]
    pub run: String,
    /// Folder that holds the run folders
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
}

impl RunArg {
    pub fn folder(&self) -> anyhow::Result<RunFolder> {
        self.named(None)
    }

    /// Returns the run of a command that may get a broker's URL, as [`found`] finds it.
    pub(super) fn of_broker(&self, which: Option<&String>, broker: Option<&str>) -> anyhow::Result<RunFolder> {
        let which = which.unwrap_or(&self.run);
        Ok(found(&self.runs, which, broker)?)
    }

    /// Returns the run that a command names by itself, or else the one of `--run`.
    pub(super) fn named(&self, which: Option<&String>) -> anyhow::Result<RunFolder> {
        self.of_broker(which, None)
    }
}

/// Finds a run as [`RunFolder::find`] does. With a broker, the beginning of an id finds only a run
/// on that broker: the wanted run may be on another machine, and its id may begin the ids of runs
/// here.
pub(super) fn found(runs: &Path, which: &str, broker: Option<&str>) -> Result<RunFolder, FolderError> {
    let Some(broker) = broker else {
        return RunFolder::find(runs, which);
    };
    let not_found = || FolderError::NotFound {
        base: runs.into(),
        which: which.into(),
    };
    let folder = RunFolder::find(runs, which).map_err(|error| match error {
        FolderError::Ambiguous { .. } => not_found(),
        error => error,
    })?;
    let is_named = which == "latest" || folder.run().as_str() == which || Path::new(which).join("run.json").is_file();
    let is_there = || matches!(folder.connection(), Ok(Some(own)) if own.broker == broker);
    if is_named || is_there() {
        Ok(folder)
    } else {
        Err(not_found())
    }
}

/// The hint for a run that is over.
pub(super) const RUN_HINT: &str = "select a live run with --run, or start one with `dyad up CONFIG`";

/// Returns the broker URL: the given one, else the live run's, else the configuration's. A private
/// broker ends with its run, so the run's end is the error.
pub fn broker_url(given: Option<&str>, folder: Option<&RunFolder>) -> anyhow::Result<String> {
    let stored = match folder {
        Some(folder) => folder.connection()?.map(|connection| connection.broker),
        None => None,
    };
    let configured = folder
        .and_then(|folder| folder.config().ok())
        .map(|config| config.run.broker);
    let is_private = || folder.is_some_and(|folder| folder.config().is_ok_and(|config| ended::is_private(&config)));
    if let Some(folder) = folder.filter(|_| given.is_none() && is_private())
        && let Some(over) = ended::over(folder)?
    {
        return Err(over.into_error());
    }
    let url = given.map(str::to_owned).or(stored).or(configured);
    match url.as_deref() {
        None => Err(Usage::new("the broker is not known")
            .hint("give --broker URL, set DYAD_BROKER, or select a run with --run")
            .into()),
        Some("memory:") => Err(Usage::new(
            "this run keeps its messages in its own memory, which no other process can reach",
        )
        .hint("start it with `dyad up`, or set run.broker to \"local:\" or to a server's URL")
        .into()),
        Some("local:") => Err(Unavailable {
            message: "the run's private broker is not running".into(),
            hint: Some(
                "`dyad up` starts it within half a minute, and ends it with the run; `dyad up --resume` goes on".into(),
            ),
        }
        .into()),
        Some(url) => Ok(url.to_owned()),
    }
}

/// The size of small frames in bytes. An AMQP URL names it as `frame_max`.
const SMALL_FRAME: u32 = 16 << 10;

/// The longest wait of a command for a connection.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Connects as a command-line tool, with a short timeout and its own connection name. While the
/// broker accepts no messages, standard error says so: publishes wait then.
pub async fn connect(url: &str, purpose: &str) -> anyhow::Result<Arc<dyn Bus>> {
    let bus = connect_within(url, purpose, PATIENCE).await?;
    tokio::spawn(report_alarms(Arc::downgrade(&bus)));
    Ok(bus)
}

/// Prints each alarm of the broker, as long as the bus is in use.
async fn report_alarms(bus: Weak<dyn Bus>) {
    let mut reported = None;
    while let Some(health) = bus.upgrade().map(|bus| bus.health()) {
        let alarm = match health {
            BusHealth::Blocked(reason) => Some(blocked::advice(&reason)),
            BusHealth::Up | BusHealth::Down(_) => None,
        };
        if alarm != reported {
            if let Some(alarm) = &alarm {
                eprintln!("RabbitMQ {}", printable(alarm));
            }
            reported = alarm;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Connects with the timeout `patience`.
pub async fn connect_within(url: &str, purpose: &str, patience: Duration) -> anyhow::Result<Arc<dyn Bus>> {
    Ok(AmqpBus::connect(url, options(url, purpose, patience)?).await?)
}

/// Connects for messages without foreign headers. Smaller frames make the buffers of the
/// connections smaller, but the headers of a message must fit into one. With `tries_once` the first
/// failure is the answer.
pub async fn connect_small(url: &str, purpose: &str, tries_once: bool) -> anyhow::Result<Arc<dyn Bus>> {
    let begin = if url.contains('?') { '&' } else { '?' };
    let options = AmqpOptions {
        tries_once,
        ..options(url, purpose, PATIENCE)?
    };
    Ok(AmqpBus::connect(&format!("{url}{begin}frame_max={SMALL_FRAME}"), options).await?)
}

fn options(url: &str, purpose: &str, patience: Duration) -> anyhow::Result<AmqpOptions> {
    Ok(AmqpOptions {
        name: format!("dyad {purpose}"),
        connect_timeout: patience,
        ..bus_options(url)?
    })
}

/// Runs a command's IO.
pub fn block_on<R>(work: impl Future<Output = anyhow::Result<R>>) -> anyhow::Result<R> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit_code::code;
    use crate::run_folder::Connection;
    use crate::run_folder::tests::config_in;

    #[test]
    fn given_broker_comes_before_the_stored_one() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let url = |given: Option<&str>| broker_url(given, Some(&folder));
        assert_eq!(code(&url(None).unwrap_err()), 2, "the configuration says memory:");
        let connection = Connection {
            broker: "amqp://u:p@127.0.0.1:5671/%2f".into(),
            state: "redis://127.0.0.1".into(),
        };
        folder.set_connection(&connection).unwrap();
        assert_eq!(code(&url(None).unwrap_err()), 75, "no process plays the run any more");
        let _held = folder.hold().unwrap();
        assert_eq!(url(None).unwrap(), connection.broker);
        assert_eq!(url(Some("amqp://other")).unwrap(), "amqp://other");
        assert_eq!(code(&broker_url(None, None).unwrap_err()), 2);
        assert_eq!(code(&url(Some("local:")).unwrap_err()), 75);
    }

    #[test]
    fn run_on_another_broker_is_found_by_its_whole_id_alone() {
        let base = tempfile::tempdir().unwrap();
        let made = || RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let folder = made();
        let id = folder.run().to_string();
        let (begin, _) = id.rsplit_once('-').unwrap();
        let found = |which: &str, broker| found(base.path(), which, broker);
        let is_missing = |which: &str| matches!(found(which, Some("amqp://here")), Err(FolderError::NotFound { .. }));
        assert_eq!(found(begin, None).unwrap(), folder);
        assert!(is_missing(begin));
        for whole in [id.as_str(), "latest", folder.path().to_str().unwrap()] {
            assert_eq!(found(whole, Some("amqp://here")).unwrap(), folder, "{whole}");
        }
        let connection = Connection {
            broker: "amqp://here".into(),
            state: "redis://here".into(),
        };
        folder.set_connection(&connection).unwrap();
        assert_eq!(found(begin, Some("amqp://here")).unwrap(), folder);
        let _second = made();
        assert!(is_missing(begin));
        assert!(matches!(found(begin, None), Err(FolderError::Ambiguous { .. })));
    }
}

//! `dyad agent` and `dyad coordinator`: one process of a run, on this host or in a container.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use anyhow::Context;
use broker::bus::Bus;
use broker::ids::RunId;
use broker::seal::{self, SealKey};
use broker::topology::Topology;
use clap::Args;
use configs::{AgentName, RunConfig};
use tokio::sync::OnceCell;

use super::exit_code::INTERRUPTED;
use super::host_check;
use super::trainer::later_rank;
use crate::agent::launched::Launched;
use crate::agent::training::ranks::Start;
use crate::base::fault::{Usage, no_such_agent};
use crate::base::ids;
use crate::base::signals::{SUPERVISED, Signals};
use crate::ledger::completion;
use crate::observe::{Metering, MetricsPlan, Observer};
use crate::run_folder::{Connection, RunFolder};
use crate::run_folder::{connect, telemetry};
use crate::traces::{TraceExport, Traces, TracesPlan};
use crate::{agent, coordinator, http};

/// Time that a stopping process may spend on messages to the others.
const TIDY: Duration = Duration::from_secs(5);

/// The run that a process belongs to.
#[derive(Debug, Args)]
pub struct Which {
    /// The run: a folder made by `dyad up`, or with --config the id that all its processes share
    #[arg(long, env = "DYAD_RUN")]
    pub run: String,
    /// The run's configuration, if processes do not share the run folder (containers, hosts)
    #[arg(long, env = "DYAD_CONFIG")]
    pub config: Option<PathBuf>,
    /// Replace a key of --config, such as agents.a.device="cuda:0"; all processes need the same
    #[arg(long, value_name = "KEY=VALUE", requires = "config")]
    pub set: Vec<String>,
    /// Folder that holds the run folders
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
    /// Broker URL, instead of the configuration's
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true)]
    pub broker: Option<String>,
    /// State store URL, instead of the configuration's; only coordinators use it
    #[arg(long, env = "DYAD_STATE", hide_env_values = true)]
    pub state: Option<String>,
}

/// Run one agent: its engine, buffer and trainer
///
/// Under torchrun or a launcher like it (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT),
/// rank 0 is the agent, and the other processes are further ranks of its trainer.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Name of the agent in the configuration
    #[arg(long, env = "DYAD_AGENT")]
    pub name: AgentName,
    #[command(flatten)]
    pub which: Which,
}

/// Run a coordinator; a run may have several
#[derive(Debug, Args)]
pub struct CoordinatorArgs {
    #[command(flatten)]
    pub which: Which,
}

/// Returns the log settings of one process of a run.
pub fn telemetry_of(folder: &RunFolder, role: &'static str, agent: Option<&AgentName>) -> telemetry::Telemetry {
    let process = agent.map_or_else(|| role.to_owned(), ToString::to_string);
    // People read the standard error of an agent that they started themselves, as in a container.
    let is_read = role == "agent" && std::env::var_os(SUPERVISED).is_none();
    telemetry::Telemetry {
        role,
        agent: agent.map(ToString::to_string),
        run: Some(folder.run().to_string()),
        file: Some(folder.log(&process)),
        whole_run: false,
        stderr: Some(if is_read { "info" } else { "info,learning=warn" }),
        file_level: None,
    }
}

struct Process {
    config: Arc<RunConfig>,
    folder: RunFolder,
    urls: Connection,
}

impl Which {
    /// Finds the run of an agent's process, or of a coordinator's. Only a coordinator uses the
    /// state store. A process that this machine cannot run makes no folder.
    fn open(&self, opened: &Opened) -> anyhow::Result<Process> {
        let (config, folder) = match &self.config {
            Some(path) => {
                let config = RunConfig::load_with(path, &self.set)?;
                let wrong = || Usage::new(format!("{:?} is not a run id: use a-z, 0-9, '-' and '_'", self.run));
                let run = RunId::new(&self.run).ok_or_else(wrong)?;
                let made = RunFolder::open(&config.run.folder.join(run.as_str())).ok();
                opened.require(&config, made.as_ref())?;
                let folder = RunFolder::open_or_create(&config.run.folder, &config, run)?;
                (config, folder)
            }
            None => {
                let folder = RunFolder::find(&self.runs, &self.run)?;
                let config = folder.config()?;
                opened.require(&config, Some(&folder))?;
                (config, folder)
            }
        };
        let stored = folder.connection()?;
        let pick = |given: &Option<String>, stored: Option<String>, config: &str| {
            given.clone().or(stored).unwrap_or_else(|| config.to_owned())
        };
        let urls = Connection {
            broker: pick(
                &self.broker,
                stored.as_ref().map(|urls| urls.broker.clone()),
                &config.run.broker,
            ),
            state: pick(&self.state, stored.map(|urls| urls.state), &config.run.state),
        };
        for (url, key, needed) in [
            (&urls.broker, "run.broker", true),
            (&urls.state, "run.state", matches!(opened, Opened::Coordinator)),
        ] {
            if needed && (url == "memory:" || url == "local:") {
                let message = format!("{key} is {url:?}, which other processes cannot reach");
                return Err(Usage::new(message)
                    .hint("give the server's URL, or use `dyad up`")
                    .into());
            }
        }
        Ok(Process {
            config: Arc::new(config),
            folder,
            urls,
        })
    }
}

/// The process that is opened.
enum Opened<'a> {
    Coordinator,
    Agent(&'a AgentName),
    /// A rank above the first, which reports its own device.
    LaterRank(&'a AgentName),
}

impl Opened<'_> {
    /// Rejects the process if this machine does not have its files, programs or device. `folder` is
    /// the run's, if it exists.
    fn require(&self, config: &RunConfig, folder: Option<&RunFolder>) -> anyhow::Result<()> {
        match self {
            Self::Agent(name) | Self::LaterRank(name) if !config.agents.contains_key(*name) => {
                Err(no_such_agent(name, config))
            }
            Self::LaterRank(_) => Ok(()),
            Self::Agent(name) => host_check::require_agent(config, name, folder),
            // A coordinator of an ended run only says so.
            Self::Coordinator if folder.is_some_and(|folder| completion::all(folder, &config.participants())) => Ok(()),
            Self::Coordinator => host_check::require_coordinator(config),
        }
    }
}

/// Runs `dyad agent`.
pub fn agent(args: &AgentArgs) -> anyhow::Result<()> {
    // A supervisor's processes have no launcher, whatever its own environment.
    let launched = match std::env::var_os(SUPERVISED) {
        Some(_) => None,
        None => Launched::of_environment()?,
    };
    let later = launched.as_ref().filter(|launched| launched.rank > 0);
    let opened = match later {
        Some(_) => Opened::LaterRank(&args.name),
        None => Opened::Agent(&args.name),
    };
    let process = args.which.open(&opened)?;
    if let Some(launched) = later {
        let start = Start::Launched(launched.clone());
        return later_rank(&process.folder, &process.config, &args.name, &start);
    }
    let _telemetry = telemetry::init(telemetry_of(&process.folder, "agent", Some(&args.name)))?;
    let (plan, traces_plan) = (MetricsPlan::of(&process.config)?, TracesPlan::of_environment()?);
    crate::cli::embedded::system().block_on(async {
        let mut signals = Signals::listen()?;
        let metering = Metering::begin(plan, &process.folder, args.name.as_str())?;
        let export = TraceExport::begin(traces_plan, process.folder.run())?;
        let shown = (metering.observer.clone(), export.traces.clone());
        let started = OnceCell::new();
        tokio::select! {
            ended = play_agent(&args.name, process, launched, shown, &started) => {
                export.close().await;
                metering.close().await;
                return ended;
            }
            // Unfinished work is delivered again. A stop takes the same path as a crash, because
            // that path is the tested one.
            () = signals.next() => tracing::info!("received a stop signal"),
        }
        metering.close().await;
        if let Some((router, front)) = started.get() {
            let tidy = async {
                let _ = router.send(agent::router::RouterMessage::Stop).await;
                if let Some(front) = front {
                    front.close().await;
                }
            };
            tokio::select! {
                () = tidy => {}
                () = signals.next() => abort(),
            }
        }
        export.close().await;
        Ok(())
    })
}

/// The parts of a started agent that a stop needs.
type Playing = (Addr<agent::router::Router>, Option<Arc<http::ServedFront>>);

async fn play_agent(
    name: &AgentName,
    process: Process,
    launched: Option<Launched>,
    (observer, traces): (Observer, Traces),
    started: &OnceCell<Playing>,
) -> anyhow::Result<()> {
    let bus = observer.watch_bus(connect::bus(&process.urls.broker).await?);
    let run = process.folder.run().clone();
    let agent = agent::start(agent::AgentEnv {
        name: name.clone(),
        run: run.clone(),
        config: process.config.clone(),
        bus: bus.clone(),
        topology: Topology::new(run),
        folder: process.folder.clone(),
        incarnation: ids::incarnation(),
        observer: observer.clone(),
        traces,
        launched,
    })
    .await?;
    observer.set_ready();
    // Only this function sets the cell, and only once.
    let _ = started.set((agent.router.clone(), agent.front.clone()));
    let outcome = agent.end.await.context("the main task ended")?;
    bus.close().await;
    outcome
}

/// Runs `dyad coordinator`.
pub fn coordinator(args: &CoordinatorArgs) -> anyhow::Result<()> {
    let process = args.which.open(&Opened::Coordinator)?;
    let _telemetry = telemetry::init(telemetry_of(&process.folder, "coordinator", None))?;
    if completion::all(&process.folder, &process.config.participants()) {
        tracing::info!("every agent has ended; nothing to do");
        return Ok(());
    }
    let (plan, traces_plan) = (MetricsPlan::of(&process.config)?, TracesPlan::of_environment()?);
    crate::cli::embedded::system().block_on(async {
        let mut signals = Signals::listen()?;
        let metering = Metering::begin(plan, &process.folder, "coordinator")?;
        let export = TraceExport::begin(traces_plan, process.folder.run())?;
        let shown = (metering.observer.clone(), export.traces.clone());
        let started = OnceCell::new();
        tokio::select! {
            ended = play_coordinator(process, shown, &started) => {
                export.close().await;
                metering.close().await;
                return ended;
            }
            () = signals.next() => tracing::info!("received a stop signal; releasing open groups"),
        }
        metering.close().await;
        let Some((mailbox, bus)) = started.get() else {
            return Ok(());
        };
        tokio::select! {
            () = coordinator::stop(mailbox, TIDY) => {}
            () = signals.next() => abort(),
        }
        export.close().await;
        bus.close().await;
        Ok(())
    })
}

/// The parts of a started coordinator that a stop needs.
type Coordinating = (coordinator::Mailbox, Arc<dyn Bus>);

async fn play_coordinator(
    process: Process,
    (observer, traces): (Observer, Traces),
    started: &OnceCell<Coordinating>,
) -> anyhow::Result<()> {
    let bus = observer.watch_bus(connect::bus(&process.urls.broker).await?);
    let run = process.folder.run().clone();
    let store = connect::store(&process.urls.state, &run).await?;
    let workflow = rollout::workflows::build(&process.config.workflow, &process.config.graders, &process.config.tools)
        .map_err(|problems| crate::base::fault::problems_error(&problems))?;
    let topology = Topology::new(run.clone());
    let incarnation = ids::incarnation();
    crate::cli::progress::watch(
        bus.clone(),
        &topology,
        process.config.clone(),
        &format!("view-{incarnation}"),
    )
    .await?;
    let env = coordinator::Env {
        run,
        config: process.config.clone(),
        workflow,
        bus: bus.clone(),
        store,
        topology,
        folder: process.folder.clone(),
        incarnation,
        seal: seal_key()?,
        alone: false,
        observer: observer.clone(),
        traces,
    };
    let (mailbox, end) = coordinator::start(env).await?;
    observer.set_ready();
    // Only this function sets the cell, and only once.
    let _ = started.set((mailbox, bus.clone()));
    let outcome = end.await.context("the coordinator ended early")?;
    // Gives the agents time to receive the news that the run has closed.
    tokio::time::sleep(Duration::from_millis(500)).await;
    bus.close().await;
    outcome
}

/// Reads the coordinators' secret from the environment, because every user of the host can read a
/// command line.
fn seal_key() -> anyhow::Result<Option<SealKey>> {
    match std::env::var(seal::VARIABLE) {
        Ok(secret) if !secret.is_empty() => {
            let key = SealKey::new(&secret)?;
            tracing::info!("tasks in custody are sealed");
            Ok(Some(key))
        }
        Err(std::env::VarError::NotUnicode(_)) => anyhow::bail!("{} is not valid UTF-8", seal::VARIABLE),
        _ => Ok(None),
    }
}

/// Ends at once after a second stop signal, without a message to the other processes.
fn abort() {
    telemetry::flush();
    signal_hook::low_level::exit(i32::from(INTERRUPTED));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit_code::code;
    use crate::run_folder::tests::config_in;

    #[test]
    fn rejected_process_makes_no_run_folder() {
        let base = tempfile::tempdir().unwrap();
        let mut config = config_in(base.path());
        let a = config.agents.keys().next().unwrap().clone();
        config.agents.get_mut(&a).unwrap().chat_template = Some("nowhere/chat.jinja".into());
        config.tasks.source = "jsonl:nowhere/tasks.jsonl".into();
        let path = base.path().join("run.toml");
        std::fs::write(&path, toml::to_string(&config).unwrap()).unwrap();
        let which = Which {
            run: "given-1".into(),
            config: Some(path),
            set: Vec::new(),
            runs: base.path().into(),
            broker: Some("amqp://127.0.0.1:1/x".into()),
            state: Some("redis://127.0.0.1:1".into()),
        };
        for (opened, key) in [
            (Opened::Agent(&a), "agents.a.chat_template"),
            (Opened::Coordinator, "tasks.source"),
        ] {
            let error = which.open(&opened).map(drop).unwrap_err();
            assert_eq!(code(&error), 2);
            assert!(error.to_string().contains(key), "{error}");
            assert!(!base.path().join("given-1").exists());
        }
    }
}

//! `dyad agent` and `dyad coordinator`: one process of a run, here or in a container.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use broker::ids::RunId;
use broker::topology::Topology;
use clap::Args;
use configs::{AgentName, RunConfig};

use crate::connect;
use crate::folder::{Connection, RunFolder};
use crate::{agent, coordinator, ids, telemetry};

/// Which run a process belongs to.
#[derive(Debug, Args)]
pub struct Which {
    /// The run: a run folder that `dyad up` made or, with --config, the run's id, the same for all its processes
    #[arg(long, env = "DYAD_RUN")]
    pub run: String,
    /// The run's configuration, where the run folder is not shared between processes (containers, hosts)
    #[arg(long, env = "DYAD_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where run folders are
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
    /// Broker URL, instead of the configuration's
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true)]
    pub broker: Option<String>,
    /// State store URL, instead of the configuration's
    #[arg(long, env = "DYAD_STATE", hide_env_values = true)]
    pub state: Option<String>,
}

/// Runs one agent: its engine, its buffer, its trainer.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Which agent of the configuration
    #[arg(long, env = "DYAD_AGENT")]
    pub name: AgentName,
    #[command(flatten)]
    pub which: Which,
}

/// Runs a coordinator; several may run side by side.
#[derive(Debug, Args)]
pub struct CoordinatorArgs {
    #[command(flatten)]
    pub which: Which,
}

/// Where the lines of one process of a run go.
pub fn telemetry_of(folder: &RunFolder, role: &'static str, agent: Option<&AgentName>) -> telemetry::Telemetry {
    let process = agent.map_or_else(|| role.to_owned(), ToString::to_string);
    telemetry::Telemetry {
        role,
        agent: agent.map(ToString::to_string),
        run: Some(folder.run().to_string()),
        file: Some(folder.log(&process)),
        stderr: Some("info"),
        file_level: None,
    }
}

struct Process {
    config: Arc<RunConfig>,
    folder: RunFolder,
    urls: Connection,
}

impl Which {
    fn open(&self) -> anyhow::Result<Process> {
        let (config, folder) = match &self.config {
            Some(path) => {
                let config = RunConfig::load(path)?;
                let run = RunId::new(&self.run)
                    .with_context(|| format!("{:?} is no run id: use a-z, 0-9, '-' and '_'", self.run))?;
                let folder = RunFolder::open_or_create(&config.run.folder, &config, run)?;
                (config, folder)
            }
            None => {
                let folder = RunFolder::find(&self.runs, &self.run)?;
                (folder.config()?, folder)
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
        for (url, key) in [(&urls.broker, "run.broker"), (&urls.state, "run.state")] {
            anyhow::ensure!(
                url != "memory:" && url != "local:",
                "{key} is {url:?}, which other processes cannot reach: give the server's URL, or use `dyad up`"
            );
        }
        Ok(Process {
            config: Arc::new(config),
            folder,
            urls,
        })
    }
}

/// `dyad agent`
pub fn agent(args: &AgentArgs) -> anyhow::Result<()> {
    let process = args.which.open()?;
    let _telemetry = telemetry::init(telemetry_of(&process.folder, "agent", Some(&args.name)))?;
    crate::run::system().block_on(async {
        let bus = connect::bus(&process.urls.broker).await?;
        let run = process.folder.run().clone();
        let started = agent::start(agent::Env {
            name: args.name.clone(),
            run: run.clone(),
            config: process.config.clone(),
            bus: bus.clone(),
            topology: Topology::new(run),
            folder: process.folder.clone(),
            incarnation: ids::incarnation(),
        })
        .await?;
        tracing::info!(pid = std::process::id(), "agent is serving");
        let outcome = until_told(started.end).await;
        bus.close().await;
        outcome
    })
}

/// `dyad coordinator`
pub fn coordinator(args: &CoordinatorArgs) -> anyhow::Result<()> {
    let process = args.which.open()?;
    let _telemetry = telemetry::init(telemetry_of(&process.folder, "coordinator", None))?;
    crate::run::system().block_on(async {
        let bus = connect::bus(&process.urls.broker).await?;
        let run = process.folder.run().clone();
        let store = connect::store(&process.urls.state, &run).await?;
        let workflow = rollout::workflow::build(&process.config.workflow, &process.config.graders)
            .map_err(|problems| super::problems_error(&problems))?;
        let topology = Topology::new(run.clone());
        let incarnation = ids::incarnation();
        crate::progress::watch(
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
        };
        let (_coordinator, end) = coordinator::start(env).await?;
        tracing::info!(pid = std::process::id(), "coordinator is running");
        let outcome = until_told(tokio::spawn(
            async move { end.await.context("the coordinator ended early") },
        ))
        .await;
        // The agents must hear that the run is closed.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        bus.close().await;
        outcome
    })
}

/// Waits for the end, or for a signal: a tidy crash, since the crash path is the one that is proven.
async fn until_told(end: tokio::task::JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        end = end => end.context("the main task ended")?,
        _ = term.recv() => {
            tracing::info!("told to stop");
            Ok(())
        }
        signal = tokio::signal::ctrl_c() => {
            signal?;
            tracing::info!("interrupted");
            Ok(())
        }
    }
}

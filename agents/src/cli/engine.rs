//! `dyad engine CONFIG`: an agent's engine in a process of its own.

use std::future::pending;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use configs::{AgentName, DeviceName, RunConfig};

use crate::agent::heartbeat::own_engine;
use crate::base::signals::Signals;
use crate::engine::process::server::{self, ServingEngine};
use crate::observe::{Metering, MetricsPlan};
use crate::run_folder::telemetry::Telemetry;
use crate::run_folder::{RunFolder, telemetry};

const METRICS_OFF: &str = "metrics are off: correct the cause and restart the engine";
/// Time between two looks at the engine's numbers.
const LOOK: Duration = Duration::from_millis(500);

/// Run one agent's engine as a separate process
///
/// The agent's configuration has engine.kind = "dyad" and this engine's address in engine.urls. The
/// engine fetches its weights from the agent and serves one run. It may be killed and started again
/// at any time.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// The run's configuration; for a running run RUN/config.toml
    #[arg(env = "DYAD_CONFIG")]
    pub config: PathBuf,
    /// Replace a key of the configuration, such as agents.a.device="cuda:0"
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Name of the agent in the configuration
    #[arg(long, env = "DYAD_AGENT")]
    pub agent: AgentName,
    /// Device to compute on, instead of the agent's, such as cuda:2
    #[arg(long)]
    pub device: Option<DeviceName>,
    /// IP address and port to listen on
    #[arg(
        long,
        env = "DYAD_ENGINE_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8101"
    )]
    pub listen: SocketAddr,
    /// Append log lines to this file of a run, for `dyad logs`
    #[arg(long, value_name = "FILE", hide = true)]
    pub log: Option<PathBuf>,
}

pub fn run(args: &EngineArgs) -> anyhow::Result<()> {
    let mut config = RunConfig::load_with(&args.config, &args.set)?;
    if let Some((agent, device)) = config.agents.get_mut(&args.agent).zip(args.device) {
        agent.device = device;
    }
    let _telemetry = telemetry::init(Telemetry {
        role: "engine",
        agent: Some(args.agent.to_string()),
        file: args.log.clone(),
        stderr: Some("info"),
        ..Telemetry::default()
    })?;
    let plan = MetricsPlan::of(&config).unwrap_or_else(|error| {
        tracing::warn!(error = format!("{error:#}"), "{METRICS_OFF}");
        None
    });
    crate::cli::embedded::system().block_on(async {
        let mut signals = Signals::listen()?;
        let serving = tokio::select! {
            serving = server::start(&config, &args.agent, args.listen) => serving?,
            () = signals.next() => return Ok(()),
        };
        let mut metering = None;
        tokio::select! {
            () = show(plan, args, &config, &serving, &mut metering) => {}
            () = signals.next() => tracing::info!("received a stop signal"),
        }
        if let Some(metering) = metering {
            metering.close().await;
        }
        serving.close().await;
        Ok(())
    })
}

/// Shows the engine's metrics once its first session has named the run. Never returns.
async fn show(
    plan: Option<MetricsPlan>,
    args: &EngineArgs,
    config: &RunConfig,
    serving: &ServingEngine,
    shown: &mut Option<Metering>,
) {
    let Some(plan) = plan else { return pending().await };
    let run = loop {
        match serving.run() {
            Some(run) => break run,
            None => tokio::time::sleep(LOOK).await,
        }
    };
    let folder = args.config.parent().and_then(|folder| RunFolder::open(folder).ok());
    let folder = folder.filter(|folder| *folder.run() == run);
    let metering = match Metering::of_run(plan, &run, Some(config), folder.as_ref(), &component(args, config)) {
        Ok(metering) => shown.insert(metering),
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "{METRICS_OFF}");
            return pending().await;
        }
    };
    metering.observer.set_ready();
    let series = metering.observer.series();
    let mut engine = series.map(|series| series.standing.of_engine(args.agent.as_str(), Vec::new()));
    loop {
        if let Some(engine) = &mut engine {
            engine.set(serving.progress().map(own_engine));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the engine's name among the processes of the run, as `dyad up` calls it.
fn component(args: &EngineArgs, config: &RunConfig) -> String {
    let agent = config.agents.get(&args.agent);
    let mut here = agent.into_iter().flat_map(|agent| agent.engine.here());
    let own = here.find(|(_, address, _)| *address == args.listen);
    let number = own.map(|(number, _, _)| number.to_string()).unwrap_or_default();
    format!("{}.engine{number}", args.agent)
}

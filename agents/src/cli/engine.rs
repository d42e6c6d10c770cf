//! `dyad engine CONFIG`: an agent's engine in a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use configs::{AgentName, DeviceName, RunConfig};

use crate::base::signals::Signals;
use crate::engine::process::server;
use crate::run_folder::telemetry;
use crate::run_folder::telemetry::Telemetry;

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
    crate::cli::embedded::system().block_on(async {
        let mut signals = Signals::listen()?;
        let serving = tokio::select! {
            serving = server::start(&config, &args.agent, args.listen) => serving?,
            () = signals.next() => return Ok(()),
        };
        signals.next().await;
        tracing::info!("received a stop signal");
        serving.close().await;
        Ok(())
    })
}

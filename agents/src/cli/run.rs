//! `dyad run CONFIG`: a whole run in one process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use configs::RunConfig;

use super::dashboard::DashboardOption;
use super::ended;
use super::host_check;
use super::overrides::{Overrides, Resume};
use crate::base::fault::{Usage, problems_error};
use crate::cli::clients;
use crate::cli::clients::Obstacle;
use crate::observe::MetricsPlan;
use crate::policy::memory::Processes;
use crate::run_folder::telemetry;
use crate::traces::TracesPlan;

/// Run all agents and the coordinator in this process
///
/// With `memory:` URLs no server is needed.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The run's configuration, a file or a name that `dyad init` lists; not needed with --resume
    #[arg(required_unless_present = "resume", value_parser = super::shipped::parser())]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub resume: Resume,
    #[command(flatten)]
    pub overrides: Overrides,
    #[command(flatten)]
    pub dashboard: DashboardOption,
}

pub fn run(args: &RunArgs) -> anyhow::Result<()> {
    args.dashboard.check()?;
    TracesPlan::of_environment()?;
    let begin = |path: &Path| {
        let config = args.overrides.apply(RunConfig::load(path)?)?;
        let config = settled(config, Processes::One)?;
        host_check::require(&config, Processes::One, None)?;
        let problems = crate::participant::unreachable(&config);
        if !problems.is_empty() {
            return Err(problems_error(&problems));
        }
        MetricsPlan::of(&config)?;
        host_check::require_servers(&config)?;
        let folder = crate::cli::embedded::new_folder(&config, path)?;
        Ok((config, folder))
    };
    let (config, folder, _held) =
        args.resume
            .or_begin(args.config.as_deref(), &args.overrides, Processes::One, begin)?;
    let mut lines = super::process::telemetry_of(&folder, "run", None);
    lines.stderr = Some("warn");
    lines.whole_run = true;
    let _telemetry = telemetry::init(lines)?;
    let played = crate::cli::embedded::with_pages(Arc::new(config), folder.clone(), &args.dashboard);
    let outcome = crate::cli::embedded::system().block_on(played);
    ended::note_failure(&folder, &outcome);
    // The run's outcome matters more than an error of the summary.
    outcome.and(super::run_summary::print(&folder))
}

/// Returns the configuration with one client instead of two, if this machine cannot hold two and
/// `clients = "auto"`.
pub(super) fn settled(config: RunConfig, processes: Processes) -> anyhow::Result<RunConfig> {
    let (config, obstacle) = clients::settle(config, processes).map_err(refused)?;
    if let Some(obstacle) = obstacle {
        eprintln!("one client plays both roles: {obstacle}");
    }
    Ok(config)
}

fn refused(obstacle: Obstacle) -> Usage {
    let usage = Usage::new(format!("workflow.params.clients: {obstacle}"));
    match obstacle {
        Obstacle::Memory { .. } => {
            usage.hint("clients = \"auto\" lets one client play both roles if memory is too small for two")
        }
        _ => usage,
    }
}

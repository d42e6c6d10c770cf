//! `dyad up CONFIG`: one process per agent and coordinator on this machine, supervised.

use std::path::{Path, PathBuf};

use clap::Args;
use configs::RunConfig;

use super::dashboard::DashboardOption;
use super::ended;
use super::host_check;
use super::overrides::{Overrides, Resume};
use super::supervise::pages::Pages;
use super::supervise::supervise;
use crate::observe::{MetricsPlan, one_port_for_many};
use crate::policy::memory::Processes;
use crate::traces::TracesPlan;

/// Run one process per agent and coordinator on this machine
///
/// `local:` URLs, the default here, start a private RabbitMQ and Redis.
#[derive(Debug, Args)]
pub struct UpArgs {
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

pub fn run(args: &UpArgs) -> anyhow::Result<()> {
    args.dashboard.check()?;
    TracesPlan::of_environment()?;
    let begin = |path: &Path| {
        let config = args.overrides.apply(RunConfig::load(path)?)?;
        let mut config = super::run::settled(config, Processes::Each)?;
        host_check::require(&config, Processes::Each, None)?;
        one_port_for_many(&config)?;
        MetricsPlan::of(&config)?;
        // Processes share no memory: embedded services become private servers.
        for url in [&mut config.run.broker, &mut config.run.state] {
            if url == "memory:" {
                *url = "local:".into();
            }
        }
        host_check::require_servers(&config)?;
        let folder = crate::cli::embedded::new_folder(&config, path)?;
        Ok((config, folder))
    };
    let (config, folder, _held) =
        args.resume
            .or_begin(args.config.as_deref(), &args.overrides, Processes::Each, begin)?;
    one_port_for_many(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        let pages = match args.dashboard.dashboard {
            Some(address) => Pages::show(address, &folder).await,
            None => None,
        };
        let outcome = supervise(&config, &folder).await;
        if let Some(pages) = pages {
            pages.close().await;
        }
        outcome
    });
    ended::note_failure(&folder, &outcome);
    // The run's outcome matters more than an error of the summary.
    outcome.and(super::run_summary::print(&folder))
}

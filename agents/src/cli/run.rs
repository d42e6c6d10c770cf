//! `dyad run CONFIG`: the whole run in this process.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use configs::RunConfig;

use super::overrides::Overrides;
use crate::telemetry;

/// Every actor in this process. With `memory:` URLs no server is needed.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The run's configuration, such as configs/signal.toml
    pub config: PathBuf,
    #[command(flatten)]
    pub overrides: Overrides,
}

pub fn run(args: &RunArgs) -> anyhow::Result<()> {
    let config = args.overrides.apply(RunConfig::load(&args.config)?)?;
    let folder = crate::run::new_folder(&config, &args.config)?;
    let mut lines = super::process::telemetry_of(&folder, "run", None);
    lines.stderr = Some("warn");
    let _telemetry = telemetry::init(lines)?;
    let outcome = crate::run::system().block_on(crate::run::embedded(Arc::new(config), folder.clone()));
    super::ending::tell(&folder)?;
    outcome
}

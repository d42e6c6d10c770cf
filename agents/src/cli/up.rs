//! `dyad up CONFIG`: one process per agent and coordinator on this machine, supervised.

use std::path::PathBuf;

use clap::Args;
use configs::RunConfig;

use super::overrides::Overrides;
use crate::folder::RunFolder;

/// One process per agent and coordinator. `local:` URLs (the default here) start a private RabbitMQ and Redis.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// The run's configuration; not needed with --resume
    #[arg(required_unless_present = "resume")]
    pub config: Option<PathBuf>,
    /// Go on with an earlier run: its id or folder, or `latest`
    #[arg(long)]
    pub resume: Option<String>,
    /// Where run folders are, for --resume
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
    #[command(flatten)]
    pub overrides: Overrides,
}

pub fn run(args: &UpArgs) -> anyhow::Result<()> {
    let (config, folder) = match (&args.resume, &args.config) {
        (Some(run), _) => {
            anyhow::ensure!(
                !args.overrides.any() && args.config.is_none(),
                "a resumed run keeps its configuration: leave the other settings out, or begin a new run"
            );
            let folder = RunFolder::find(&args.runs, run)?;
            (folder.config()?, folder)
        }
        (None, Some(path)) => {
            let mut config = args.overrides.apply(RunConfig::load(path)?)?;
            // Processes share no memory: what is embedded by default becomes private servers.
            for url in [&mut config.run.broker, &mut config.run.state] {
                if url == "memory:" {
                    *url = "local:".into();
                }
            }
            let folder = crate::run::new_folder(&config, path)?;
            (config, folder)
        }
        (None, None) => anyhow::bail!("name a configuration or --resume RUN"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(crate::up::supervise(&config, &folder));
    super::ending::tell(&folder)?;
    outcome
}

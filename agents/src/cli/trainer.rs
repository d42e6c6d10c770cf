//! `dyad trainer`: a later rank of an agent's trainer.

use std::path::PathBuf;

use clap::Args;
use configs::AgentName;

use super::process::telemetry_of;
use crate::agent::training::ranks;
use crate::base::signals::Signals;
use crate::run_folder::RunFolder;
use crate::run_folder::telemetry;
use crate::run_folder::telemetry::Telemetry;

/// Run one more rank of an agent's trainer
///
/// An agent with several train.devices starts one for each device after the first, and again
/// whenever it starts itself. The rank ends with the agent's process.
#[derive(Debug, Args)]
pub struct TrainerArgs {
    /// The run's folder
    #[arg(long)]
    pub run: PathBuf,
    /// Name of the agent in the configuration
    #[arg(long)]
    pub agent: AgentName,
    /// Place in train.devices, from 1
    #[arg(long)]
    pub rank: usize,
    /// Start of the agent that this rank belongs to
    #[arg(long)]
    pub generation: String,
}

pub fn run(args: &TrainerArgs) -> anyhow::Result<()> {
    // The kernel then ends this process with the agent's, even while it is stopped.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let folder = RunFolder::open(&args.run)?;
    let config = folder.config()?;
    let _telemetry = telemetry::init(Telemetry {
        file: Some(folder.log(&format!("{}.rank{}", args.agent, args.rank))),
        stderr: Some("warn"),
        ..telemetry_of(&folder, "trainer", Some(&args.agent))
    })?;
    crate::cli::embedded::system().block_on(async {
        let mut signals = Signals::listen()?;
        tokio::select! {
            ended = ranks::serve(&folder, &config, &args.agent, args.rank, &args.generation) => ended,
            () = signals.next() => Ok(()),
        }
    })
}

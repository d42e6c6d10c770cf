//! `dyad trainer`: a later rank of an agent's trainer.

use std::path::PathBuf;

use clap::Args;
use configs::{AgentName, RunConfig};

use super::process::telemetry_of;
use crate::agent::launched::Launched;
use crate::agent::training::ranks::{self, Start};
use crate::base::fault::Usage;
use crate::base::signals::Signals;
use crate::observe::{Metering, MetricsPlan};
use crate::run_folder::RunFolder;
use crate::run_folder::telemetry;
use crate::run_folder::telemetry::Telemetry;

/// Run one more rank of an agent's trainer
///
/// An agent with several train.devices starts one for each device after the first, and again
/// whenever it starts itself. The rank ends with the agent's process. Without --rank it takes its
/// place from the variables of torchrun: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT.
#[derive(Debug, Args)]
pub struct TrainerArgs {
    /// The run's folder
    #[arg(long)]
    pub run: PathBuf,
    /// Name of the agent in the configuration
    #[arg(long)]
    pub agent: AgentName,
    /// Place in train.devices, from 1
    #[arg(long, requires = "generation")]
    pub rank: Option<usize>,
    /// Start of the agent that this rank belongs to
    #[arg(long, requires = "rank")]
    pub generation: Option<String>,
}

/// Runs `dyad trainer`.
pub fn run(args: &TrainerArgs) -> anyhow::Result<()> {
    let start = start(args)?;
    if let Start::Child { .. } = start {
        // The kernel then ends this process with the agent's, even while it is stopped.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    }
    let folder = RunFolder::open(&args.run)?;
    let config = folder.config()?;
    later_rank(&folder, &config, &args.agent, &start)
}

/// Takes part in an agent's training as a later rank, until the trainer or a signal ends it.
pub(super) fn later_rank(
    folder: &RunFolder,
    config: &RunConfig,
    name: &AgentName,
    start: &Start,
) -> anyhow::Result<()> {
    let _telemetry = telemetry::init(Telemetry {
        file: Some(folder.log(&format!("{name}.rank{}", start.rank()))),
        stderr: Some("warn"),
        ..telemetry_of(folder, "trainer", Some(name))
    })?;
    crate::cli::embedded::system().block_on(async {
        let mut signals = Signals::listen()?;
        let metering = metering(folder, config, name, start)?;
        let observer = metering.observer.clone();
        let ended = tokio::select! {
            ended = ranks::serve(folder, config, name, start, move || observer.set_ready()) => ended,
            // The agent lives and would wait for this rank.
            () = signals.next() => match signals.has_supervisor() {
                true => Err(anyhow::anyhow!("a signal ended rank {} of the trainer", start.rank())),
                false => Ok(()),
            },
        };
        metering.close().await;
        ended
    })
}

/// Begins to show the metrics of a rank, with its own device as the agent's.
fn metering(folder: &RunFolder, config: &RunConfig, name: &AgentName, start: &Start) -> anyhow::Result<Metering> {
    let Some(plan) = MetricsPlan::on_a_free_port(config)? else {
        return Ok(Metering::default());
    };
    let mut own = config.clone();
    if let Some(settings) = own.agents.get_mut(name) {
        settings.device = start.device(name, settings)?;
    }
    // A launched rank may be on another host, where the address in the run folder would not lead.
    let shared = matches!(start, Start::Child { .. }).then_some(folder);
    let component = format!("{name}.rank{}", start.rank());
    Metering::of_run(plan, folder.run(), Some(&own), shared, &component)
}

fn start(args: &TrainerArgs) -> anyhow::Result<Start> {
    if let (Some(rank), Some(generation)) = (args.rank, &args.generation) {
        let generation = generation.clone();
        return Ok(Start::Child { rank, generation });
    }
    match Launched::of_environment()? {
        Some(launched) if launched.rank > 0 => Ok(Start::Launched(launched)),
        Some(_) => Err(Usage::new("RANK is 0: the first rank is the agent, so start `dyad agent` for it").into()),
        None => {
            let problem = "this rank has no place: --rank is missing, and so are the variables of torchrun";
            let hint = "an agent with several train.devices starts its ranks itself; torchrun starts `dyad agent`";
            Err(Usage::new(problem).hint(hint).into())
        }
    }
}

//! `dyad checkpoint`: a joint snapshot of all agents.

use std::time::Duration;

use anyhow::bail;
use broker::protocol::control::{Command, RunPhase};
use clap::Args;
use tokio::time::Instant;

use super::orders::{OrderChannel, To};
use super::select;
use crate::base::fault::Usage;
use crate::ledger::snapshot;
use crate::run_folder::RunFolder;

/// Write one checkpoint of each agent with nothing in flight
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    #[command(flatten)]
    pub to: To,
    /// Time for open groups to finish; later ones are voided and start again
    #[arg(long, default_value = "60s", value_name = "TIME")]
    pub within: configs::HumanDuration,
}

pub fn run(args: &CheckpointArgs) -> anyhow::Result<()> {
    let folder = RunFolder::find(&args.to.runs, &args.to.run)?;
    let name = snapshot::new_name(&folder)?;
    let command = Command::Checkpoint {
        snapshot: name.clone(),
        patience_ms: u64::try_from(args.within.0.as_millis()).unwrap_or(u64::MAX),
    };
    let done = select::block_on(async {
        let mut channel = OrderChannel::open(&args.to, &folder).await?;
        // Bundles arrive and checkpoints are written after the time for open groups.
        let until = Instant::now() + args.within.0 + Duration::from_secs(180);
        loop {
            channel.exchange(&command).await?;
            if let Some(done) = channel.snapshots.remove(&name) {
                return Ok(done);
            }
            channel.require_coordinator()?;
            if channel.newest().is_some_and(|run| run.phase == RunPhase::Closed) {
                bail!(Usage::new("the run has closed: its last checkpoints are its snapshot"));
            }
            if Instant::now() > until {
                bail!(
                    "no snapshot after {:?}: `dyad logs coordinator` shows the reason",
                    args.within.0
                );
            }
        }
    })?;
    if let Some(error) = done.error {
        bail!("no snapshot: {error}");
    }
    print_snapshot(&folder, &name, done.voided)
}

fn print_snapshot(folder: &RunFolder, name: &str, voided: u64) -> anyhow::Result<()> {
    let path = snapshot::path(folder, name);
    println!("{}", path.display());
    if voided > 0 {
        println!("  {voided} groups were still open and start again");
    }
    if path.is_file() {
        for (agent, saved) in snapshot::SnapshotManifest::read(&path)?.agents {
            println!("  {agent}  step {}  {}", saved.step, saved.digest);
        }
    }
    Ok(())
}

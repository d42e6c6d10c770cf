//! `dyad checkpoint`: a joint snapshot of all agents.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use broker::bus::Bus;
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
    let folder = args.to.folder()?;
    let url = select::broker_url(args.to.broker.as_deref(), Some(&folder))?;
    let taken = select::block_on(async {
        let bus = select::connect(&url, "order").await?;
        take(bus, &folder, args.within.0).await
    })?;
    print_snapshot(&folder, &taken)
}

/// A joint snapshot that was taken.
pub(super) struct SnapshotTaken {
    pub(super) name: String,
    /// Groups that were still open and start again.
    pub(super) voided: u64,
}

/// Orders a joint snapshot and waits for it. `within`: the time for open groups to finish.
///
/// # Errors
/// The run has closed, or makes no snapshot in time.
pub(super) async fn take(bus: Arc<dyn Bus>, folder: &RunFolder, within: Duration) -> anyhow::Result<SnapshotTaken> {
    let name = snapshot::new_name(folder)?;
    let command = Command::Checkpoint {
        snapshot: name.clone(),
        patience_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
    };
    let mut channel = OrderChannel::open(bus, folder).await?;
    // Bundles arrive and checkpoints are written after the time for open groups.
    let until = Instant::now() + within + Duration::from_secs(180);
    loop {
        channel.exchange(&command).await?;
        if let Some(done) = channel.snapshots.remove(&name) {
            return match done.error {
                Some(error) => Err(anyhow::anyhow!("no snapshot: {error}")),
                None => Ok(SnapshotTaken {
                    name,
                    voided: done.voided,
                }),
            };
        }
        channel.require_coordinator()?;
        if channel.newest().is_some_and(|run| run.phase == RunPhase::Closed) {
            bail!(Usage::new("the run has closed: its last checkpoints are its snapshot"));
        }
        if Instant::now() > until {
            bail!("no snapshot after {within:?}: `dyad logs coordinator` shows the reason");
        }
    }
}

fn print_snapshot(folder: &RunFolder, taken: &SnapshotTaken) -> anyhow::Result<()> {
    let path = snapshot::path(folder, &taken.name);
    println!("{}", path.display());
    if taken.voided > 0 {
        println!("  {} groups were still open and start again", taken.voided);
    }
    if path.is_file() {
        for (agent, saved) in snapshot::SnapshotManifest::read(&path)?.agents {
            println!("  {agent}  step {}  {}", saved.step, saved.digest);
        }
    }
    Ok(())
}

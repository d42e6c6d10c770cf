//! `dyad pause`: no new groups until `dyad resume`.

use broker::protocol::control::{Command, RunPhase, RunState};
use clap::Args;

use super::orders::{PATIENCE, To, order};

/// Start no new groups until `dyad resume`
///
/// Open groups are finished, and complete batches are trained.
#[derive(Debug, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    pub to: To,
}

pub fn run(args: &PauseArgs) -> anyhow::Result<()> {
    let done = |run: RunState| run.phase == RunPhase::Paused;
    order(
        &args.to,
        &Command::Pause,
        done,
        &[RunPhase::Draining, RunPhase::Closed],
        PATIENCE,
    )?;
    println!("paused: no new groups until `dyad resume`");
    Ok(())
}

//! `dyad pause`: no new groups until `dyad resume`.

use broker::protocol::control::{Command, RunPhase, RunState};
use clap::Args;

use super::orders::{PATIENCE, To, order};

/// Begin no more groups; what is open is finished, what is ready is trained
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
    println!("paused: nothing new is begun until `dyad resume`");
    Ok(())
}

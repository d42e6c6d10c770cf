//! `dyad resume`: ends a pause.

use broker::protocol::control::{Command, RunPhase, RunState};
use clap::Args;

use super::orders::{PATIENCE, To, order};

/// Continue after a pause
#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    pub to: To,
}

pub fn run(args: &ResumeArgs) -> anyhow::Result<()> {
    let done = |run: RunState| run.phase == RunPhase::Running;
    order(
        &args.to,
        &Command::Resume,
        done,
        &[RunPhase::Draining, RunPhase::Closed],
        PATIENCE,
    )?;
    println!("running");
    Ok(())
}

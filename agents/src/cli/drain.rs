//! `dyad drain`: finishes the published tasks and open groups, then ends the run.

use std::time::Duration;

use broker::protocol::control::{Command, RunPhase};
use clap::Args;

use super::orders::{PATIENCE, To, order};

/// End a run in order: what was published and what is open is finished first
#[derive(Debug, Args)]
pub struct DrainArgs {
    #[command(flatten)]
    pub to: To,
    /// Return when the run has closed, not when it has begun to drain
    #[arg(long)]
    pub wait: bool,
}

pub fn run(args: &DrainArgs) -> anyhow::Result<()> {
    let (until, patience) = if args.wait {
        (RunPhase::Closed, Duration::MAX)
    } else {
        (RunPhase::Draining, PATIENCE)
    };
    order(&args.to, &Command::Drain, move |run| run.phase >= until, &[], patience)?;
    println!(
        "{}",
        if args.wait {
            "closed"
        } else {
            "draining: what is open is finished, then the run ends"
        }
    );
    Ok(())
}

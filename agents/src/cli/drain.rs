//! `dyad drain`: finishes the published tasks and open groups, then ends the run.

use std::time::Duration;

use broker::protocol::control::{Command, RunPhase};
use clap::Args;

use super::orders::{PATIENCE, To, order};

/// Finish published tasks and open groups, then end the run
#[derive(Debug, Args)]
pub struct DrainArgs {
    #[command(flatten)]
    pub to: To,
    /// Return when the run has closed, instead of when draining begins
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
            "draining: open groups are finished, then the run ends"
        }
    );
    Ok(())
}

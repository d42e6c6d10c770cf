//! `dyad drain`: finishes the published tasks and open groups, then ends the run.

use clap::Args;

use super::orders::{PhaseOrder, To, order};

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
    let wanted = if args.wait {
        PhaseOrder::DrainAndWait
    } else {
        PhaseOrder::Drain
    };
    order(&args.to, wanted)
}

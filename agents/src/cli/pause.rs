//! `dyad pause`: no new groups until `dyad resume`.

use clap::Args;

use super::orders::{PhaseOrder, To, order};

/// Start no new groups until `dyad resume`
///
/// Open groups are finished, and complete batches are trained.
#[derive(Debug, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    pub to: To,
}

pub fn run(args: &PauseArgs) -> anyhow::Result<()> {
    order(&args.to, PhaseOrder::Pause)
}

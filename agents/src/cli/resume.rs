//! `dyad resume`: ends a pause.

use clap::Args;

use super::orders::{PhaseOrder, To, order};

/// Continue after a pause
#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    pub to: To,
}

pub fn run(args: &ResumeArgs) -> anyhow::Result<()> {
    order(&args.to, PhaseOrder::Resume)
}

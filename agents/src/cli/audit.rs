//! `dyad audit`: nothing lost, nothing counted twice.

use clap::Args;

use super::select::RunArg;
use crate::report::audit;

/// Count what the ledgers hold: nothing lost, nothing counted twice
///
/// Exit code 1 if something is.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub run: RunArg,
}

pub fn run(args: &AuditArgs) -> anyhow::Result<()> {
    let audit = audit::audit(&args.run.folder()?)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&audit)?);
    } else {
        print!("{}", audit.render());
    }
    let broken = audit.violations();
    anyhow::ensure!(broken.is_empty(), "the ledgers break a promise: {}", broken.join("; "));
    Ok(())
}

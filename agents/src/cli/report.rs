//! `dyad report`: writes the page of a run again.

use clap::Args;

use super::select::RunArg;

/// Write report.html: curves, conversations, configuration and audit
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run, as for --run
    #[arg(value_name = "RUN", conflicts_with = "run")]
    pub which: Option<String>,
    #[command(flatten)]
    pub run: RunArg,
}

pub fn run(args: &ReportArgs) -> anyhow::Result<()> {
    let path = crate::report::write(&args.run.named(args.which.as_ref())?)?;
    println!("{}", path.display());
    Ok(())
}

//! The command line.

pub mod ending;
pub mod overrides;
pub mod process;
pub mod run;
pub mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Train language-model agents that talk to each other.
#[derive(Debug, Parser)]
#[command(name = "dyad", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Up(up::UpArgs),
    Agent(process::AgentArgs),
    Coordinator(process::CoordinatorArgs),
}

/// Reads the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Agent(args) => process::agent(&args),
        Command::Coordinator(args) => process::coordinator(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// Problems of a workflow's own settings, as an error.
#[must_use]
pub fn problems_error(problems: &[configs::Problem]) -> anyhow::Error {
    let lines: String = problems.iter().map(|p| format!("\n  {}: {}", p.path, p.message)).collect();
    anyhow::anyhow!("the workflow cannot be built:{lines}")
}

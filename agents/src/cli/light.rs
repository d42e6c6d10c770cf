//! The program `dyad`: the commands that compute nothing, and the start of `dyad-full` for all
//! others.
//!
//! Loading libtorch takes a quarter of a second of processor time and 130 MiB of memory. So `dyad`
//! is linked without it (`trainer/libtorch/link.rs`), serves every [`LightCommand`] itself, and
//! starts `dyad-full` for the rest. Code that these commands reach must call nothing of libtorch.

use std::ffi::OsStr;

use clap::{Parser, Subcommand};

use super::help::{GUIDE, TEMPLATE};
use super::{
    arguments, audit, checkpoint, compare, compose, conversation, conversations, dashboard, drain, exit_code,
    full_program, grade, init, logs, pause, publish, report, resume, samples, schema, status, tasks, topology,
};
use crate::base::fault::leave;

/// Train language-model agents that talk to each other
#[derive(Debug, Parser)]
#[command(name = "dyad", version, help_template = TEMPLATE, after_help = GUIDE, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: LightCommand,
}

/// A command that computes nothing with libtorch.
#[derive(Debug, Subcommand)]
pub enum LightCommand {
    Status(status::StatusArgs),
    Logs(logs::LogsArgs),
    Dashboard(dashboard::DashboardArgs),
    Publish(publish::PublishArgs),
    Tasks(tasks::TasksArgs),
    Topology(topology::TopologyArgs),
    Pause(pause::PauseArgs),
    Resume(resume::ResumeArgs),
    Drain(drain::DrainArgs),
    Checkpoint(checkpoint::CheckpointArgs),
    Grade(grade::GradeArgs),
    Init(init::InitArgs),
    Compare(compare::CompareArgs),
    Compose(compose::ComposeArgs),
    Report(report::ReportArgs),
    Samples(samples::SamplesArgs),
    Conversation(conversation::ConversationArgs),
    Conversations(conversations::ConversationsArgs),
    Audit(audit::AuditArgs),
    Schema(schema::SchemaArgs),
}

impl LightCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// Fails if its input is wrong, or a file or service fails.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Status(args) => status::run(args),
            Self::Logs(args) => logs::run(args),
            Self::Dashboard(args) => dashboard::run(args),
            Self::Publish(args) => publish::run(args),
            Self::Tasks(args) => tasks::run(args),
            Self::Topology(args) => topology::run(args),
            Self::Pause(args) => pause::run(args),
            Self::Resume(args) => resume::run(args),
            Self::Drain(args) => drain::run(args),
            Self::Checkpoint(args) => checkpoint::run(args),
            Self::Grade(args) => grade::run(args),
            Self::Init(args) => init::run(args),
            Self::Compare(args) => compare::run(args),
            Self::Compose(args) => compose::run(args),
            Self::Report(args) => report::run(args),
            Self::Samples(args) => samples::run(args),
            Self::Conversation(args) => conversation::run(args),
            Self::Conversations(args) => conversations::run(args),
            Self::Audit(args) => audit::run(args),
            Self::Schema(args) => schema::run(args),
        }
    }
}

/// Serves the command line, or becomes the full program.
pub fn main() -> ! {
    let first = std::env::args_os().nth(1);
    let outcome = if serves(first.as_deref()) {
        crate::run_folder::telemetry::panic::install();
        arguments::parse::<Cli>().command.run()
    } else {
        full_program::exec()
    };
    leave(outcome.map_or_else(|error| exit_code::tell(&error), |()| 0).into())
}

/// Returns true if the command line is empty, asks for help or the version, or begins with a light
/// command.
#[must_use]
pub fn serves(first: Option<&OsStr>) -> bool {
    let Some(first) = first.map(OsStr::to_string_lossy) else {
        return true;
    };
    ["-h", "--help", "-V", "--version"].contains(&&*first) || LightCommand::has_subcommand(&first)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn light_commands_and_help_are_served_and_nothing_else() {
        Cli::command().debug_assert();
        for served in ["status", "dashboard", "grade", "init", "samples", "-h", "--version"] {
            assert!(serves(Some(OsStr::new(served))), "{served}");
        }
        assert!(serves(None));
        for full in ["run", "up", "check", "doctor", "", "gradee", "--run"] {
            assert!(!serves(Some(OsStr::new(full))), "{full:?}");
        }
    }
}

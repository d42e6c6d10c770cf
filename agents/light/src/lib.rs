//! The commands that need no libtorch, and the start of the full program for all others.
//!
//! Loading libtorch takes a quarter of a second of processor time. So `dyad` is a small program
//! without it, and starts `dyad-full` for every command that is not [`LightCommand`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod fault;
pub mod full;
pub mod grade;
pub mod help;
pub mod init;
pub mod printable;
pub mod shipped;

use std::ffi::OsStr;
use std::io::Write;

use clap::{Parser, Subcommand};

/// The exit code of a panic.
const EXIT_PANIC: i32 = 70;
/// The exit code that a shell reports for a command ended by SIGPIPE.
const BROKEN_PIPE: i32 = 141;

/// The first words of a command line that this program serves itself.
const SERVED: [&str; 6] = ["grade", "init", "-h", "--help", "-V", "--version"];

/// Train language-model agents that talk to each other
#[derive(Debug, Parser)]
#[command(name = "dyad", version, help_template = help::TEMPLATE, after_help = help::GUIDE, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: LightCommand,
}

/// A command that needs no libtorch.
#[derive(Debug, Subcommand)]
pub enum LightCommand {
    Grade(grade::GradeArgs),
    Init(init::InitArgs),
}

impl LightCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// When its input is wrong, or cannot be read or written.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Grade(args) => grade::run(args),
            Self::Init(args) => init::run(args),
        }
    }
}

/// Serves the command line, or becomes the full program.
pub fn main() -> ! {
    let first = std::env::args_os().nth(1);
    let outcome = if serves(first.as_deref()) {
        end_after_a_panic();
        Cli::parse().command.run()
    } else {
        full::exec()
    };
    let code = outcome.map_or_else(|error| tell(&error), |()| 0);
    // A closed standard output loses nothing.
    let _ = std::io::stdout().flush();
    std::process::exit(code)
}

/// Returns true if the command line begins with a word of [`SERVED`], or is empty.
fn serves(first: Option<&OsStr>) -> bool {
    first.is_none_or(|first| SERVED.iter().any(|served| first == *served))
}

/// Prints the error and returns its exit code.
fn tell(error: &anyhow::Error) -> i32 {
    if is_closed_output(error) {
        return BROKEN_PIPE;
    }
    let usage = error.chain().find_map(|cause| cause.downcast_ref::<fault::Usage>());
    let hint = usage.and_then(|usage| usage.hint.clone());
    // A closed standard error must not end in a panic.
    let text = fault::render(error, hint.as_deref());
    let _ = std::io::stderr().write_all(printable::printable(&text).as_bytes());
    if usage.is_some() { 2 } else { 1 }
}

/// Returns true if the reader of the output has closed its pipe, as `head` does. These commands
/// write to no other pipe.
fn is_closed_output(error: &anyhow::Error) -> bool {
    let output = error.downcast_ref::<std::io::Error>();
    output.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Ends the process with the exit code of a bug after a panic.
fn end_after_a_panic() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let message = info.payload_as_str().unwrap_or("a panic without a message");
        let _ = writeln!(
            std::io::stderr(),
            "error: a bug ended this process: {message} at {place}"
        );
        std::process::exit(EXIT_PANIC)
    }));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn light_commands_and_help_are_served_and_nothing_else() {
        let command = Cli::command();
        command.clone().debug_assert();
        for name in command.get_subcommands().map(|sub| sub.get_name().to_owned()) {
            assert!(serves(Some(OsStr::new(&name))), "{name} is not in SERVED");
        }
        assert!(serves(None) && serves(Some(OsStr::new("--version"))));
        for full in ["run", "status", "", "gradee", "--run"] {
            assert!(!serves(Some(OsStr::new(full))), "{full:?}");
        }
    }

    #[test]
    fn wrong_usage_ends_with_2_and_other_errors_with_1() {
        let usage = anyhow::Error::from(fault::Usage::new("no")).context("reading x");
        assert_eq!((tell(&usage), tell(&anyhow::anyhow!("it broke"))), (2, 1));
    }

    #[test]
    fn closed_output_ends_as_sigpipe_does() {
        let output = |kind| anyhow::Error::from(std::io::Error::from(kind));
        assert_eq!(tell(&output(std::io::ErrorKind::BrokenPipe)), BROKEN_PIPE);
        assert_eq!(tell(&output(std::io::ErrorKind::StorageFull)), 1);
    }
}

//! Errors that every layer may return to a command, and the end of the process.

use std::io::Write;
use std::process::ExitStatus;

use broker::AgentName;
use configs::{Problem, RunConfig};

/// The command was used wrongly, or its input is wrong. Exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Usage {
    pub message: String,
    pub hint: Option<String>,
}

impl Usage {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A service or file is missing or does not answer. Exit code 75.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Unavailable {
    pub message: String,
    pub hint: Option<String>,
}

/// A rank of an agent's trainer ended before the trainer. Exit code 2 if the rank's was, else 70.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("agent {agent}: rank {rank} of its trainer ended with {status}; its log says why")]
pub struct LostRank {
    pub agent: AgentName,
    pub rank: usize,
    pub status: ExitStatus,
}

/// A stop signal ended the command before its work was done. Exit code 130, as a shell reports it
/// for other commands after Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Interrupted(pub String);

/// Returns an error for problems of a configuration beyond its own file. Exit code 2.
#[must_use]
pub fn problems_error(problems: &[Problem]) -> anyhow::Error {
    let lines: String = problems
        .iter()
        .map(|p| format!("\n  {}: {}", p.path, p.message))
        .collect();
    Usage::new(format!("the configuration cannot be used:{lines}")).into()
}

/// Returns an error that lists the known agents.
#[must_use]
pub fn no_such_agent(name: &AgentName, config: &RunConfig) -> anyhow::Error {
    let known: Vec<&str> = config.agents.keys().map(AgentName::as_str).collect();
    Usage::new(format!(
        "the configuration has no agent {name}; it has {}",
        known.join(", ")
    ))
    .into()
}

/// Ends the process at once with `code`.
///
/// Skips the C library's exit handlers: they would destroy libtorch while engine and trainer
/// threads still compute with it.
pub fn leave(code: i32) -> ! {
    // A closed standard output loses nothing.
    let _ = std::io::stdout().flush();
    signal_hook::low_level::exit(code)
}

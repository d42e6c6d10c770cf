//! Problems of a configuration, and the error that lists them.

use std::path::PathBuf;

/// One mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Dotted key path, for example `agents.a.train.batch_groups`.
    pub path: String,
    /// Says what is wrong there and what to write instead.
    pub message: String,
}

/// An error for a configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is not TOML: {message}")]
    Syntax { path: PathBuf, message: String },
    #[error("{path} cannot be used:{}", list(.problems))]
    Invalid { path: PathBuf, problems: Vec<Problem> },
}

fn list(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(|p| format!("\n  {}: {}", p.path, p.message))
        .collect()
}

//! The answers of commands that pages show, as a trait that `cli` implements.

use std::sync::Arc;

use async_trait::async_trait;
use broker::bus::Bus;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::letter_page::LetterPage;
use crate::report::task_accounts::BrokerCounts;
use crate::run_folder::RunFolder;

/// The answers of commands, and the messages of live runs.
#[async_trait]
pub trait CommandAnswers: Send + Sync {
    /// Returns what `dyad status --json` prints.
    async fn status(&self, folder: &RunFolder) -> anyhow::Result<Value>;
    /// Returns the text that says how and why the run ended, or `None` if it may be live.
    async fn over(&self, folder: &RunFolder) -> anyhow::Result<Option<String>>;
    /// Returns the broker's counts for the audit, or `None` if no broker answers.
    async fn counts(&self, folder: &RunFolder) -> Option<BrokerCounts>;
    /// Shows the letters of `dyad tasks dead` to the page. They stay in their queue. Returns how
    /// many there are.
    async fn letters(&self, folder: &RunFolder, page: &mut LetterPage) -> anyhow::Result<u64>;
    /// Returns the outcome of a task, or `None` if the run does not know it. Blocks the thread.
    fn outcome(&self, folder: &RunFolder, task: &str) -> anyhow::Result<Option<TaskOutcome>>;
    /// Returns the output of `dyad compare --json`. Blocks the thread.
    fn compare(&self, a: &RunFolder, b: &RunFolder) -> anyhow::Result<Value>;
    /// Connects to the messages of a live run.
    async fn bus(&self, folder: &RunFolder) -> anyhow::Result<Arc<dyn Bus>>;
    /// Makes a change as its command does. Returns the command's result.
    async fn change(&self, folder: &RunFolder, change: PageChange) -> Result<Value, ChangeRefused>;
}

/// The outcome of a task, in the words of `dyad conversation`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TaskOutcome {
    /// `played`, `empty`, `dead`, `rejected`, `open` or `queued`.
    pub outcome: String,
    pub text: String,
    /// True if nothing more will happen to the task.
    pub is_final: bool,
}

/// A change that a page asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageChange {
    /// `dyad publish` of JSON lines; with `check` nothing is sent.
    Publish {
        lines: String,
        check: bool,
    },
    /// `dyad tasks dead --requeue` of these letters.
    Requeue {
        ids: Vec<String>,
    },
    /// `dyad tasks dead --requeue` of one letter with `--edit` and `--as`.
    Edit {
        id: String,
        task: Option<String>,
        as_id: Option<String>,
    },
    /// `dyad tasks dead --drop` of these letters.
    Drop {
        ids: Vec<String>,
    },
    Pause,
    Resume,
    Drain,
    Checkpoint,
}

/// Why a change was not made, in the words of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRefused {
    /// The HTTP status.
    pub status: u16,
    pub message: String,
}

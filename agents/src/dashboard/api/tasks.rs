//! The life of a task: its outcome, and the ledgers' view of its group.

use broker::ids::GroupId;
use schemars::JsonSchema;
use serde::Serialize;

use super::custody::{self, Custody};
use crate::dashboard::answer::ApiError;
use crate::dashboard::command_answers::{CommandAnswers, TaskOutcome};
use crate::run_folder::RunFolder;

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TaskLife {
    task: String,
    /// The group that plays it, or would.
    group: String,
    #[serde(flatten)]
    outcome: TaskOutcome,
    custody: Custody,
}

/// Reads a task's life from ledgers and files. It reads no transcript, so pages may ask often.
pub(crate) fn read(commands: &dyn CommandAnswers, folder: &RunFolder, task: &str) -> Result<TaskLife, ApiError> {
    let outcome = commands.outcome(folder, task)?;
    let outcome =
        outcome.ok_or_else(|| ApiError::missing("no ledger on this machine and no rejection names this task"))?;
    let group = GroupId::new(folder.run(), task);
    Ok(TaskLife {
        task: task.to_owned(),
        group: group.to_string(),
        outcome,
        custody: custody::read(folder, group)?,
    })
}

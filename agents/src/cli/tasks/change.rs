//! A change to a dead letter before it is published again.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::Value;

use super::letters::Letter;
use crate::base::fault::Usage;
use crate::cli::task_rules::{Checked, Rules, check};

/// The task that is published instead of a letter.
pub struct Change {
    /// The letter's id.
    pub letter: String,
    /// The new task; `None` keeps the letter's task.
    pub edited: Option<Vec<u8>>,
    /// The task's new id.
    pub as_id: Option<String>,
    /// The rules of this run.
    pub rules: Rules,
    /// The run's manifest, where a new id is noted.
    pub published: PathBuf,
}

impl Change {
    /// Returns the task, checked as by `dyad publish`.
    ///
    /// # Errors
    /// Returns an error if it is no task of this run.
    pub(super) fn task(&self, letter: &Letter) -> anyhow::Result<Checked> {
        let body = self.edited.as_deref().unwrap_or(&letter.body).trim_ascii();
        let body = match &self.as_id {
            Some(id) => named(body, id)?,
            None => body.to_vec(),
        };
        check(&body, &self.rules, Some(&letter.facts.id)).map_err(|problem| {
            let what = if self.edited.is_some() {
                "the edited task"
            } else {
                "the letter"
            };
            Usage::new(format!("{what} is not a task for this run: {problem}"))
                .hint("nothing was sent; the letter stays")
                .into()
        })
    }
}

/// Returns the task with another id.
fn named(body: &[u8], id: &str) -> anyhow::Result<Vec<u8>> {
    let unreadable = || {
        Usage::new("the letter is not a JSON object, so it cannot get an id")
            .hint("write the task to a file and publish it instead: --edit FILE")
    };
    let mut task: Value = serde_json::from_slice(body).map_err(|_| unreadable())?;
    let object = task.as_object_mut().ok_or_else(unreadable)?;
    object.insert("id".into(), id.into());
    serde_json::to_vec(&task).context("writing the task")
}

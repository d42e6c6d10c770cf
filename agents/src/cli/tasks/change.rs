//! A dead letter that is published again as something else.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::Value;

use super::letters::Letter;
use crate::base::fault::Usage;
use crate::cli::task_rules::{Checked, Rules, check};

/// What is published in the place of one letter.
pub struct Change {
    /// The letter's id.
    pub letter: String,
    /// The task in its place; `None`: as it was.
    pub edited: Option<Vec<u8>>,
    /// The task's new id.
    pub as_id: Option<String>,
    /// What a task must be in this run.
    pub rules: Rules,
    /// Where a new id is noted: the run's manifest.
    pub published: PathBuf,
}

impl Change {
    /// The task, judged as `dyad publish` would.
    ///
    /// # Errors
    /// It is no task of this run, in words.
    pub(super) fn task(&self, letter: &Letter) -> anyhow::Result<Checked> {
        let body = self.edited.as_deref().unwrap_or(&letter.body).trim_ascii();
        let body = match &self.as_id {
            Some(id) => named(body, id)?,
            None => body.to_vec(),
        };
        check(&body, &self.rules, Some(&letter.id)).map_err(|problem| {
            let what = if self.edited.is_some() {
                "the edited task"
            } else {
                "the letter"
            };
            Usage::new(format!("{what} is no task for this run: {problem}"))
                .hint("nothing was sent; it stays where it is")
                .into()
        })
    }
}

/// The same task under another id.
fn named(body: &[u8], id: &str) -> anyhow::Result<Vec<u8>> {
    let unreadable = || {
        Usage::new("the letter is no JSON object, so it cannot be given an id")
            .hint("write the task to a file and publish that in its place: --edit FILE")
    };
    let mut task: Value = serde_json::from_slice(body).map_err(|_| unreadable())?;
    let object = task.as_object_mut().ok_or_else(unreadable)?;
    object.insert("id".into(), id.into());
    serde_json::to_vec(&task).context("writing the task")
}

//! The run's own tasks, as candidates for admission.
//!
//! They need no queue: after a restart the source makes the same tasks again, and the ledger
//! reports the groups it has closed.

use std::sync::Arc;

use broker::bus::Delivery;
use broker::codec;
use broker::protocol::task::Task;
use configs::RunConfig;
use rollout::tasks::{Cursor, TaskSource, TasksError};
use rollout::workflow::Workflow;

use super::task_check;

/// A task that waits for admission.
#[derive(Clone)]
pub struct Candidate {
    pub task: Arc<Task>,
    pub id: String,
    /// Its position in the run's own source.
    pub order: Option<u64>,
    pub body: bytes::Bytes,
    /// None for a task of the run's own source, which can make it again.
    pub delivery: Option<Delivery>,
    /// True if a ledger already holds the task: it needs no room and is finished in every phase.
    pub held: bool,
}

/// The run's own tasks in the order of its source.
pub struct Feed {
    source: Option<TaskSource>,
    exhausted: bool,
    /// The reason why the source ended before its last task.
    failure: Option<String>,
}

impl Feed {
    pub fn open(config: &RunConfig) -> anyhow::Result<Self> {
        Ok(Self {
            source: TaskSource::open(&config.tasks, config.run.seed)?,
            exhausted: false,
            failure: None,
        })
    }

    /// Returns true if the source has given its last task. Always false for a run without its own
    /// source: it waits for the queue.
    #[must_use]
    pub fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// Returns the reason why the source ended before its last task; `None` if it did not.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Continues at this position in the order of all passes, if it is later than the current one.
    pub fn skip_to(&mut self, order: u64) {
        if let Some(source) = self.source.as_mut()
            && order > source.order(source.cursor())
        {
            let pass = u32::try_from(order / source.per_pass()).unwrap_or(u32::MAX);
            let index = order % source.per_pass();
            tracing::debug!(pass, index, "continuing in the run's own tasks");
            source.seek(Cursor { pass, index });
        }
    }

    /// Returns the next task, or `None` at the end or on a read error (which is logged and ends the
    /// source).
    pub fn next_task(&mut self) -> Option<Candidate> {
        if self.exhausted {
            return None;
        }
        let source = self.source.as_mut()?;
        match source.next() {
            Ok(Some((cursor, task))) => {
                let order = source.order(cursor);
                let body = codec::encode_json(&task);
                let id = task.resolve_id(None, &body);
                Some(Candidate {
                    task: Arc::new(task),
                    id,
                    order: Some(order),
                    body: body.into(),
                    delivery: None,
                    held: false,
                })
            }
            Ok(None) => {
                self.exhausted = true;
                None
            }
            Err(error) => {
                tracing::error!(%error, "the task source failed and ends here");
                self.failure = Some(error.to_string());
                self.exhausted = true;
                None
            }
        }
    }
}

/// Returns the first problem of the run's own tasks and the first of its evaluation's tasks, each
/// with the key of their source. Empty if the workflow can play them all.
#[must_use]
pub fn problems(config: &RunConfig, workflow: &dyn Workflow) -> Vec<(&'static str, TasksError)> {
    let seed = config.run.seed;
    let check = |key, source: Result<Option<TaskSource>, TasksError>| {
        let checked = source.and_then(|source| {
            let Some(mut source) = source else { return Ok(()) };
            source.check(|task| {
                check_size(config, task)?;
                task_check::check(config, workflow, task)
            })
        });
        Some((key, of_generator(key, checked.err()?)))
    };
    let tasks = check("tasks.source", TaskSource::open(&config.tasks, seed));
    // Held-out tasks of the same generator have the same problem.
    let is_same = tasks.is_some() && config.eval.source.is_none();
    let eval = (!is_same)
        .then(|| TaskSource::open_eval(&config.eval, &config.tasks, seed))
        .and_then(|source| check("eval.source", source));
    tasks.into_iter().chain(eval).collect()
}

/// Checks that a task of the run's own sources fits into a message, as published tasks do.
fn check_size(config: &RunConfig, task: &Task) -> Result<(), String> {
    let (size, limit) = (codec::encode_json(task).len(), config.run.message_cap);
    match size as u64 <= limit.0 {
        true => Ok(()),
        false => Err(format!(
            "it has {size} bytes and run.message_cap is {limit}: shorten the prompt or raise run.message_cap"
        )),
    }
}

/// Adds the key that decides about generated tasks: they have no file to correct.
fn of_generator(key: &str, mut error: TasksError) -> TasksError {
    if let TasksError::Unplayable { place, message, .. } = &mut error
        && place.is_empty()
    {
        let params = key.replace(".source", ".params");
        message.push_str(&format!(" (the generator's tasks are made from {params})"));
    }
    error
}

/// Returns all tasks of one evaluation, with their ids.
pub fn eval_tasks(config: &RunConfig) -> anyhow::Result<Vec<(String, Arc<Task>)>> {
    let mut tasks = Vec::new();
    if let Some(mut source) = TaskSource::open_eval(&config.eval, &config.tasks, config.run.seed)? {
        while let Some((_, task)) = source.next()? {
            let id = task.id.clone().unwrap_or_else(|| tasks.len().to_string());
            tasks.push((id, Arc::new(task)));
        }
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The file changes while the run goes on.
    #[test]
    fn row_that_cannot_be_read_again_is_why_the_source_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.jsonl");
        let row = "{\"prompt\": \"o1\", \"label\": \"o1\"}\n";
        std::fs::write(&path, row.repeat(3)).unwrap();
        let text = include_str!("../../../configs/signal.toml");
        let mut config = RunConfig::parse(text, Path::new("signal.toml")).unwrap();
        config.tasks = config.tasks.on(format!("jsonl:{}", path.display()));
        config.tasks.epochs = 1;
        let mut feed = Feed::open(&config).unwrap();
        assert!(feed.next_task().is_some());
        std::fs::write(&path, row.replace("o1", "\"o").repeat(3)).unwrap();
        let mut left = 3;
        while feed.next_task().is_some() {
            left -= 1;
        }
        assert!(left > 0 && feed.exhausted());
        let why = feed.failure().unwrap();
        assert!(why.contains("tasks.jsonl, line 2: not JSON"), "{why}");
    }

    #[test]
    fn rows_above_the_message_cap_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.jsonl");
        let text = include_str!("../../../configs/signal.toml");
        let mut config = RunConfig::parse(text, Path::new("signal.toml")).unwrap();
        config.tasks = config.tasks.on(format!("jsonl:{}", path.display()));
        config.run.message_cap.0 = 16 << 10;
        let built = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
        let check = |note: &str| {
            let row = format!("{{\"prompt\": \"o1\", \"label\": \"o1\", \"metadata\": {{\"note\": \"{note}\"}}}}\n");
            std::fs::write(&path, row).unwrap();
            match problems(&config, built.as_ref()).first() {
                Some((key, error)) => Err(format!("{key}: {error}")),
                None => Ok(()),
            }
        };
        check(&"x".repeat(15 << 10)).unwrap();
        let refused = check(&"x".repeat(17 << 10)).unwrap_err();
        for part in ["tasks.source: ", "tasks.jsonl, line 1", "run.message_cap is 16 KiB"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
}

//! The run's own tasks, as candidates for admission.
//!
//! They need no queue: the source makes the same tasks again after a restart, and a ledger that has closed a group says so.

use std::sync::Arc;

use broker::bus::Delivery;
use broker::codec;
use broker::protocol::task::Task;
use configs::RunConfig;
use rollout::tasks::{Cursor, TaskSource, TasksError};
use rollout::workflow::Workflow;

/// A task that waits to be admitted.
#[derive(Clone)]
pub struct Candidate {
    pub task: Arc<Task>,
    pub id: String,
    /// Its place in the run's own source.
    pub order: Option<u64>,
    pub body: bytes::Bytes,
    /// None for the run's own source, which makes its tasks again.
    pub delivery: Option<Delivery>,
    /// A ledger holds it already: it needs no room, and is finished whatever the phase.
    pub held: bool,
}

/// The run's own tasks in the order of its source.
pub struct Feed {
    source: Option<TaskSource>,
    exhausted: bool,
}

impl Feed {
    pub fn open(config: &RunConfig) -> anyhow::Result<Self> {
        Ok(Self {
            source: TaskSource::open(&config.tasks, config.run.seed)?,
            exhausted: false,
        })
    }

    /// Whether the source has given its last task. A run without a source of its own never is: it waits for the queue.
    #[must_use]
    pub fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// Goes on with the task at this place in the order of all passes, if that comes later than where it stands.
    pub fn skip_to(&mut self, order: u64) {
        if let Some(source) = self.source.as_mut()
            && order > source.order(source.cursor())
        {
            let pass = u32::try_from(order / source.per_pass()).unwrap_or(u32::MAX);
            let index = order % source.per_pass();
            tracing::debug!(pass, index, "going on in the run's own tasks");
            source.seek(Cursor { pass, index });
        }
    }

    /// The next task; `None` at the end, or when the source cannot be read (which is logged and ends it).
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
                tracing::error!(%error, "the source of tasks ends here");
                self.exhausted = true;
                None
            }
        }
    }
}

/// Whether the run's own tasks, those of evaluations included, are such as the workflow can play. The error is the key path of
/// the source and what is wrong.
pub fn check(config: &RunConfig, workflow: &dyn Workflow) -> Result<(), (&'static str, TasksError)> {
    let seed = config.run.seed;
    let sources = [
        ("tasks.source", TaskSource::open(&config.tasks, seed)),
        ("eval.source", TaskSource::open_eval(&config.eval, &config.tasks, seed)),
    ];
    for (key, source) in sources {
        if let Some(mut source) = source.map_err(|error| (key, error))? {
            source
                .check(|task| {
                    rollout::workflow::check_task(workflow, task)
                        .and_then(|()| crate::turn::image_support::check(config, task))
                })
                .map_err(|error| (key, error))?;
        }
    }
    Ok(())
}

/// All tasks of one evaluation, with their ids.
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

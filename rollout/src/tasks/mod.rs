//! Where a run's own tasks come from: JSONL files and generators, in a seeded order, resumable at any task.
//!
//! A source runs over its tasks once per pass. Which task stands where is a function of (config, seed, pass, index) alone,
//! so a [`Cursor`] is all that is needed to go on after a restart.

mod arithmetic;
mod jsonl;
mod pool;
mod random;
mod secrets;
mod signal;
pub mod warm;

use std::path::{Path, PathBuf};

use broker::protocol::task::Task;
use configs::{EvalConfig, TasksConfig};
use serde::{Deserialize, Serialize};

pub use arithmetic::{Arithmetic, Problem, Split};
pub use pool::{VerifierPool, judge};
use random::Random;

/// The place of one task: its pass over the source, and its index within the pass, both from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Cursor {
    pub pass: u32,
    pub index: u64,
}

/// Why a source of tasks cannot be used, or a task of it not be read.
#[derive(Debug, thiserror::Error)]
pub enum TasksError {
    #[error("cannot read the tasks in {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}, line {line}: {message}")]
    Line { path: PathBuf, line: u64, message: String },
    #[error("{path} has no tasks: every line is one JSON object")]
    Empty { path: PathBuf },
    #[error("{key}: {message}")]
    Config { key: String, message: String },
    #[error("task {number} of {source_name}: {message}")]
    Unplayable {
        number: u64,
        source_name: String,
        message: String,
    },
}

fn bad_line(path: &Path, line: u64, message: String) -> TasksError {
    TasksError::Line {
        path: path.to_owned(),
        line,
        message,
    }
}

/// What gives the tasks of one pass.
pub(crate) trait Pool: Send {
    /// Tasks of one pass, at least 1.
    fn len(&self) -> u64;
    /// The name that leads the ids of its tasks.
    fn name(&self) -> &str;
    /// The task at `item`, which is below [`Pool::len`]. Its id is overwritten unless it brings one.
    fn task(&mut self, item: u64) -> Result<Task, TasksError>;
}

/// A run's own tasks, in order.
pub struct TaskSource {
    pool: Box<dyn Pool>,
    seed: u64,
    shuffle: bool,
    epochs: u32,
    /// Its tasks are made, not read.
    generated: bool,
    next: Cursor,
    /// The order of the pass that `next` is in.
    order: Option<(u32, Vec<u32>)>,
}

impl TaskSource {
    /// Opens `tasks.source`; `None` if it is `queue`, which has only what others publish. A file is read once to the end,
    /// so that a bad line is found before the run begins.
    ///
    /// `seed` is the run's; a `seed` among the params takes its place.
    pub fn open(config: &TasksConfig, seed: u64) -> Result<Option<Self>, TasksError> {
        Self::open_split(config, seed, Split::Train, "tasks")
    }

    /// Opens the tasks of evaluations: `eval.source` read with the keys of `[tasks]`, held-out tasks where a generator
    /// has them, `eval.tasks` of them (all, if not given), one pass, the same ones each time. `None` if there is no
    /// source to take them from.
    pub fn open_eval(eval: &EvalConfig, tasks: &TasksConfig, seed: u64) -> Result<Option<Self>, TasksError> {
        let mut config = tasks.clone();
        if let Some(source) = &eval.source {
            config.source.clone_from(source);
            config.params = eval.params.clone();
        } else {
            config.params.extend(eval.params.clone());
        }
        (config.epochs, config.limit) = (1, eval.tasks);
        Self::open_split(&config, seed, Split::HeldOut, "eval")
    }

    fn open_split(config: &TasksConfig, seed: u64, split: Split, section: &str) -> Result<Option<Self>, TasksError> {
        let problem = |key: &str, message: String| TasksError::Config {
            key: format!("{section}.{key}"),
            message,
        };
        let mut params = config.params.clone();
        let seed = match params.remove("seed") {
            None => seed,
            Some(toml::Value::Integer(seed)) if seed >= 0 => seed as u64,
            Some(other) => return Err(problem("params.seed", format!("{other} is not a whole number from 0"))),
        };
        let at = |(key, message): (String, String)| problem(&format!("params.{key}"), message);
        let (pool, shuffle): (Box<dyn Pool>, bool) = match config.source.split_once(':') {
            Some(("jsonl", path)) => (Box::new(jsonl::Jsonl::open(path.as_ref(), config)?), config.shuffle),
            Some(("generator", "signal")) => (Box::new(signal::Objects::new(&params).map_err(at)?), true),
            Some(("generator", "guess-number")) => (Box::new(secrets::Secrets::new(&params).map_err(at)?), true),
            Some(("generator", "arithmetic")) => (Box::new(Arithmetic::new(&params, split).map_err(at)?), true),
            None if config.source == "queue" => return Ok(None),
            _ => {
                let known = "write jsonl:PATH, generator:signal, generator:guess-number, generator:arithmetic or queue";
                return Err(problem(
                    "source",
                    format!("{:?} is no source of tasks: {known}", config.source),
                ));
            }
        };
        let pool = Limited {
            limit: config.limit.unwrap_or(u64::MAX).clamp(1, pool.len()),
            pool,
        };
        let (epochs, next) = (config.epochs, Cursor::default());
        Ok(Some(Self {
            pool: Box::new(pool),
            seed,
            shuffle,
            epochs,
            generated: config.source.starts_with("generator:"),
            next,
            order: None,
        }))
    }

    /// Whether all tasks are such as the workflow can play: those of a file one by one, of a generator the first. Draws
    /// nothing.
    pub fn check(&mut self, judge: impl Fn(&Task) -> Result<(), String>) -> Result<(), TasksError> {
        let checked = if self.generated { 1 } else { self.pool.len() };
        for item in 0..checked {
            judge(&self.pool.task(item)?).map_err(|message| TasksError::Unplayable {
                number: item + 1,
                source_name: self.pool.name().to_owned(),
                message,
            })?;
        }
        Ok(())
    }

    /// Tasks of one pass.
    #[must_use]
    pub fn per_pass(&self) -> u64 {
        self.pool.len()
    }

    /// The place of the task that comes next: store it to go on there with [`TaskSource::seek`].
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.next
    }

    /// Goes on with the task at `cursor`.
    pub fn seek(&mut self, cursor: Cursor) {
        self.next = cursor;
    }

    /// How many tasks come before `cursor`, all passes counted.
    #[must_use]
    pub fn order(&self, cursor: Cursor) -> u64 {
        u64::from(cursor.pass) * self.pool.len() + cursor.index
    }

    /// The next task and its place; `None` after the last pass.
    #[expect(
        clippy::should_implement_trait,
        reason = "reading can fail: the result stands outside of the option"
    )]
    pub fn next(&mut self) -> Result<Option<(Cursor, Task)>, TasksError> {
        if self.next.index >= self.pool.len() {
            self.next = Cursor {
                pass: self.next.pass.saturating_add(1),
                index: 0,
            };
        }
        let cursor = self.next;
        if self.epochs > 0 && cursor.pass >= self.epochs {
            return Ok(None);
        }
        let item = self.item(cursor);
        let mut task = self.pool.task(item)?;
        task.id = Some(match task.id.take() {
            Some(id) if cursor.pass == 0 => id,
            Some(id) => format!("{id}#{}", cursor.pass),
            None => format!("{}/{}/{}", self.pool.name(), cursor.pass, cursor.index),
        });
        self.next.index += 1;
        Ok(Some((cursor, task)))
    }

    fn item(&mut self, cursor: Cursor) -> u64 {
        if !self.shuffle {
            return cursor.index;
        }
        if self.order.as_ref().is_none_or(|(pass, _)| *pass != cursor.pass) {
            let mut random = Random::new("dyad task order v1", self.seed, &[u64::from(cursor.pass)]);
            self.order = Some((cursor.pass, random.permutation(self.pool.len() as usize)));
        }
        let item = self
            .order
            .as_ref()
            .and_then(|(_, order)| order.get(cursor.index as usize));
        item.map_or(cursor.index, |item| u64::from(*item))
    }
}

/// The first tasks of a pool.
struct Limited {
    pool: Box<dyn Pool>,
    limit: u64,
}

impl Pool for Limited {
    fn len(&self) -> u64 {
        self.limit
    }

    fn name(&self) -> &str {
        self.pool.name()
    }

    fn task(&mut self, item: u64) -> Result<Task, TasksError> {
        self.pool.task(item)
    }
}

#[cfg(test)]
mod tests;

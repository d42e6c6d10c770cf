//! Where a run's own tasks come from: files, folders of data sets, generators and mixes of them, in a seeded order, resumable at
//! any task.
//!
//! A source runs over its tasks once per pass. Which task stands where is a function of (config, seed, pass, index) alone,
//! so a [`Cursor`] is all that is needed to go on after a restart.

mod curriculum;
mod files;
mod filter;
mod hub;
pub(crate) mod keys;
mod lane;
mod mix;
mod opening;
mod pictures;
mod rows;
mod slice;
mod spool;
mod table;

use std::path::{Path, PathBuf};

use broker::protocol::task::Task;
use configs::{EvalConfig, TasksConfig};
use serde::{Deserialize, Serialize};

use crate::hub_cache::Cache;
use crate::workflows::arithmetic::Split;
pub use curriculum::{PassRate, task_key};
use lane::Lane;
use mix::Schedule;
pub use rows::reads_a_file;

/// UTF-8's byte-order mark, with which some programs begin a file. It is no part of the file's first line.
pub const MARK: &str = "\u{feff}";

/// What leads the keys of a run's evaluation tasks in errors.
const EVAL: &str = "eval";
/// Of suites: their tasks are told apart by who plays them, whatever ids they bring.
const SUITES: &str = "eval.suites.";

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
    #[error("{path}, row {row} (from 0): {message}")]
    Row { path: PathBuf, row: u64, message: String },
    #[error("{path} {message}")]
    Format { path: PathBuf, message: String },
    #[error("{path} has no tasks: every line or row is one task")]
    Empty { path: PathBuf },
    #[error(
        "cannot keep the tasks of {name} in {folder}, the folder for temporary files (set TMPDIR to one with more room)"
    )]
    Spool {
        name: String,
        folder: PathBuf,
        source: std::io::Error,
    },
    #[error("{key}: {message}")]
    Config { key: String, message: String },
    #[error("task {number} of {source_name}: {message}")]
    Unplayable {
        number: u64,
        source_name: String,
        message: String,
    },
}

pub(crate) fn bad_line(path: &Path, line: u64, message: String) -> TasksError {
    TasksError::Line {
        path: path.to_owned(),
        line,
        message,
    }
}

/// Whether the files of a source are there; it is not read. The error says which are not. Sources without files are.
pub fn locate(source: &str) -> Result<(), String> {
    files::Files::of(source).map_or(Ok(()), |found| found.map(drop))
}

/// What is said of a source that is a name on the Hub which this machine's cache has not: another machine may have it. `None` of
/// every other source.
#[must_use]
pub fn absent(source: &str, cache: &Cache) -> Option<String> {
    let (folder, _) = files::folder_and_split(source.strip_prefix("hf:")?);
    hub::absent(folder, cache)
}

/// The command that brings a source that is [`absent`]; `None` of every other source.
#[must_use]
pub fn download(source: &str, cache: &Cache) -> Option<String> {
    let (folder, _) = files::folder_and_split(source.strip_prefix("hf:")?);
    hub::download(folder, cache)
}

/// What gives the tasks of one pass.
pub(crate) trait Pool: Send {
    /// Tasks of one pass, at least 1.
    fn len(&self) -> u64;
    /// The name that leads the ids of its tasks.
    fn name(&self) -> &str;
    /// The task at `item`, which is below [`Pool::len`]. Its id is overwritten unless it brings one.
    fn task(&mut self, item: u64) -> Result<Task, TasksError>;
    /// Rows from which its tasks were chosen; `None` if they are made.
    fn rows(&self) -> Option<u64> {
        None
    }
    /// The pass rate of each task, if they were chosen by it.
    fn rates(&self) -> Option<&[f32]> {
        None
    }
}

/// A run's own tasks, in order.
pub struct TaskSource {
    lanes: Vec<Lane>,
    /// How they are mixed; none of a source that stands alone.
    schedule: Option<Schedule>,
    epochs: u32,
    next: Cursor,
}

/// What a source has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stock {
    pub name: String,
    /// Rows looked at, those of the slice; `None` if tasks are made.
    pub rows: Option<u64>,
    /// Tasks that are left after filter, curriculum and limit.
    pub tasks: u64,
    /// Those of a pass: in a mix they may be fewer, or some more than once.
    pub in_pass: u64,
}

impl TaskSource {
    /// Opens `tasks.source`; `None` if it is `queue`, which has only what others publish. A file is read once to the end,
    /// so that a bad line is found before the run begins.
    ///
    /// `seed` is the run's; a `seed` among the params takes its place.
    pub fn open(config: &TasksConfig, seed: u64) -> Result<Option<Self>, TasksError> {
        Self::open_split(config, seed, Split::Train, "tasks")
    }

    /// Opens the tasks of evaluations: `eval.source` read with its own keys or those of `[tasks]`, held-out tasks where a generator has them,
    /// `eval.tasks` of them (all, if not given), one pass, the same ones each time; a row that comes again as it was is one task. `None` if
    /// there is no source to take them from.
    pub fn open_eval(eval: &EvalConfig, tasks: &TasksConfig, seed: u64) -> Result<Option<Self>, TasksError> {
        Self::open_held_out(eval, tasks, seed, EVAL)
    }

    /// Opens the tasks of the suite `name`, as [`TaskSource::open_eval`] does those of evaluations. Several of them may bring one id.
    pub fn open_suite(
        name: &str,
        eval: &EvalConfig,
        tasks: &TasksConfig,
        seed: u64,
    ) -> Result<Option<Self>, TasksError> {
        Self::open_held_out(eval, tasks, seed, &format!("{SUITES}{name}"))
    }

    fn open_held_out(
        eval: &EvalConfig,
        tasks: &TasksConfig,
        seed: u64,
        section: &str,
    ) -> Result<Option<Self>, TasksError> {
        let mut config = match &eval.source {
            Some(source) => TasksConfig {
                params: eval.params.clone(),
                ..tasks.on(source.clone())
            },
            // Files have no held-out part of their own.
            None if !tasks.source.starts_with("generator:") => return Ok(None),
            None => {
                let mut config = tasks.on(tasks.source.clone());
                config.params.clone_from(&tasks.params);
                config.params.extend(eval.params.clone());
                config
            }
        };
        if let Some(prompt) = &eval.prompt {
            config.prompt.clone_from(prompt);
        }
        if let Some(label) = &eval.label {
            config.label.clone_from(label);
        }
        // Rows with other keys are another file's, whose ids and tools stand elsewhere too.
        let own_rows = eval.prompt.is_some() || eval.label.is_some();
        if eval.id.is_some() || own_rows {
            config.id.clone_from(&eval.id);
        }
        config.tools = eval.tools_key(tasks);
        config.slice.clone_from(&eval.slice);
        config.filter.clone_from(&eval.filter);
        (config.epochs, config.limit) = (1, eval.tasks);
        Self::open_split(&config, seed, Split::HeldOut, section)
    }

    fn open_split(config: &TasksConfig, seed: u64, split: Split, section: &str) -> Result<Option<Self>, TasksError> {
        let opened = opening::open(config, seed, split, section)?;
        Ok(opened.map(|(lanes, schedule)| Self {
            lanes,
            schedule,
            epochs: config.epochs,
            next: Cursor::default(),
        }))
    }

    /// Whether all tasks are such as the workflow can play: those of files one by one, of a generator the first. Draws
    /// nothing.
    pub fn check(&mut self, judge: impl Fn(&Task) -> Result<(), String>) -> Result<(), TasksError> {
        for lane in &mut self.lanes {
            let checked = if lane.generated { 1 } else { lane.len() };
            for item in 0..checked {
                judge(&lane.pool.task(item)?).map_err(|message| TasksError::Unplayable {
                    number: item + 1,
                    source_name: lane.name().to_owned(),
                    message,
                })?;
            }
        }
        Ok(())
    }

    /// Each task of each source once, whatever the weights of a mix, with the id that it has when it first comes, and the [`task_key`] of
    /// its row: a mix writes into a task's metadata. Draws nothing.
    pub fn each(&mut self) -> impl Iterator<Item = Result<(Task, String), TasksError>> {
        let lanes = self.lanes.iter_mut();
        lanes.flat_map(|lane| (0..lane.len()).map(move |position| lane.task_and_key(0, position)))
    }

    /// Each task of each source once, in the order of rows, with the id that its row brings or none. Draws nothing.
    pub fn rows(&mut self) -> impl Iterator<Item = Result<Task, TasksError>> {
        let lanes = self.lanes.iter_mut();
        lanes.flat_map(|lane| (0..lane.len()).map(move |item| lane.pool.task(item)))
    }

    /// What each source has, in the order of the configuration.
    #[must_use]
    pub fn stock(&self) -> Vec<Stock> {
        let of_lane = |(index, lane): (usize, &Lane)| Stock {
            name: lane.name().to_owned(),
            rows: lane.pool.rows(),
            tasks: lane.len(),
            in_pass: self
                .schedule
                .as_ref()
                .map_or(lane.len(), |schedule| schedule.of_lane(index)),
        };
        self.lanes.iter().enumerate().map(of_lane).collect()
    }

    /// Tasks of one pass.
    #[must_use]
    pub fn per_pass(&self) -> u64 {
        match &self.schedule {
            Some(schedule) => schedule.len(),
            None => self.lanes.iter().map(Lane::len).sum(),
        }
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
        u64::from(cursor.pass) * self.per_pass() + cursor.index
    }

    /// The next task and its place; `None` after the last pass.
    #[expect(
        clippy::should_implement_trait,
        reason = "reading can fail: the result stands outside of the option"
    )]
    pub fn next(&mut self) -> Result<Option<(Cursor, Task)>, TasksError> {
        if self.next.index >= self.per_pass() {
            self.next = Cursor {
                pass: self.next.pass.saturating_add(1),
                index: 0,
            };
        }
        let cursor = self.next;
        if self.epochs > 0 && cursor.pass >= self.epochs {
            return Ok(None);
        }
        let task = match &self.schedule {
            None => self.lanes.first_mut().map(|lane| lane.task(cursor.pass, cursor.index)),
            Some(schedule) => schedule.slot(cursor.pass, cursor.index).and_then(|slot| {
                let lane = self.lanes.get_mut(slot.lane)?;
                // A source goes on in the next pass where this one left it.
                let round = u32::try_from(slot.nth / lane.len()).unwrap_or(u32::MAX);
                Some(lane.task(round, slot.nth % lane.len()))
            }),
        };
        let Some(task) = task.transpose()? else { return Ok(None) };
        self.next.index += 1;
        Ok(Some((cursor, task)))
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

    fn rows(&self) -> Option<u64> {
        self.pool.rows()
    }
}

#[cfg(test)]
mod tests;

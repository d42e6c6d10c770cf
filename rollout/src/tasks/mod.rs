//! Where a run's own tasks come from: files, folders of data sets, generators and mixes of them, in a seeded order, resumable at
//! any task.
//!
//! A source runs over its tasks once per pass. Which task stands where is a function of (config, seed, pass, index) alone,
//! so a [`Cursor`] is all that is needed to go on after a restart.

mod curriculum;
mod error;
mod files;
mod filter;
mod hub;
pub(crate) mod keys;
mod lane;
mod mix;
mod opening;
mod patterns;
mod pictures;
mod pool;
mod rows;
mod slice;
mod spool;
mod table;

use broker::protocol::task::Task;
use configs::TasksConfig;
use serde::{Deserialize, Serialize};

pub use crate::byte_order_mark::MARK;
use crate::hub_cache::Cache;
pub use curriculum::{PassRate, task_key};
pub use error::TasksError;
pub(crate) use error::bad_line;
use lane::Lane;
use mix::Schedule;
pub(crate) use opening::held_out;
pub use pool::Split;
pub(crate) use pool::{Generators, MadePool, Pool};
pub use rows::reads_a_file;
pub(crate) use table::{EVAL, SUITES};

/// The place of one task: its pass over the source, and its index within the pass, both from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Cursor {
    pub pass: u32,
    pub index: u64,
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
    /// Opens the source that `config` names; `None` if it is `queue`. `section` leads the keys in errors.
    pub(crate) fn open_with(
        generators: &Generators,
        config: &TasksConfig,
        seed: u64,
        split: Split,
        section: &str,
    ) -> Result<Option<Self>, TasksError> {
        let opened = opening::open(generators, config, (seed, split), section)?;
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

#[cfg(test)]
mod tests;

//! The sources of a run's own tasks: files, folders of data sets, generators and mixes of them, in
//! a seeded order, resumable at any task.
//!
//! A source runs over its tasks once per pass. The task at a place is a function of (config, seed,
//! pass, index) alone, so a [`Cursor`] is enough to continue after a restart.

mod curriculum;
mod error;
mod files;
mod filter;
mod hub;
mod keys;
mod lane;
mod mix;
mod opening;
mod patterns;
mod pictures;
mod places;
mod pool;
mod rows;
mod slice;
mod spool;
mod table;

use std::path::Path;

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
pub use rows::{read_unpacked, reads_a_file};
pub(crate) use table::{EVAL, SUITES};

/// The place of one task: its pass over the source, and its index within the pass, both from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Cursor {
    pub pass: u32,
    pub index: u64,
}

/// Checks that the files of a source exist, without reading them. The error lists the missing ones.
/// Sources without files pass.
pub fn locate(source: &str) -> Result<(), String> {
    files::Files::of(source).map_or(Ok(()), |found| found.map(drop))
}

/// Returns the file, folder, pattern or Hub name that a source reads; `None` if it reads none.
#[must_use]
pub fn place(source: &str) -> Option<&Path> {
    match source.split_once(':')? {
        ("jsonl" | "parquet" | "arrow", path) => Some(Path::new(path)),
        ("hf", text) => Some(files::folder_and_split(text).0),
        _ => None,
    }
}

/// Returns the error text for a source that is a name on the Hub and is missing from this machine's
/// cache; the cache of a different machine may have it. Returns `None` for every other source.
#[must_use]
pub fn absent(source: &str, cache: &Cache) -> Option<String> {
    let (folder, _) = files::folder_and_split(source.strip_prefix("hf:")?);
    hub::absent(folder, cache)
}

/// Returns the command that downloads a source that is [`absent`]; `None` for every other source.
#[must_use]
pub fn download(source: &str, cache: &Cache) -> Option<String> {
    let (folder, _) = files::folder_and_split(source.strip_prefix("hf:")?);
    hub::download(folder, cache)
}

/// A run's own tasks, in order.
pub struct TaskSource {
    lanes: Vec<Lane>,
    /// The schedule of a mix; none for a single source.
    schedule: Option<Schedule>,
    epochs: u32,
    next: Cursor,
}

/// The most tasks of a generator that are checked before a run: one may make millions.
const MOST_CHECKED: u64 = 4096;

/// Figures of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stock {
    pub name: String,
    /// Rows that were read, those of the slice; `None` if tasks are generated.
    pub rows: Option<u64>,
    /// Tasks that remain after filter, curriculum and limit.
    pub tasks: u64,
    /// Tasks of the source in a pass: in a mix they may be fewer, or some may repeat.
    pub in_pass: u64,
}

impl TaskSource {
    /// Opens the source that `config` names; `None` if it is `queue`. `section` leads the keys in
    /// errors.
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

    /// Checks that the workflow can play the tasks: each task of a file, and of a generator at most
    /// [`MOST_CHECKED`], from its first to its last. It draws no task.
    pub fn check(&mut self, judge: impl Fn(&Task) -> Result<(), String>) -> Result<(), TasksError> {
        for lane in &mut self.lanes {
            let checked = if lane.generated {
                lane.len().min(MOST_CHECKED)
            } else {
                lane.len()
            };
            let (mut first, mut refused) = (None, 0u64);
            for number in 0..checked {
                let item = spread(number, checked, lane.len());
                if let Err(message) = judge(&lane.pool.task(item)?) {
                    first.get_or_insert((item + 1, message));
                    refused += 1;
                }
            }
            if let Some((number, message)) = first {
                let place = lane.pool.place(number - 1);
                // A single one's place and reason say all.
                let message = if refused == 1 {
                    message
                } else {
                    with_share(message, refused, checked)
                };
                return Err(TasksError::Unplayable {
                    place: place.map(|place| format!("{place}: ")).unwrap_or_default(),
                    number,
                    source_name: lane.name().to_owned(),
                    message,
                });
            }
        }
        Ok(())
    }

    /// Returns each task of each source once, whatever the weights of a mix. Each has the id of its
    /// first occurrence, and the [`task_key`] of its row, because a mix writes into a task's
    /// metadata. It draws no task.
    pub fn each(&mut self) -> impl Iterator<Item = Result<(Task, String), TasksError>> {
        let lanes = self.lanes.iter_mut();
        lanes.flat_map(|lane| (0..lane.len()).map(move |position| lane.task_and_key(0, position)))
    }

    /// Returns each task of each source once, in the order of rows, with the row's own id if it has
    /// one. It draws no task.
    pub fn rows(&mut self) -> impl Iterator<Item = Result<Task, TasksError>> {
        let lanes = self.lanes.iter_mut();
        lanes.flat_map(|lane| (0..lane.len()).map(move |item| lane.pool.task(item)))
    }

    /// Returns the file and row of a task, by its number from 0 in the order of [`Self::rows`].
    #[must_use]
    pub fn row_place(&self, mut number: u64) -> Option<String> {
        for lane in &self.lanes {
            if number < lane.len() {
                return lane.pool.place(number);
            }
            number -= lane.len();
        }
        None
    }

    /// Returns the figures of each source, in the order of the configuration.
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

    /// Returns the number of tasks of one pass.
    #[must_use]
    pub fn per_pass(&self) -> u64 {
        match &self.schedule {
            Some(schedule) => schedule.len(),
            None => self.lanes.iter().map(Lane::len).sum(),
        }
    }

    /// Returns the place of the next task. Store it to continue there with [`TaskSource::seek`].
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.next
    }

    /// Continues with the task at `cursor`.
    pub fn seek(&mut self, cursor: Cursor) {
        self.next = cursor;
    }

    /// Returns the number of tasks before `cursor`, over all passes.
    #[must_use]
    pub fn order(&self, cursor: Cursor) -> u64 {
        u64::from(cursor.pass) * self.per_pass() + cursor.index
    }

    /// Returns the next task and its place; `None` after the last pass.
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
                // A source continues in the next pass where this pass left it.
                let round = u32::try_from(slot.nth / lane.len()).unwrap_or(u32::MAX);
                Some(lane.task(round, slot.nth % lane.len()))
            }),
        };
        let Some(task) = task.transpose()? else { return Ok(None) };
        self.next.index += 1;
        Ok(Some((cursor, task)))
    }
}

/// Returns the item of a check's `number`: they are spread from the first item to the last.
fn spread(number: u64, checked: u64, items: u64) -> u64 {
    let last = checked.saturating_sub(1).max(1);
    let item = u128::from(number) * u128::from(items.saturating_sub(1)) / u128::from(last);
    u64::try_from(item).unwrap_or(u64::MAX)
}

/// Adds how many tasks of a source are refused. A source of one task says it already.
#[must_use]
pub fn with_share(message: String, refused: u64, checked: u64) -> String {
    if refused == 0 || checked < 2 {
        return message;
    }
    let share = 100.0 * refused as f64 / checked as f64;
    if refused == 1 {
        return format!("{message} (1 of {checked} tasks, {share:.1} %, cannot be played)");
    }
    format!("{message} (the first of {refused} of {checked} tasks, {share:.1} %, that cannot be played)")
}

#[cfg(test)]
mod tests;

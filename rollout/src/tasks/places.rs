//! The places of the tasks of several files, for errors that come after the rows were read.

use std::path::{Path, PathBuf};

use super::rows::{RowPlace, Shard};

/// The file and the number of each task's row. Eight bytes a task: a data set may have millions.
pub(super) struct Places {
    files: Vec<PathBuf>,
    rows: Vec<(u32, u32)>,
    /// True for each file with a row on each line.
    lines: Vec<bool>,
}

impl Places {
    pub(super) fn new(shards: &[Shard]) -> Self {
        Self {
            files: shards.iter().map(|shard| shard.path.clone()).collect(),
            rows: Vec::new(),
            lines: vec![false; shards.len()],
        }
    }

    /// Notes the next task's row. Files come in their order.
    pub(super) fn push(&mut self, path: &Path, place: RowPlace) {
        let last = self.rows.last().map_or(0, |(file, _)| *file as usize);
        let file = (last..self.files.len()).find(|file| self.files.get(*file).is_some_and(|known| known == path));
        let file = file.unwrap_or(last);
        let (number, is_line) = match place {
            RowPlace::Line(line) => (line, true),
            RowPlace::Row(row) => (row, false),
        };
        if let Some(lines) = self.lines.get_mut(file) {
            *lines = is_line;
        }
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        self.rows.push((short(file as u64), short(number)));
    }

    /// Returns the place of a task, by its number among all that were noted.
    pub(super) fn of(&self, item: u64) -> Option<String> {
        let (file, number) = *self.rows.get(usize::try_from(item).ok()?)?;
        let file = file as usize;
        let place = match self.lines.get(file)? {
            true => RowPlace::Line(number.into()),
            false => RowPlace::Row(number.into()),
        };
        Some(place.within(self.files.get(file)?))
    }
}

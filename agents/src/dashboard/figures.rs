//! The figures of metrics files as columns, read as the files grow. The points of a long run are
//! merged, so that its figures take a few MiB however long it is.

mod table;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::run_folder::logs::Growing;
use crate::run_folder::{FolderError, RunFolder};
use table::{Cell, Row, Table};

/// The number of runs with figures in memory.
const KEPT: usize = 2;
/// The most cells of a run; a cell has 32 bytes. When there are more, neighbours are merged.
const MOST: usize = 100_000;

/// The kind of a line, the agent or process that it is about, and the name of the figure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub(crate) struct Key {
    pub(crate) kind: String,
    pub(crate) of: String,
    pub(crate) name: String,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    files: HashMap<PathBuf, Growing>,
    /// By kind, and by agent or process.
    tables: BTreeMap<(String, String), Table>,
}

/// One figure, in points.
#[derive(Debug)]
pub(crate) struct Curve<'a> {
    pub(crate) key: Key,
    rows: &'a [Row],
    cells: &'a [Cell],
}

impl Figures {
    /// Reads what was written since the last call.
    fn extend(&mut self, folder: &RunFolder) -> Result<(), FolderError> {
        let mut files = folder.files("metrics")?;
        files.retain(|path| path.file_stem().is_some_and(|name| name != "summary"));
        // A file that cannot be read now is read at the next call.
        if !files.iter().all(|path| self.read(path).unwrap_or(true)) {
            *self = Self::default();
            for path in &files {
                let _ = self.read(path);
            }
        }
        Ok(())
    }

    /// Reads the new lines of a file. Returns false if the file was replaced or became shorter.
    fn read(&mut self, path: &Path) -> std::io::Result<bool> {
        let process = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut file = self.files.remove(path).unwrap_or_default();
        let read = self.read_from(&mut file, path, &process);
        self.files.insert(path.to_owned(), file);
        read
    }

    fn read_from(&mut self, file: &mut Growing, path: &Path, process: &str) -> std::io::Result<bool> {
        let Some(mut lines) = file.open(path)? else {
            return Ok(false);
        };
        while let Some(line) = lines.next_line()? {
            if let Ok(line) = serde_json::from_slice(line) {
                self.add(process, &line);
            }
        }
        Ok(true)
    }

    fn add(&mut self, process: &str, line: &Map<String, Value>) {
        let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, step) = (text("kind"), line.get("step").and_then(Value::as_u64));
        let of = match kind {
            "train" | "checkpoint" | "discarded" => text("agent"),
            "coordinator" => process,
            _ => "",
        };
        let Some(step) = step else { return };
        let table = self.tables.entry((kind.to_owned(), of.to_owned())).or_default();
        // A coordinator writes a line each second, and many in a step.
        let place = if kind == "coordinator" { table.lines } else { step };
        table.lines += 1;
        table.add(place, step, line);
        while self.tables.values().map(Table::size).sum::<usize>() > MOST {
            let tables = self.tables.values_mut();
            let can_shrink = tables.filter(|table| table.can_shrink());
            match can_shrink.max_by_key(|table| table.size()) {
                Some(table) => table.widen(),
                None => return,
            }
        }
    }

    /// Returns the keys of all figures.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let tables = self.tables.iter();
        tables.flat_map(|((kind, of), table)| table.columns.keys().map(move |name| (&**kind, &**of, &**name)))
    }

    /// Returns a figure.
    pub(crate) fn curve(&self, (kind, of, name): (&str, &str, &str)) -> Option<Curve<'_>> {
        let table = self.tables.get(&(kind.to_owned(), of.to_owned()))?;
        Some(Curve {
            key: Key {
                kind: kind.to_owned(),
                of: of.to_owned(),
                name: name.to_owned(),
            },
            rows: &table.rows,
            cells: table.columns.get(name)?,
        })
    }
}

/// The figures of the runs that were read last.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Vec<(PathBuf, Arc<Mutex<Figures>>)>>);

impl Cache {
    /// Calls `use_them` with the figures of a run, as of now.
    pub(crate) fn with<R>(&self, folder: &RunFolder, use_them: impl FnOnce(&Figures) -> R) -> Result<R, FolderError> {
        let figures = self.entry(folder);
        let mut figures = figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.extend(folder)?;
        Ok(use_them(&figures))
    }

    fn entry(&self, folder: &RunFolder) -> Arc<Mutex<Figures>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|(path, _)| path == folder.path());
        let entry = match known {
            Some(at) => kept.remove(at),
            None => (folder.path().to_owned(), Arc::default()),
        };
        let figures = entry.1.clone();
        kept.push(entry);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
        figures
    }
}

/// A figure in at most so many points. `min` and `max` are present if points were merged: a mean
/// alone would hide spikes.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Thinned {
    #[serde(flatten)]
    pub(crate) key: Key,
    /// The number of points before merging.
    pub(crate) count: u64,
    pub(crate) x: Vec<u64>,
    /// Seconds since the process started.
    pub(crate) t: Vec<Option<f64>>,
    pub(crate) mean: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min: Option<Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<Vec<f64>>,
}

impl Curve<'_> {
    /// Leaves out the points before a step.
    pub(crate) fn since(self, step: u64) -> Self {
        let before = self.rows.partition_point(|row| row.step < step);
        Self {
            rows: &self.rows[before..],
            cells: self.cells.get(before..).unwrap_or_default(),
            ..self
        }
    }

    /// Merges neighbours until at most `most` points are left.
    pub(crate) fn thin(self, most: usize) -> Thinned {
        let filled = self.rows.iter().zip(self.cells).filter(|(_, cell)| cell.count > 0);
        let points: Vec<(Row, Cell)> = filled.map(|(row, cell)| (*row, *cell)).collect();
        let share = points.len().div_ceil(most.max(1)).max(1);
        let join = |a: (Row, Cell), b: (Row, Cell)| (b.0, a.1.and(b.1));
        let parts = points.chunks(share);
        let joined: Vec<(Row, Cell)> = parts.filter_map(|part| part.iter().copied().reduce(join)).collect();
        let is_merged = joined.iter().any(|(_, cell)| cell.count > 1);
        let values = |of: fn(&Cell) -> f64| joined.iter().map(|(_, cell)| of(cell)).collect();
        Thinned {
            key: self.key,
            count: joined.iter().map(|(_, cell)| cell.count).sum(),
            x: joined.iter().map(|(row, _)| row.step).collect(),
            t: joined.iter().map(|(row, _)| row.seconds).collect(),
            mean: values(|cell| cell.sum / cell.count as f64),
            min: is_merged.then(|| values(|cell| cell.min)),
            max: is_merged.then(|| values(|cell| cell.max)),
        }
    }
}

#[cfg(test)]
mod tests;

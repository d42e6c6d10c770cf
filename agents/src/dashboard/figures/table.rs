//! A table of figures: a row for each line, or for several lines that follow each other.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The most places of a row.
const WIDEST: u64 = 1 << 62;

/// The values of a figure in the lines of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) sum: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// The number of values; 0 if these lines do not have the figure.
    pub(super) count: u64,
}

/// Lines that follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    /// The first place of a line in this row, a multiple of the table's width.
    start: u64,
    /// The step and the seconds of the last line.
    pub(super) step: u64,
    pub(super) seconds: Option<f64>,
}

/// The figures of one kind about one agent or process.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
    /// The places of a row, a power of two.
    width: u64,
    /// By name, with a cell for each row. A shorter column has no values in the last rows.
    pub(super) columns: BTreeMap<String, Vec<Cell>>,
    /// The number of lines so far.
    pub(super) lines: u64,
}

impl Cell {
    const EMPTY: Self = Self {
        sum: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        count: 0,
    };

    fn of(value: f64) -> Self {
        Self {
            sum: value,
            min: value,
            max: value,
            count: 1,
        }
    }

    /// Returns the cell with the values of both.
    pub(super) fn and(self, other: Self) -> Self {
        match (self.count, other.count) {
            (0, _) => other,
            (_, 0) => self,
            (a, b) => Self {
                sum: self.sum + other.sum,
                min: self.min.min(other.min),
                max: self.max.max(other.max),
                count: a + b,
            },
        }
    }
}

impl Default for Table {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            width: 1,
            columns: BTreeMap::new(),
            lines: 0,
        }
    }
}

impl Table {
    /// Adds the figures of a line at a place. A step that was trained again after a restart has its
    /// last value; in merged points, both values count.
    pub(super) fn add(&mut self, place: u64, step: u64, line: &Map<String, Value>) {
        let row = Row {
            start: place - place % self.width,
            step,
            seconds: line.get("time/elapsed_s").and_then(Value::as_f64),
        };
        let at = match self.rows.binary_search_by_key(&row.start, |row| row.start) {
            Ok(at) => {
                self.rows[at] = row;
                at
            }
            Err(at) => {
                self.rows.insert(at, row);
                for cells in self.columns.values_mut().filter(|cells| cells.len() > at) {
                    cells.insert(at, Cell::EMPTY);
                }
                at
            }
        };
        for (name, value) in line.iter().filter(|(name, _)| *name != "step") {
            let Some(value) = value.as_f64() else { continue };
            let cells = match self.columns.get_mut(name) {
                Some(cells) => cells,
                None => self.columns.entry(name.clone()).or_default(),
            };
            if cells.len() <= at {
                cells.resize(at + 1, Cell::EMPTY);
            }
            let before = if self.width == 1 { Cell::EMPTY } else { cells[at] };
            cells[at] = before.and(Cell::of(value));
        }
    }

    pub(super) fn size(&self) -> usize {
        self.rows.len() * (self.columns.len() + 1)
    }

    /// Returns true if merging can make the table smaller.
    pub(super) fn can_shrink(&self) -> bool {
        self.rows.len() > 1 && self.width < WIDEST
    }

    /// Merges neighbours: a row gets twice as many places.
    pub(super) fn widen(&mut self) {
        self.width *= 2;
        let start = |row: &Row| row.start - row.start % self.width;
        for cells in self.columns.values_mut() {
            let filled = self.rows.iter().zip(cells.iter());
            *cells = merged(filled.map(|(row, cell)| (start(row), *cell)), Cell::and);
        }
        let rows = self.rows.iter().map(|row| {
            let start = start(row);
            (start, Row { start, ..*row })
        });
        self.rows = merged(rows, |_, last| last);
    }
}

/// Joins neighbours with the same key.
fn merged<T>(parts: impl Iterator<Item = (u64, T)>, join: impl Fn(T, T) -> T) -> Vec<T> {
    let mut joined: Vec<T> = Vec::new();
    let mut before = None;
    for (key, part) in parts {
        let part = match joined.pop_if(|_| before == Some(key)) {
            Some(first) => join(first, part),
            None => part,
        };
        joined.push(part);
        before = Some(key);
    }
    joined
}

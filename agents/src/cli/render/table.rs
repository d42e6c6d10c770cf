//! Columns of text.

use std::fmt::{Display, Formatter};

use crate::stats::Interval;

/// To which side a column's cells are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Rows under headings, each column as wide as its widest cell.
#[derive(Debug, Clone, Default)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    #[must_use]
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            columns: columns
                .iter()
                .map(|(name, align)| ((*name).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// One more column on the right.
    pub fn column(&mut self, name: &str, align: Align) {
        self.columns.push((name.to_owned(), align));
    }

    /// One more row; cells that are missing are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl Display for Table {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let cell = |row: &Vec<String>, at: usize| row.get(at).cloned().unwrap_or_default();
        let width = |at: usize, name: &str| {
            let cells = self.rows.iter().map(|row| cell(row, at).chars().count());
            cells.max().unwrap_or(0).max(name.chars().count())
        };
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, (name, _))| width(at, name))
            .collect();
        let headings = self.columns.iter().map(|(name, _)| name.clone()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let line: Vec<String> = self
                .columns
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(at, ((_, align), width))| match align {
                    Align::Left => format!("{:<width$}", cell(row, at)),
                    Align::Right => format!("{:>width$}", cell(row, at)),
                })
                .collect();
            writeln!(out, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// `0.500 (0.250 to 0.750)`; `-` for none.
#[must_use]
pub fn interval(found: Option<Interval>) -> String {
    found.map_or_else(
        || "-".into(),
        |found| format!("{:.3} ({:.3} to {:.3})", found.mean, found.low, found.high),
    )
}

/// `+0.500 (+0.250 to +0.750)`; `-` for none.
#[must_use]
pub fn difference(found: Option<Interval>) -> String {
    found.map_or_else(
        || "-".into(),
        |found| format!("{:+.3} ({:+.3} to {:+.3})", found.mean, found.low, found.high),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("who", Align::Left), ("n", Align::Right)]);
        table.row(vec!["a".into(), "12".into()]);
        table.row(vec!["long name".into(), "3".into()]);
        table.row(vec!["b".into()]);
        assert_eq!(table.to_string(), "who         n\na          12\nlong name   3\nb\n");
    }
}

//! Columns of text.

use std::fmt::{Display, Formatter};

pub use comfy_table::CellAlignment as Align;
use comfy_table::presets::NOTHING;

use crate::stats::Interval;

/// Rows under headings, each column as wide as its widest cell.
#[derive(Debug, Clone, Default)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    #[must_use]
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(name, align)| ((*name).to_owned(), *align));
        Self {
            columns: columns.collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a column on the right.
    pub fn column(&mut self, name: &str, align: Align) {
        self.columns.push((name.to_owned(), align));
    }

    /// Adds a row. Missing cells are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl Display for Table {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING);
        table.set_header(self.columns.iter().map(|(name, _)| name));
        table.add_rows(&self.rows);
        for (column, (_, align)) in table.column_iter_mut().zip(&self.columns) {
            column.set_padding((0, 2)).set_cell_alignment(*align);
        }
        writeln!(out, "{}", table.trim_fmt())
    }
}

/// Formats an interval as `0.500 (0.250 to 0.750)`, or `-` for `None`.
#[must_use]
pub fn interval(found: Option<Interval>) -> String {
    found.map_or_else(
        || "-".into(),
        |found| format!("{:.3} ({:.3} to {:.3})", found.mean, found.low, found.high),
    )
}

/// Formats an interval with signs, as `+0.500 (+0.250 to +0.750)`, or `-` for `None`.
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

//! The table of `dyad compare`.

use std::collections::BTreeSet;

use super::table::{Align, Table, difference};
use crate::cli::compare::comparison::{Comparison, IntervalUnits};

pub fn render(found: &Comparison) -> String {
    let mut table = Table::new(&[
        ("metric", Align::Left),
        ("a", Align::Right),
        ("b", Align::Right),
        ("b - a", Align::Left),
        ("over", Align::Left),
    ]);
    for row in &found.rows {
        let clear = row.difference.is_some_and(|difference| difference.excludes_zero());
        table.row(vec![
            row.metric.clone(),
            format!("{:.3}", row.a),
            format!("{:.3}", row.b),
            format!("{}{}", difference(row.difference), if clear { " *" } else { "" }),
            row.how.label().to_owned(),
        ]);
    }
    table.row(vec![
        "trained tokens".into(),
        format!("{:.0}", found.trained_tokens.0),
        format!("{:.0}", found.trained_tokens.1),
    ]);
    let mut text = format!("a  {}\nb  {}\n\n{table}\n", found.a.join(" "), found.b.join(" "));
    let hows: BTreeSet<IntervalUnits> = found.rows.iter().map(|row| row.how).collect();
    text += "95% intervals";
    text += if hows.contains(&IntervalUnits::Runs) {
        " over runs, Welch's t"
    } else {
        " over tasks, bootstrap with 10000 resamples of a fixed seed: training with other seeds may differ more"
    };
    text += "; * excludes 0\n";
    if !found.apart.is_empty() {
        text += &format!("on one side only: {}\n", found.apart.join(", "));
    }
    text
}

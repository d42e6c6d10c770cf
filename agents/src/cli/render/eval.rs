//! The tables of `dyad eval`.

use super::table::{Align, Table, interval};
use crate::cli::eval::measure::Measured;

pub fn render(one: &Measured) -> String {
    let score = &one.score;
    let name = one.suite.as_deref().unwrap_or("[eval]");
    let mut text = format!("{name}: {} tasks, greedy", score.tasks);
    if score.samples > 0 {
        text += &format!(
            " and {} samples of each at temperature {}",
            score.samples, one.temperature
        );
    }
    if score.failed > 0 {
        text += &format!("; {} conversations FAILED and are left out", score.failed);
    }
    text.push('\n');
    let mut table = Table::new(&[("figure", Align::Left), ("greedy", Align::Left)]);
    if score.samples > 0 {
        table.column(&format!("avg@{}", score.samples), Align::Left);
        table.column(&format!("maj@{}", score.samples), Align::Left);
    }
    for row in &score.rows {
        let mut cells = vec![row.figure.clone(), interval(row.greedy)];
        if score.samples > 0 {
            cells.extend([interval(row.avg), interval(row.maj)]);
        }
        table.row(cells);
    }
    text += &table.to_string();
    let ks: Vec<usize> = score.rows.iter().flat_map(|row| row.pass.keys().copied()).collect();
    let most = ks.iter().max().copied().unwrap_or(0);
    if most > 1 {
        let mut table = Table::new(&[("", Align::Left)]);
        let ks = crate::stats::repeated::steps(most);
        ks.iter().for_each(|k| table.column(&format!("pass@{k}"), Align::Left));
        for row in score.rows.iter().filter(|row| !row.pass.is_empty()) {
            let cells = ks.iter().map(|k| interval(row.pass.get(k).copied()));
            table.row(std::iter::once(row.figure.clone()).chain(cells).collect());
        }
        text += &format!("\n{table}");
    }
    text
}

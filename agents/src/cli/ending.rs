//! What a person is told at the end of a run.

use std::fmt::Write;

use super::status::{LastMetrics, last_metrics};
use crate::folder::RunFolder;
use crate::report;

/// Makes the report, and prints the figures and where everything is.
pub fn tell(folder: &RunFolder) -> anyhow::Result<()> {
    print!("{}", figures(&report::improvements(folder)?, &last_metrics(folder)?));
    println!("report      {}", report::write(folder)?.display());
    println!("run folder  {}", folder.path().display());
    Ok(())
}

/// A line for each figure, before and after.
#[must_use]
pub fn figures(improvements: &[report::Improvement], last: &LastMetrics) -> String {
    let mut text = String::new();
    for figure in improvements {
        let (first, last) = (figure.first, figure.last);
        let _ = writeln!(text, "{:<24} {first:.3} -> {last:.3}", figure.name);
    }
    if improvements.is_empty() && last.train.is_empty() {
        text.push_str("no batch was trained\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_before_and_after() {
        let figure = report::Improvement {
            name: "reward of a".into(),
            first: 0.0625,
            last: 1.0,
        };
        let text = figures(&[figure], &LastMetrics::default());
        assert_eq!(text, "reward of a              0.062 -> 1.000\n");
        assert_eq!(figures(&[], &LastMetrics::default()), "no batch was trained\n");
    }
}

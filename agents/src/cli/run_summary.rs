//! The summary at the end of a run.

use std::fmt::Write;

use super::last_metrics::{LastMetrics, last_metrics};
use crate::report;
use crate::run_folder::RunFolder;
use crate::run_folder::metrics::MetricsWriter;
use crate::stats::summary;
use crate::stats::summary::MetricChange;

/// Writes the report, then prints the figures and all paths. The figures are kept in
/// `metrics/summary.jsonl`.
pub fn print(folder: &RunFolder) -> anyhow::Result<()> {
    let changes = summary::read(folder)?;
    if !changes.is_empty() {
        let step = folder.config()?.run.train_steps;
        let writer = MetricsWriter::open(&folder.metrics("summary"), None)?;
        writer.write(summary::line(&changes, step));
        writer.flush();
    }
    let last = last_metrics(folder)?;
    if let Some(end) = folder.run_end()?.ended {
        println!("ended       {}: {}", end.time(), end.reason);
    }
    print!("{}", learned(&changes));
    print!("{}", figures(&report::improvements(folder)?, &changes, &last));
    print!("{}", super::render::sequential::lines(folder, &last)?);
    println!("report      {}", report::write(folder)?.display());
    println!("run folder  {}", folder.path().display());
    Ok(())
}

/// Names of the most important figures, which come first and with intervals.
const MEANINGS: [(&str, &str); 5] = [
    ("success", "success"),
    ("solver_first", "solver: right first answers"),
    ("first", "first: right answers"),
    ("second", "second: right answers"),
    ("verifier_balanced", "verifier: right verdicts on its frozen pool"),
];

/// Formats each agent's figures before and after training, on tasks it was not trained on.
#[must_use]
pub fn learned(changes: &[MetricChange]) -> String {
    let known = MEANINGS.iter().filter_map(|(metric, meaning)| {
        let change = changes.iter().find(|change| change.metric == *metric)?;
        Some(((*meaning).to_owned(), change))
    });
    let rewards = changes.iter().filter_map(|change| {
        let agent = change
            .metric
            .strip_prefix("reward/")
            .filter(|rest| !rest.contains('/'))?;
        Some((format!("{agent}: its reward"), change))
    });
    let mut text = String::new();
    for (meaning, change) in known.chain(rewards) {
        let MetricChange {
            before,
            after,
            gain,
            low,
            high,
            tasks,
            ..
        } = change;
        if text.is_empty() {
            text.push_str("before and after training, on the evaluation's tasks:\n");
        }
        let _ = writeln!(
            text,
            "  {meaning:<45} {before:.3} -> {after:.3}  ({gain:+.3}, 95% interval {low:+.3} to {high:+.3}, {tasks} tasks)"
        );
    }
    text
}

/// Formats the other figures, one line each, before and after.
#[must_use]
pub fn figures(improvements: &[report::Improvement], shown: &[MetricChange], last: &LastMetrics) -> String {
    let mut text = String::new();
    let is_main = |metric: &str| metric.starts_with("reward/") || MEANINGS.iter().any(|(main, _)| *main == metric);
    let is_shown = |metric: &str| is_main(metric) && shown.iter().any(|change| change.metric == metric);
    for figure in improvements.iter().filter(|figure| !is_shown(&figure.metric)) {
        let (first, last) = (figure.first, figure.last);
        let _ = writeln!(text, "{:<24} {first:.3} -> {last:.3}", figure.name);
    }
    if improvements.is_empty() && last.train.is_empty() {
        text.push_str(&match last.left {
            0 => "no training batch\n".to_owned(),
            left => format!(
                "no training batch: the {left} samples were of fewer groups than a batch has (train.batch_groups); \
                 run.last_batch = \"train\" trains on them\n"
            ),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_show_before_and_after() {
        let figure = report::Improvement {
            name: "reward of a, training".into(),
            metric: String::new(),
            first: 0.0625,
            last: 1.0,
        };
        let text = figures(&[figure], &[], &LastMetrics::default());
        assert_eq!(text, "reward of a, training    0.062 -> 1.000\n");
        assert_eq!(figures(&[], &[], &LastMetrics::default()), "no training batch\n");
        let left = LastMetrics {
            left: 32,
            ..LastMetrics::default()
        };
        assert!(figures(&[], &[], &left).contains("the 32 samples were of fewer groups"));
    }

    #[test]
    fn evaluated_reward_is_printed_once() {
        let change = MetricChange::of("reward/a", &[(0.0, 1.0), (0.5, 1.0)]).unwrap();
        let figure = report::Improvement {
            name: "reward of a, evaluated".into(),
            metric: "reward/a".into(),
            first: 0.25,
            last: 1.0,
        };
        let shown = std::slice::from_ref(&change);
        assert!(learned(shown).contains("a: its reward"));
        assert_eq!(figures(&[figure], shown, &LastMetrics::default()), "");
    }

    #[test]
    fn main_figures_have_words_an_interval_and_one_line() {
        let change = MetricChange::of("solver_first", &[(0.0, 1.0), (1.0, 1.0), (0.0, 0.0), (0.0, 1.0)]).unwrap();
        let text = learned(std::slice::from_ref(&change));
        assert!(
            text.contains("solver: right first answers                   0.250 -> 0.750  (+0.500, 95% interval -0.419 to +1.419, 4 tasks)"),
            "{text}"
        );
        let figure = |name: &str| report::Improvement {
            name: name.into(),
            metric: name.into(),
            first: 0.25,
            last: 0.75,
        };
        let rest = figures(
            &[figure("solver_first"), figure("approve_rate")],
            &[change],
            &LastMetrics::default(),
        );
        assert_eq!(rest, "approve_rate             0.250 -> 0.750\n");
        assert_eq!(learned(&[]), "");
    }
}

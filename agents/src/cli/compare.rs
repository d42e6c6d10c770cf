//! `dyad compare A B`: compares two runs, or two sets of runs, by their last evaluations.

pub(super) mod comparison;
mod task_content;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::render::compare::render;
use crate::base::fault::Usage;
use crate::report;
use crate::run_folder::RunFolder;
use crate::stats::summary;
use comparison::{Comparison, Side, compare, with_tokens};
use task_content::by_content;

/// Compare two runs or sets of runs by their last evaluations
///
/// Prints differences with 95% intervals.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Two runs: `latest`, ids or folders
    #[arg(value_name = "RUN", num_args = 2, conflicts_with_all = ["a", "b"], required_unless_present_all = ["a", "b"])]
    pub which: Vec<String>,
    /// Runs of the first kind, for example the seeds of one recipe
    #[arg(long, num_args = 1.., value_name = "RUN", requires = "b")]
    pub a: Vec<String>,
    /// Runs of the second kind
    #[arg(long, num_args = 1.., value_name = "RUN", requires = "a")]
    pub b: Vec<String>,
    /// Write the comparison to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Folder that holds the run folders
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
}

pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let (a, b) = match args.which.as_slice() {
        [a, b] => (vec![a.clone()], vec![b.clone()]),
        _ => (args.a.clone(), args.b.clone()),
    };
    if (a.len() == 1) != (b.len() == 1) {
        return Err(
            Usage::new("one run cannot be compared with several: its spread over seeds is unknown")
                .hint("name one run on each side, or at least two on each")
                .into(),
        );
    }
    let side = |which: &[String]| -> anyhow::Result<Side> {
        let folders = which.iter().map(|which| RunFolder::find(&args.runs, which));
        read(&folders.collect::<Result<Vec<_>, _>>()?)
    };
    let comparison = compare(&side(&a)?, &side(&b)?);
    print!("{}", render(&comparison));
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&comparison)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Compares two runs.
///
/// # Errors
/// A run has no evaluation.
pub(super) fn of_two(a: &RunFolder, b: &RunFolder) -> anyhow::Result<Comparison> {
    let side = |folder: &RunFolder| read(std::slice::from_ref(folder));
    Ok(compare(&side(a)?, &side(b)?))
}

fn read(folders: &[RunFolder]) -> anyhow::Result<Side> {
    let mut side = Side {
        runs: Vec::new(),
        last: Vec::new(),
        trained: Vec::new(),
    };
    for folder in folders {
        if side.runs.iter().any(|run| run == folder.run().as_str()) {
            return Err(Usage::new(format!("run {} is named twice on one side", folder.run())).into());
        }
        let last = summary::evaluations(folder)?.into_values().next_back();
        let last = last.with_context(|| format!("run {} has no evaluation: see [eval]", folder.run()))?;
        side.last.push(with_tokens(by_content(last, folder)));
        side.trained.push(report::trained_tokens(folder)?);
        side.runs.push(folder.run().to_string());
    }
    Ok(side)
}

#[cfg(test)]
mod tests {
    use super::comparison::{IntervalUnits, SAID};
    use super::*;
    use crate::stats;
    use crate::stats::summary::Evaluation;
    use std::collections::BTreeMap;

    fn last(tasks: &[(&str, f64)]) -> Evaluation {
        let of = |scale: f64| -> BTreeMap<String, f64> {
            tasks
                .iter()
                .map(|(task, value)| ((*task).to_owned(), value * scale))
                .collect()
        };
        let values = BTreeMap::from([
            ("success".to_owned(), of(1.0)),
            ("tokens/solver".to_owned(), of(10.0)),
            ("tokens/verifier".to_owned(), of(2.0)),
            ("tokens/votes".to_owned(), of(1000.0)),
        ]);
        with_tokens(Evaluation {
            values,
            ..Evaluation::default()
        })
    }

    fn side(last: Vec<Evaluation>) -> Side {
        Side {
            runs: (0..last.len()).map(|index| format!("r{index}")).collect(),
            trained: vec![100.0; last.len()],
            last,
        }
    }

    #[test]
    fn two_runs_with_equal_tasks_are_paired_by_task() {
        let a = side(vec![last(&[("t", 0.0), ("u", 1.0), ("v", 0.0)])]);
        let b = side(vec![last(&[("t", 1.0), ("u", 2.0), ("v", 1.0)])]);
        let found = compare(&a, &b);
        let success = &found.rows[0];
        assert_eq!(
            (success.metric.as_str(), success.how),
            ("success", IntervalUnits::PairedTasks)
        );
        assert_eq!(
            success.difference.map(|d| (d.low, d.mean, d.high)),
            Some((1.0, 1.0, 1.0))
        );
        let said = &found.rows[1];
        assert_eq!((said.metric.as_str(), said.a, said.b), (SAID, 4.0, 16.0));
        assert!(
            render(&found).contains("+1.000 (+1.000 to +1.000) *"),
            "{}",
            render(&found)
        );
        let other = side(vec![last(&[("t", 1.0), ("w", 2.0)])]);
        assert_eq!(compare(&a, &other).rows[0].how, IntervalUnits::OtherTasks);
    }

    #[test]
    fn sets_of_runs_are_compared_over_runs() {
        let set = |values: &[f64]| side(values.iter().map(|value| last(&[("t", *value)])).collect());
        let found = compare(&set(&[1.0, 2.0, 3.0]), &set(&[3.0, 4.0, 5.0]));
        assert_eq!(
            found.rows[0].difference,
            stats::welch(&[1.0, 2.0, 3.0], &[3.0, 4.0, 5.0])
        );
        assert_eq!(found.rows[0].how, IntervalUnits::Runs);
    }
}

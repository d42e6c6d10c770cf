//! `dyad compare A B`: two runs, or two sets of runs, by their last evaluations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use broker::ids::Digest;
use broker::protocol::task::Task;
use clap::Args;
use configs::RunConfig;
use serde::Serialize;

use super::render::table::{Align, Table, difference};
use crate::base::fault::Usage;
use crate::eval::play::Tasks;
use crate::eval::suites::of_suite;
use crate::report;
use crate::run_folder::RunFolder;
use crate::stats::summary;
use crate::stats::summary::Evaluation;
use crate::stats::{self, Interval};

/// Tokens that all roles said per task.
const SAID: &str = "tokens per problem";

/// Compare two runs, or two sets of runs, by their last evaluations: differences with 95% intervals
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Two runs: `latest`, ids, or folders
    #[arg(value_name = "RUN", num_args = 2, conflicts_with_all = ["a", "b"], required_unless_present_all = ["a", "b"])]
    pub which: Vec<String>,
    /// Runs of one kind, such as the seeds of one recipe
    #[arg(long, num_args = 1.., value_name = "RUN", requires = "b")]
    pub a: Vec<String>,
    /// Runs of the other kind
    #[arg(long, num_args = 1.., value_name = "RUN", requires = "a")]
    pub b: Vec<String>,
    /// Write the comparison there, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where run folders are
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
}

/// One side.
struct Side {
    runs: Vec<String>,
    last: Vec<Evaluation>,
    /// Of each run.
    trained: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Comparison {
    a: Vec<String>,
    b: Vec<String>,
    rows: Vec<Row>,
    /// Metrics that only one side has.
    apart: Vec<String>,
    /// Tokens trained on by a run, in the mean.
    trained_tokens: (f64, f64),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    metric: String,
    a: f64,
    b: f64,
    /// b less a.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<Interval>,
    how: How,
}

/// What an interval is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum How {
    /// The same tasks on both sides: a bootstrap of differences.
    PairedTasks,
    /// Other tasks: each side resampled by itself.
    OtherTasks,
    /// Runs: Welch's t.
    Runs,
}

impl How {
    fn told(self) -> &'static str {
        match self {
            Self::PairedTasks => "tasks, paired",
            Self::OtherTasks => "tasks, not the same ones",
            Self::Runs => "runs",
        }
    }
}

pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let (a, b) = match args.which.as_slice() {
        [a, b] => (vec![a.clone()], vec![b.clone()]),
        _ => (args.a.clone(), args.b.clone()),
    };
    if (a.len() == 1) != (b.len() == 1) {
        return Err(
            Usage::new("one run cannot be compared with several: its spread over seeds is not known")
                .hint("name one on each side, or two and more on each")
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

/// With tasks named by what they hold: places in a shuffled source, and names of files, say nothing about another run's. What is not
/// known to be a task of [eval], or of the suite whose figure it is, is this run's own.
fn by_content(mut found: Evaluation, folder: &RunFolder) -> Evaluation {
    let config = folder.config().ok();
    let own = config
        .as_ref()
        .and_then(|config| crate::turn::tasks::eval_tasks(config).ok());
    let own = digests(&own.unwrap_or_default());
    let suites: BTreeMap<&str, BTreeMap<String, String>> = config.iter().flat_map(suites).collect();
    for (figure, values) in &mut found.values {
        let known = of_figure(&suites, figure).unwrap_or(&own);
        let name = |id: String| {
            let known = known.get(&id).cloned();
            known.unwrap_or_else(|| format!("{}/{id}", folder.run()))
        };
        let named = std::mem::take(values).into_iter();
        *values = named.map(|(id, value)| (name(id), value)).collect();
    }
    found
}

/// The digests of each suite that the run plays. One that cannot be read any more has none.
fn suites(config: &RunConfig) -> impl Iterator<Item = (&str, BTreeMap<String, String>)> {
    let played = config.eval.suites.iter();
    let played = played.filter(|(_, suite)| suite.every.is_some_and(|every| every > 0));
    played.map(|(name, suite)| {
        let tasks = of_suite(config, name, suite, None, None).map(|set| set.tasks);
        let tasks = tasks.unwrap_or_else(|error| {
            tracing::warn!("the tasks of suite {name} cannot be read any more, so its figures are not compared task by task: {error:#}");
            Vec::new()
        });
        (name.as_str(), digests(&tasks))
    })
}

/// Those of the suite whose figure this is: its name leads it.
fn of_figure<'a, T>(suites: &'a BTreeMap<&str, T>, figure: &str) -> Option<&'a T> {
    let leads = |name: &str| figure.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    let named = suites.iter().filter(|(name, _)| leads(name));
    named.max_by_key(|(name, _)| name.len()).map(|(_, digests)| digests)
}

/// What each task holds, by its id; tasks that hold the same are counted.
fn digests(tasks: &Tasks) -> BTreeMap<String, String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let digest = |(id, task): &(String, Arc<Task>)| {
        let content = serde_json::json!([task.prompt, task.label, task.metadata]);
        let digest = Digest::of(content.to_string().as_bytes()).to_string();
        let again = seen.entry(digest.clone()).or_default();
        *again += 1;
        (id.clone(), format!("{digest}#{}", *again - 1))
    };
    tasks.iter().map(digest).collect()
}

/// With what all roles said of each task; votes are no part of the conversation.
fn with_tokens(mut found: Evaluation) -> Evaluation {
    let mut said: BTreeMap<String, f64> = BTreeMap::new();
    let of_roles = |name: &str| name.starts_with("tokens/") && name != "tokens/votes";
    for (_, values) in found.values.iter().filter(|(name, _)| of_roles(name)) {
        for (task, tokens) in values {
            *said.entry(task.clone()).or_default() += tokens;
        }
    }
    found.values.retain(|name, _| !name.starts_with("tokens/"));
    if !said.is_empty() {
        found.values.insert(SAID.into(), said);
    }
    found
}

fn compare(a: &Side, b: &Side) -> Comparison {
    let names = |side: &Side| -> BTreeSet<String> {
        let all = side
            .last
            .iter()
            .map(|one| one.values.keys().cloned().collect::<BTreeSet<_>>());
        all.reduce(|some, other| &some & &other).unwrap_or_default()
    };
    let (of_a, of_b) = (names(a), names(b));
    let mut shared: Vec<&String> = of_a.intersection(&of_b).collect();
    shared.sort_by_key(|name| (*name != "success", *name == SAID, !name.starts_with("reward/"), *name));
    Comparison {
        a: a.runs.clone(),
        b: b.runs.clone(),
        rows: shared.into_iter().filter_map(|metric| row(metric, a, b)).collect(),
        apart: of_a.symmetric_difference(&of_b).cloned().collect(),
        trained_tokens: (stats::mean(&a.trained), stats::mean(&b.trained)),
    }
}

fn row(metric: &str, a: &Side, b: &Side) -> Option<Row> {
    let means = |side: &Side| {
        side.last
            .iter()
            .map(|one| one.mean(metric))
            .collect::<Option<Vec<f64>>>()
    };
    let (of_a, of_b) = (means(a)?, means(b)?);
    let (difference, how) = match (a.last.as_slice(), b.last.as_slice()) {
        ([a], [b]) => over_tasks(a.values.get(metric)?, b.values.get(metric)?),
        _ => (stats::welch(&of_a, &of_b), How::Runs),
    };
    Some(Row {
        metric: metric.to_owned(),
        a: stats::mean(&of_a),
        b: stats::mean(&of_b),
        difference,
        how,
    })
}

fn over_tasks(a: &BTreeMap<String, f64>, b: &BTreeMap<String, f64>) -> (Option<Interval>, How) {
    if a.keys().eq(b.keys()) {
        let differences: Vec<f64> = a.values().zip(b.values()).map(|(a, b)| b - a).collect();
        return (stats::paired(&differences), How::PairedTasks);
    }
    let values = |of: &BTreeMap<String, f64>| of.values().copied().collect::<Vec<f64>>();
    (stats::unpaired(&values(a), &values(b)), How::OtherTasks)
}

fn render(found: &Comparison) -> String {
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
            row.how.told().to_owned(),
        ]);
    }
    table.row(vec![
        "trained tokens".into(),
        format!("{:.0}", found.trained_tokens.0),
        format!("{:.0}", found.trained_tokens.1),
    ]);
    let mut text = format!("a  {}\nb  {}\n\n{table}\n", found.a.join(" "), found.b.join(" "));
    let hows: BTreeSet<How> = found.rows.iter().map(|row| row.how).collect();
    text += "95% intervals";
    text += if hows.contains(&How::Runs) {
        " over runs, Welch's t"
    } else {
        " over tasks, bootstrap with 10000 resamples of a fixed seed: other seeds of training may differ more"
    };
    text += "; * excludes 0\n";
    if !found.apart.is_empty() {
        text += &format!("on one side alone: {}\n", found.apart.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn two_runs_are_paired_by_task_where_the_tasks_are_the_same() {
        let a = side(vec![last(&[("t", 0.0), ("u", 1.0), ("v", 0.0)])]);
        let b = side(vec![last(&[("t", 1.0), ("u", 2.0), ("v", 1.0)])]);
        let found = compare(&a, &b);
        let success = &found.rows[0];
        assert_eq!((success.metric.as_str(), success.how), ("success", How::PairedTasks));
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
        assert_eq!(compare(&a, &other).rows[0].how, How::OtherTasks);
    }

    #[test]
    fn sets_of_runs_are_compared_over_runs() {
        let set = |values: &[f64]| side(values.iter().map(|value| last(&[("t", *value)])).collect());
        let found = compare(&set(&[1.0, 2.0, 3.0]), &set(&[3.0, 4.0, 5.0]));
        assert_eq!(
            found.rows[0].difference,
            stats::welch(&[1.0, 2.0, 3.0], &[3.0, 4.0, 5.0])
        );
        assert_eq!(found.rows[0].how, How::Runs);
    }

    /// A run of that id: its evaluation tasks and those of suite `hard` in files of its own, in an order of its own.
    fn run_on(base: &std::path::Path, run: &str, words: [&str; 2]) -> RunFolder {
        let file = |name: &str, lines: String| {
            let path = base.join(format!("{run}-{name}.jsonl"));
            std::fs::write(&path, lines).unwrap();
            format!("jsonl:{}", path.display())
        };
        let line = |word: &str| format!("{{\"prompt\": \"{word}\", \"label\": \"{word}\"}}\n");
        let mut config = crate::run_folder::tests::config_in(base);
        config.eval.source = Some(file("own", line("o9") + &line("o8")));
        let source = file("hard", words.map(line).concat());
        let mut suite = configs::SuiteConfig::on("hard", source);
        suite.every = Some(1);
        config.eval.suites.insert("hard".into(), suite);
        let run = broker::ids::RunId::new(run).unwrap();
        RunFolder::open_or_create(base, &config, run).unwrap()
    }

    #[test]
    fn tasks_of_suites_are_known_by_what_they_hold_as_those_of_eval_are() {
        let base = tempfile::tempdir().unwrap();
        let named = |run: &str, words: [&str; 2]| {
            let folder = run_on(base.path(), run, words);
            let config = folder.config().unwrap();
            let ids = |tasks: &Tasks| {
                tasks
                    .iter()
                    .map(|(id, _)| (id.clone(), 1.0))
                    .collect::<BTreeMap<_, _>>()
            };
            let own = ids(&crate::turn::tasks::eval_tasks(&config).unwrap());
            let hard = ids(&of_suite(&config, "hard", &config.eval.suites["hard"], None, None)
                .unwrap()
                .tasks);
            let pool = BTreeMap::from([("pool/0".to_owned(), 1.0)]);
            let values = [("success", own), ("hard/success", hard), ("hard/avg@4/success", pool)];
            let found = Evaluation {
                values: values.map(|(name, values)| (name.to_owned(), values)).into(),
                ..Evaluation::default()
            };
            by_content(found, &folder).values
        };
        let (one, two, other) = (
            named("one", ["o1", "o2"]),
            named("two", ["o2", "o1"]),
            named("other", ["o1", "o3"]),
        );
        for figure in ["success", "hard/success"] {
            assert!(one[figure].keys().eq(two[figure].keys()), "{figure}: {one:?} {two:?}");
        }
        assert!(!one["hard/success"].keys().eq(other["hard/success"].keys()));
        assert!(one["success"].keys().all(|id| !one["hard/success"].contains_key(id)));
        assert!(
            one["hard/avg@4/success"].contains_key("one/pool/0"),
            "what is not known is the run's own"
        );
    }

    #[test]
    fn the_suite_of_a_figure_leads_it() {
        let suites = BTreeMap::from([("hard", 1), ("harder", 2), ("hard/er", 3)]);
        let of = |figure: &str| of_figure(&suites, figure).copied();
        assert_eq!(of("hard/success"), Some(1));
        assert_eq!((of("harder/success"), of("hard/er/success")), (Some(2), Some(3)));
        assert_eq!((of("success"), of("hard"), of("reward/a")), (None, None, None));
    }
}

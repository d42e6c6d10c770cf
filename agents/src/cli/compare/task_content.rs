//! Names tasks by their content, so that two runs can be compared task by task.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::ids::Digest;
use broker::protocol::task::Task;
use configs::RunConfig;

use crate::eval::play::Tasks;
use crate::eval::suites::of_suite;
use crate::run_folder::RunFolder;
use crate::stats::summary::Evaluation;

/// Names tasks by their content, because positions in a shuffled source and file names differ
/// between runs. A task that is in neither [eval] nor the figure's suite gets a name with the run's
/// id.
pub(super) fn by_content(mut found: Evaluation, folder: &RunFolder) -> Evaluation {
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

/// Returns the digests of each suite that the run plays. A suite that can no longer be read has
/// none.
fn suites(config: &RunConfig) -> impl Iterator<Item = (&str, BTreeMap<String, String>)> {
    let played = config.eval.suites.iter();
    let played = played.filter(|(_, suite)| suite.every.is_some_and(|every| every > 0));
    played.map(|(name, suite)| {
        let tasks = of_suite(config, name, suite, None, None).map(|set| set.tasks);
        let tasks = tasks.unwrap_or_else(|error| {
            tracing::warn!("suite {name} can no longer be read; its figures are not compared task by task: {error:#}");
            Vec::new()
        });
        (name.as_str(), digests(&tasks))
    })
}

/// Returns the entry of the figure's suite: the suite's name is the figure's prefix.
fn of_figure<'a, T>(suites: &'a BTreeMap<&str, T>, figure: &str) -> Option<&'a T> {
    let leads = |name: &str| figure.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    let named = suites.iter().filter(|(name, _)| leads(name));
    named.max_by_key(|(name, _)| name.len()).map(|(_, digests)| digests)
}

/// Returns the digest of each task's content by its id. Equal tasks get a counter.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a run with its evaluation tasks and the tasks of suite `hard` in its own files and
    /// its own order.
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
    fn tasks_of_suites_and_of_eval_are_matched_by_content() {
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
    fn figure_name_begins_with_its_suite() {
        let suites = BTreeMap::from([("hard", 1), ("harder", 2), ("hard/er", 3)]);
        let of = |figure: &str| of_figure(&suites, figure).copied();
        assert_eq!(of("hard/success"), Some(1));
        assert_eq!((of("harder/success"), of("hard/er/success")), (Some(2), Some(3)));
        assert_eq!((of("success"), of("hard"), of("reward/a")), (None, None, None));
    }
}

//! Reads the tasks to play: those of `[eval]`, of `[tasks]`, and suites.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context;
use configs::{EvalConfig, GraderConfig, Problem, RunConfig, SuiteConfig, TasksConfig};
use rollout::tasks::{TaskSource, task_key};
use rollout::workflow::Workflow;

use super::play::Tasks;
use crate::base::fault::Usage;
use crate::turn::task_check;

/// The name of the set of `[tasks]`.
pub const OWN: &str = "[tasks]";

/// Tasks and how they are played.
pub struct Set {
    /// The suite's name; `None` for the tasks of `[eval]`.
    pub name: Option<String>,
    pub tasks: Tasks,
    /// The keys under which pass rates list the tasks, by id.
    pub keys: BTreeMap<String, String>,
    pub workflow: Arc<dyn Workflow>,
    /// The number of sampled conversations per task.
    pub samples: u16,
    /// The temperature of the samples; each agent's own temperature is not used.
    pub temperature: f64,
}

/// Reads the tasks of the run's own evaluations.
///
/// # Errors
/// Fails if the configuration has no tasks for evaluations.
pub fn of_eval(config: &RunConfig, samples: u16, temperature: f64) -> anyhow::Result<Set> {
    let tasks = if has_tasks(config) {
        crate::turn::tasks::eval_tasks(config)?
    } else {
        Vec::new()
    };
    if tasks.is_empty() {
        let problem = "the configuration has no tasks for evaluations";
        return Err(Usage::new(problem)
            .hint("add eval.source = \"jsonl:PATH\"; `dyad eval` also plays a suite: --suite NAME=FILE")
            .into());
    }
    Ok(Set {
        name: None,
        keys: keys(&tasks),
        tasks,
        workflow: build(config)?,
        samples,
        temperature,
    })
}

/// Reads the tasks of `[tasks]`, which are trained on, each once whatever the curriculum: to
/// measure pass rates.
///
/// # Errors
/// Fails if the run has no such tasks, a generator has no limit, or a source cannot be read.
pub fn of_own(config: &RunConfig, samples: u16, temperature: f64) -> anyhow::Result<Set> {
    let own = TasksConfig {
        curriculum: None,
        ..config.tasks.clone()
    };
    let endless = own.source.starts_with("generator:") && own.limit.is_none()
        || own
            .mix
            .iter()
            .any(|one| one.source.starts_with("generator:") && one.limit.is_none());
    if endless {
        let problem = "a generator makes tasks without end, so they cannot each be played once";
        return Err(Usage::new(problem)
            .hint("set tasks.limit (in a mix, limit of the generator's [[tasks.mix]])")
            .into());
    }
    let source = TaskSource::open(&own, config.run.seed)?;
    let Some(mut source) = source else {
        let problem = "tasks.source = \"queue\" has no tasks before they are published";
        return Err(Usage::new(problem).hint("name a suite: --suite NAME=FILE").into());
    };
    let mut seen = BTreeSet::new();
    let (mut tasks, mut keys) = (Vec::new(), BTreeMap::new());
    for task in source.each() {
        let (task, key) = task?;
        let id = apart(&mut seen, task.id.clone().unwrap_or_default(), tasks.len());
        keys.insert(id.clone(), key);
        tasks.push((id, Arc::new(task)));
    }
    Ok(Set {
        name: Some(OWN.to_owned()),
        tasks,
        keys,
        workflow: build(config)?,
        samples,
        temperature,
    })
}

/// The keys of tasks that are unchanged since their rows were read.
fn keys(tasks: &Tasks) -> BTreeMap<String, String> {
    tasks.iter().map(|(id, task)| (id.clone(), task_key(task))).collect()
}

/// Returns the id, or a new one if another task has it: figures are kept by id.
fn apart(seen: &mut BTreeSet<String>, id: String, place: usize) -> String {
    if seen.insert(id.clone()) {
        id
    } else {
        format!("{id}#{place}")
    }
}

/// Returns true if there are tasks that are not trained on.
#[must_use]
pub fn has_tasks(config: &RunConfig) -> bool {
    config.eval.source.is_some() || config.tasks.source.starts_with("generator:")
}

/// Reads a suite, with the replacements of the command line.
///
/// # Errors
/// Fails if a source cannot be read or a grader does not exist.
pub fn of_suite(
    config: &RunConfig,
    name: &str,
    suite: &SuiteConfig,
    samples: Option<u16>,
    temperature: Option<f64>,
) -> anyhow::Result<Set> {
    let tasks = TasksConfig {
        prompt: suite.prompt.clone().unwrap_or(config.tasks.prompt.clone()),
        label: suite.label.clone().unwrap_or(config.tasks.label.clone()),
        id: suite.id.clone(),
        tools: suite.tools_key(&config.tasks),
        shuffle: false,
        ..config.tasks.clone()
    };
    let eval = EvalConfig {
        source: Some(suite.source.clone()),
        slice: suite.slice.clone(),
        filter: suite.filter.clone(),
        tasks: suite.tasks,
        params: suite.params.clone(),
        ..EvalConfig::default()
    };
    let mut source = TaskSource::open_suite(name, &eval, &tasks, config.run.seed)
        .with_context(|| format!("reading the tasks of suite {name}"))?
        .with_context(|| format!("suite {name} has no source"))?;
    let mut tasks = Vec::new();
    let mut seen = BTreeSet::new();
    while let Some((_, task)) = source.next()? {
        let id = task.id.clone().unwrap_or_else(|| tasks.len().to_string());
        tasks.push((apart(&mut seen, id, tasks.len()), Arc::new(task)));
    }
    Ok(Set {
        name: Some(name.to_owned()),
        keys: keys(&tasks),
        tasks,
        workflow: workflow(config, suite).with_context(|| format!("playing suite {name}"))?,
        samples: samples.or(suite.samples).unwrap_or(0),
        temperature: temperature.or(suite.temperature).unwrap_or(1.0),
    })
}

/// Builds the run's workflow with the suite's grader.
///
/// # Errors
/// Fails if the grader does not exist.
pub fn workflow(config: &RunConfig, suite: &SuiteConfig) -> anyhow::Result<Arc<dyn Workflow>> {
    let Some(grader) = &suite.grader else {
        return build(config);
    };
    let mut config = config.clone();
    set_grader(&mut config, grader);
    build(&config)
}

/// Lists the problems of a configuration's suites if their sources exist: each suite once, by key.
#[must_use]
pub fn problems(config: &RunConfig) -> Vec<Problem> {
    let found = config.eval.suites.iter().filter_map(|(name, suite)| {
        let (key, message) = problem(config, name, suite)?;
        let path = format!("eval.suites.{name}.{key}");
        Some(Problem { path, message })
    });
    found.collect()
}

fn problem(config: &RunConfig, name: &str, suite: &SuiteConfig) -> Option<(&'static str, String)> {
    if suite.grader.is_some() && ignores_grader(config) {
        let kind = &config.workflow.kind;
        let message = format!("is ignored: workflow {kind} uses no grader of [graders]; leave it out");
        return Some(("grader", message));
    }
    let set = match of_suite(config, name, suite, None, None) {
        Ok(set) => set,
        Err(error) => return Some(("source", format!("{error:#}"))),
    };
    Some(("source", unplayable(config, &set)?))
}

/// Returns why tasks of a set cannot be played: the first one's reason, and their share.
#[must_use]
pub fn unplayable(config: &RunConfig, set: &Set) -> Option<String> {
    if set.tasks.is_empty() {
        return Some("has no task".into());
    }
    let refused = set.tasks.iter().filter_map(|(id, task)| {
        let judged = task_check::check(config, set.workflow.as_ref(), task);
        Some(format!("task {id} cannot be played: {}", judged.err()?))
    });
    let refused: Vec<String> = refused.collect();
    let (first, count) = (refused.first()?.clone(), refused.len() as u64);
    Some(rollout::tasks::with_share(first, count, set.tasks.len() as u64))
}

/// Returns true if the workflow does not use the grader that its parameters name.
fn ignores_grader(config: &RunConfig) -> bool {
    let mut config = config.clone();
    set_grader(&mut config, "none of ours");
    build(&config).is_ok()
}

/// Sets the workflow's grader: one of `[graders]` by its name, else a kind.
fn set_grader(config: &mut RunConfig, grader: &str) {
    let used = config.workflow.params.get("grader").and_then(toml::Value::as_str);
    let used = used.unwrap_or("correct").to_owned();
    let put = match config.graders.get(grader).or(config.graders.get(&used)).cloned() {
        Some(known) if config.graders.contains_key(grader) => known,
        like => GraderConfig {
            kind: grader.to_owned(),
            ..like.unwrap_or_else(|| GraderConfig::of(grader))
        },
    };
    config.graders.insert(used, put);
}

fn build(config: &RunConfig) -> anyhow::Result<Arc<dyn Workflow>> {
    rollout::workflows::build(&config.workflow, &config.graders, &config.tools)
        .map_err(|problems| crate::base::fault::problems_error(&problems))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(lines: &str) -> (tempfile::TempDir, RunConfig) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tasks.jsonl");
        std::fs::write(&file, lines).unwrap();
        let text = format!(
            "{}\n[eval.suites.aime24]\nsource = \"jsonl:{}\"\n",
            include_str!("../../../configs/arithmetic.toml"),
            file.display()
        );
        let config = RunConfig::parse(&text, Path::new("suites.toml")).unwrap();
        (folder, config)
    }

    #[test]
    fn a_preset_needs_only_its_source() {
        let (_folder, config) =
            config("{\"id\": 60, \"problem\": \"1/2?\", \"answer\": \"0.5\", \"solution\": \"...\"}\n");
        let suite = config.eval.suites.get("aime24").unwrap();
        let set = of_suite(&config, "aime24", suite, None, None).unwrap();
        assert_eq!((set.samples, set.temperature, set.tasks.len()), (32, 0.6, 1));
        let (id, task) = &set.tasks[0];
        assert_eq!(
            (id.as_str(), task.prompt.text(), &task.label),
            ("tasks/0/0", "1/2?", &"0.5".into())
        );
        // The configuration's own grader reads whole numbers only.
        assert!(set.workflow.check_task(task).is_ok());
        assert!(build(&config).unwrap().check_task(task).is_err());
        let set = of_suite(&config, "aime24", suite, Some(2), Some(1.0)).unwrap();
        assert_eq!((set.samples, set.temperature), (2, 1.0));
    }

    #[test]
    fn suite_rows_name_their_tools_if_training_rows_do() {
        let row = r#"{"prompt": "1/2?", "label": "0.5", "use": ["search"], "may": ["visit"]}"#;
        let (_folder, mut config) = config(&format!("{row}\n"));
        config.tasks.tools = Some("use".into());
        let source = config.eval.suites["aime24"].source.clone();
        let mine = SuiteConfig::on("mine", source.clone());
        let offered = |suite: &SuiteConfig| {
            let set = of_suite(&config, "mine", suite, None, None).unwrap();
            let (_, task) = &set.tasks[0];
            ["search", "visit", "fly"].map(|tool| task.offers(tool))
        };
        assert_eq!(offered(&mine), [true, false, false], "as in training");
        let own = SuiteConfig {
            tools: Some("may".into()),
            ..mine.clone()
        };
        assert_eq!(offered(&own), [false, true, false]);
        let other = SuiteConfig {
            label: Some("label".into()),
            ..mine
        };
        assert_eq!(offered(&other), [true; 3], "rows of another file");
        config.tasks.tools = Some("lost".into());
        let error = of_suite(&config, "mine", &SuiteConfig::on("mine", source), None, None).err();
        let error = format!("{:#}", error.unwrap());
        assert!(error.contains("lost") && error.contains("or of [tasks]"), "{error}");
    }

    #[test]
    fn check_reports_problems_of_suites() {
        let said = |config: &RunConfig| -> Vec<String> {
            let found = problems(config).into_iter();
            found
                .map(|problem| format!("{}: {}", problem.path, problem.message))
                .collect()
        };
        let (_folder, mut good) = config("{\"problem\": \"1/2?\", \"answer\": \"0.5\"}\n");
        assert_eq!(said(&good), [""; 0]);
        // The suite's grader cannot read these labels.
        if let Some(suite) = good.eval.suites.get_mut("aime24") {
            suite.grader = Some("integer".into());
        }
        assert!(said(&good)[0].starts_with("eval.suites.aime24.source: task tasks/0/0 cannot be played"));
        let (_folder, empty) = config("");
        assert!(said(&empty)[0].contains("has no task"), "{:?}", said(&empty));
        let (_folder, other) = config("{\"question\": \"1/2?\", \"answer\": \"0.5\"}\n");
        assert!(said(&other)[0].contains("problem"), "{:?}", said(&other));
        // This workflow uses no grader.
        let text = format!(
            "{}\n[eval.suites.mine]\nsource = \"generator:signal\"\ngrader = \"math\"\n",
            include_str!("../../../configs/signal.toml")
        );
        let signal = RunConfig::parse(&text, Path::new("suites.toml")).unwrap();
        assert!(
            said(&signal)[0].starts_with("eval.suites.mine.grader: is ignored"),
            "{:?}",
            said(&signal)
        );
    }

    #[test]
    fn a_generator_s_tasks_are_played_only_up_to_a_limit() {
        let (_folder, mut config) = config("");
        config.tasks.limit = None;
        let error = of_own(&config, 0, 1.0).err().unwrap();
        assert!(error.to_string().contains("a generator makes"), "{error:#}");
        config.tasks.limit = Some(3);
        assert_eq!(of_own(&config, 0, 1.0).unwrap().tasks.len(), 3);
    }

    #[test]
    fn a_grader_is_selected_by_kind_or_name() {
        let (_folder, mut config) = config("");
        set_grader(&mut config, "choice");
        assert_eq!(config.graders["correct"].kind, "choice");
        config
            .graders
            .insert("mine".into(), GraderConfig::of("process:mine.py"));
        set_grader(&mut config, "mine");
        assert_eq!(config.graders["correct"].kind, "process:mine.py");
    }
}

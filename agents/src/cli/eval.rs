//! `dyad eval CONFIG`: the evaluation's tasks and suites, with weights of one's choosing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use broker::AgentName;
use clap::Args;
use configs::{LEAST_TEMPERATURE, RunConfig, SuiteConfig};
use rollout::group::Rules;
use serde::Serialize;

use super::table::{Align, Table, interval};
use crate::base::fault::Usage;
use crate::coordinator::pool::Pool;
use crate::eval::engines::{self, Scratch, Seat};
use crate::eval::pass_rates;
use crate::eval::play::{Manner, Player};
use crate::eval::score::{self, Conversation, Score};
use crate::eval::suites::{self, Set};
use crate::eval::weights::Chosen;
use crate::run_folder::RunFolder;
use crate::run_folder::telemetry;
use crate::run_folder::telemetry::Telemetry;

/// Play evaluation tasks and suites with chosen weights, in one process, without training
///
/// Weights do not change while they are measured. Greedy conversations have the seeds of a run's first evaluation.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// The configuration; without it, that of --run
    #[arg(required_unless_present = "run")]
    pub config: Option<PathBuf>,
    /// Weights of all agents: the newest checkpoints of this run (`latest`, id, folder), or RUN@N, RUN@initial
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Weights of one agent: `initial`, a folder (checkpoint, model, adapter), RUN, RUN@N or RUN@initial
    #[arg(long = "checkpoint", value_name = "AGENT=WHERE")]
    pub checkpoints: Vec<String>,
    /// Sampled conversations of each task, beside the greedy one
    #[arg(long, value_name = "K")]
    pub samples: Option<u16>,
    /// Of the samples (1.0, or the suite's)
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,
    /// A suite of the configuration, or a preset with its file; without it the tasks of [eval] and every suite there is
    #[arg(long = "suite", value_name = "NAME[=FILE]")]
    pub suites: Vec<String>,
    /// Play the run's own tasks, those of [tasks], each once, whatever the curriculum
    #[arg(long)]
    pub own_tasks: bool,
    /// Write how often each task was solved there, for tasks.curriculum
    #[arg(long, value_name = "FILE")]
    pub pass_rates: Option<PathBuf>,
    /// Write every conversation's figures there, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where run folders are
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
}

/// What was measured, for `--json`.
#[derive(Serialize)]
struct Document {
    config: String,
    seed: u64,
    weights: BTreeMap<String, String>,
    intervals: &'static str,
    sets: Vec<Measured>,
}

#[derive(Serialize)]
struct Measured {
    suite: Option<String>,
    temperature: f64,
    score: Score,
    conversations: Vec<Conversation>,
    /// What tasks are known by whatever their ids.
    #[serde(skip)]
    keys: BTreeMap<String, String>,
}

/// The set of the verifier's frozen pool.
const POOL: &str = "pool";

const INTERVALS: &str = "95% over tasks: Wilson's where every task's value is 0 or 1, else Student's t";

pub fn run(args: &EvalArgs) -> anyhow::Result<()> {
    let _telemetry = telemetry::init(Telemetry::of_command("eval"))?;
    let home = args.run.as_deref().map(|run| home(&args.runs, run)).transpose()?;
    let config = match (&args.config, &home) {
        (Some(path), _) => super::check::check(path)?,
        (None, Some(home)) => home.config()?,
        (None, None) => anyhow::bail!("name a configuration or --run RUN"),
    };
    let sets = sets(args, &config)?;
    // Before hours of play: a place that cannot be written.
    let partial = args.pass_rates.as_deref().map(beside);
    for path in [&args.json, &partial].into_iter().flatten() {
        std::fs::File::create(path).with_context(|| format!("writing {}", path.display()))?;
    }
    let own = home.as_ref().filter(|_| args.config.is_none());
    let checkpoints = checkpoints(&args.checkpoints, own);
    let chosen = chosen(&checkpoints, args.run.as_deref(), &args.runs, &config)?;
    let scratch = Scratch::new()?;
    crate::cli::embedded::system().block_on(async {
        let seats = engines::start(&config, &chosen, scratch.path())?;
        for (agent, chosen) in &chosen {
            println!("{agent}: {}", chosen.label);
        }
        let mut measured = Vec::new();
        for set in sets {
            // The pool belongs to the tasks of [eval].
            let pool = if set.name.is_none() {
                pool(&config, home.as_ref())?
            } else {
                None
            };
            let mut found = vec![measure(&config, set, &seats).await?];
            if let Some(pool) = pool {
                found.push(measure_pool(&config, &pool, &seats).await?);
            }
            found.iter().for_each(|one| println!("\n{}", render(one)));
            measured.extend(found);
        }
        println!("{INTERVALS}");
        if let Some((path, partial)) = args.pass_rates.as_ref().zip(partial.as_ref()) {
            let rates = measured
                .iter()
                .flat_map(|one| pass_rates::of(&one.conversations, &one.keys));
            let text = pass_rates::lines(&rates.collect::<Vec<_>>())?;
            // A run may read the file of an earlier measurement: it is whole at any time.
            std::fs::write(partial, text)
                .and_then(|()| std::fs::rename(partial, path))
                .with_context(|| format!("writing {}", path.display()))?;
        }
        let all_failed = measured.iter().all(|one| one.score.rows.is_empty());
        if let Some(path) = &args.json {
            let document = Document {
                config: args
                    .config
                    .as_ref()
                    .map_or_else(String::new, |path| path.display().to_string()),
                seed: config.run.seed,
                weights: chosen
                    .iter()
                    .map(|(agent, one)| (agent.to_string(), one.label.clone()))
                    .collect(),
                intervals: INTERVALS,
                sets: measured,
            };
            std::fs::write(path, serde_json::to_vec_pretty(&document)?)
                .with_context(|| format!("writing {}", path.display()))?;
        }
        anyhow::ensure!(!all_failed, "every conversation failed: the log says why");
        Ok(())
    })
}

/// Where the file is written until it is whole; what is no file (a pipe, a terminal) is written to itself.
fn beside(path: &Path) -> PathBuf {
    if path.exists() && !path.is_file() {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// The run that `RUN`, `RUN@N` or `RUN@initial` is about.
fn home(runs: &Path, text: &str) -> anyhow::Result<RunFolder> {
    let run = match text.rsplit_once('@') {
        Some((run, _)) if !Path::new(text).join("run.json").is_file() => run,
        _ => text,
    };
    Ok(RunFolder::find(runs, run)?)
}

/// `initial`, where it is said of the configuration of a run, is how that run began: with the commits of models that it began with.
fn checkpoints(given: &[String], run: Option<&RunFolder>) -> Vec<String> {
    let meant = |text: &String| match (text.strip_suffix("=initial"), run) {
        (Some(agent), Some(run)) => format!("{agent}={}@initial", run.path().display()),
        _ => text.clone(),
    };
    given.iter().map(meant).collect()
}

/// Each participant's weights: its own `--checkpoint`, else the run's, else as the configuration begins.
pub(super) fn chosen(
    checkpoints: &[String],
    run: Option<&str>,
    runs: &Path,
    config: &RunConfig,
) -> anyhow::Result<BTreeMap<AgentName, Chosen>> {
    let mut given = BTreeMap::new();
    for text in checkpoints {
        let (agent, at) = text
            .split_once('=')
            .ok_or_else(|| Usage::new(format!("--checkpoint {text}: write AGENT=WHERE")))?;
        let known = config.participants().into_iter().find(|name| name.as_str() == agent);
        let names: Vec<String> = config.participants().iter().map(ToString::to_string).collect();
        let agent = known.ok_or_else(|| {
            Usage::new(format!("--checkpoint {text}: no agent {agent} plays a role"))
                .hint(format!("those that do: {}", names.join(", ")))
        })?;
        if given.insert(agent, at).is_some() {
            return Err(Usage::new(format!("--checkpoint {text}: the agent has weights already")).into());
        }
    }
    let mut chosen = BTreeMap::new();
    for agent in config.participants() {
        let text = given.get(&agent).copied().or(run);
        let one = match text {
            Some(text) => Chosen::find(text, runs, config, &agent)?,
            None => Chosen::begins(config, &agent)?,
        };
        chosen.insert(agent, one);
    }
    Ok(chosen)
}

/// Whether samples can be drawn at the temperature that was asked for.
fn sampled_at(temperature: Option<f64>) -> Result<(), Usage> {
    let wrong = match temperature {
        Some(value) if !(value.is_finite() && value > 0.0) => "--temperature is not above 0".to_owned(),
        Some(value) if value < f64::from(LEAST_TEMPERATURE) => {
            format!("--temperature is {value:?}: logits are divided by it, and below {LEAST_TEMPERATURE} they overflow")
        }
        _ => return Ok(()),
    };
    Err(Usage::new(wrong).hint("the greedy conversation is always played; samples need a temperature such as 0.6"))
}

fn sets(args: &EvalArgs, config: &RunConfig) -> anyhow::Result<Vec<Set>> {
    sampled_at(args.temperature)?;
    let suite = |name: &str, suite: &SuiteConfig| suites::of_suite(config, name, suite, args.samples, args.temperature);
    let mut sets = Vec::new();
    if args.own_tasks {
        let (samples, temperature) = (args.samples.unwrap_or(0), args.temperature.unwrap_or(1.0));
        sets.push(suites::of_own(config, samples, temperature)?);
    }
    if args.suites.is_empty() {
        if args.own_tasks {
            return Ok(sets);
        }
        if suites::has_tasks(config) || config.eval.suites.is_empty() {
            let (samples, temperature) = (args.samples.unwrap_or(0), args.temperature.unwrap_or(1.0));
            sets.push(suites::of_eval(config, samples, temperature)?);
        }
        for (name, one) in &config.eval.suites {
            sets.push(suite(name, one)?);
        }
        return Ok(sets);
    }
    let wanted = |text: &String| {
        let (name, file) = text
            .split_once('=')
            .map_or((text.as_str(), None), |(name, file)| (name, Some(file)));
        let configured = config.eval.suites.get(name);
        let source = file.map(|file| {
            if file.contains(':') {
                file.to_owned()
            } else if Path::new(file).is_dir() {
                format!("hf:{file}")
            } else if file.ends_with(".parquet") {
                format!("parquet:{file}")
            } else if file.ends_with(".arrow") {
                format!("arrow:{file}")
            } else {
                format!("jsonl:{file}")
            }
        });
        let one = match (configured, source) {
            (Some(one), None) => one.clone(),
            (Some(one), Some(source)) => SuiteConfig { source, ..one.clone() },
            (None, Some(source)) => SuiteConfig::on(name, source),
            (None, None) => {
                let known: Vec<&str> = config.eval.suites.keys().map(String::as_str).collect();
                let hint = format!(
                    "configured are: {}; a suite of your own is --suite NAME=FILE, with presets for {}",
                    if known.is_empty() {
                        "none".into()
                    } else {
                        known.join(", ")
                    },
                    configs::suites::presets().join(", ")
                );
                return Err(Usage::new(format!("the configuration has no suite {name:?}"))
                    .hint(hint)
                    .into());
            }
        };
        suite(name, &one)
    };
    for text in &args.suites {
        sets.push(wanted(text)?);
    }
    Ok(sets)
}

/// The frozen pool that the run's own evaluations measure a verifier on, once it was chosen.
fn pool(config: &RunConfig, home: Option<&RunFolder>) -> anyhow::Result<Option<Pool>> {
    let Some(home) = home else { return Ok(None) };
    Ok(Pool::open(config, &home.pool())?.filter(Pool::is_chosen))
}

async fn measure(config: &RunConfig, set: Set, seats: &BTreeMap<AgentName, Seat>) -> anyhow::Result<Measured> {
    let rules = Rules::new(&config.workflow, &set.workflow.roles(), Default::default());
    let player = Player::new(config, set.workflow.clone(), seats).of_suite(set.name.clone());
    // The tasks of [eval] are one wave, as in a run's evaluations, and those of a suite are cut as they are there: the same bits.
    let greedy = match set.name {
        None => player.play(&set.tasks, Manner::Greedy).await?,
        Some(_) => player.play_in_chunks(&set.tasks, Manner::Greedy).await?,
    };
    let mut conversations = score::conversations(&rules, &*set.workflow, &greedy, true);
    if set.samples > 0 {
        let manner = Manner::Sampled {
            samples: set.samples,
            temperature: set.temperature as f32,
        };
        let sampled = player.play_in_chunks(&set.tasks, manner).await?;
        conversations.extend(score::conversations(&rules, &*set.workflow, &sampled, false));
    }
    Ok(Measured {
        score: score::score(&conversations, usize::from(set.samples)),
        keys: set.keys,
        suite: set.name,
        temperature: set.temperature,
        conversations,
    })
}

/// The verifier on its pool. As in a run's evaluations: what the workflow measures, and neither rewards nor tokens.
async fn measure_pool(config: &RunConfig, pool: &Pool, seats: &BTreeMap<AgentName, Seat>) -> anyhow::Result<Measured> {
    let workflow = pool.workflow();
    let rules = Rules::new(&config.workflow, &workflow.roles(), Default::default());
    let judge = Player::new(config, workflow.clone(), seats);
    let played = judge.play(&pool.tasks(), Manner::Greedy).await?;
    let mut conversations = score::conversations(&rules, &*workflow, &played, true);
    let kept = |name: &String| name != score::TOKENS && !name.contains('/');
    for one in &mut conversations {
        one.figures.retain(|name, _| kept(name));
    }
    Ok(Measured {
        score: score::score(&conversations, 0),
        suite: Some(POOL.into()),
        temperature: 0.0,
        conversations,
        // Its tasks are answers, which nobody trains on.
        keys: BTreeMap::new(),
    })
}

fn render(one: &Measured) -> String {
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
        text += &format!("; {} conversations FAILED and are in no figure", score.failed);
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

#[cfg(test)]
mod tests {
    use configs::ModelConfig;

    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn samples_are_drawn_at_no_temperature_that_makes_logits_infinite() {
        for good in [None, Some(0.01), Some(0.6), Some(10.0)] {
            assert!(sampled_at(good).is_ok(), "{good:?}");
        }
        for (wrong, says) in [
            (0.0, "not above 0"),
            (f64::NAN, "not above 0"),
            (f64::INFINITY, "not above 0"),
            (1e-38, "is 1e-38: logits are divided by it"),
            (0.009, "below 0.01"),
        ] {
            let said = sampled_at(Some(wrong)).unwrap_err().message;
            assert!(said.contains(says), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_runs_weights_are_of_the_commit_of_the_model_that_it_pinned() {
        let base = tempfile::tempdir().unwrap();
        let mut config = config_in(base.path());
        for agent in config.agents.values_mut() {
            agent.model = ModelConfig::Path("org/model".into());
        }
        let run = RunFolder::create(base.path(), &config, None).unwrap();
        for agent in ["a", "b"] {
            let pin = run.path().join(format!("pinned.{agent}.json"));
            std::fs::write(pin, r#"{"org/model": "aaaa"}"#).unwrap();
        }
        let asked = |given: &[String], run: Option<&str>| {
            let chosen = chosen(given, run, base.path(), &config).unwrap();
            let error = engines::start(&config, &chosen, base.path()).err().unwrap();
            format!("{error:#}")
        };
        let begins = ["a=initial".to_owned(), "b=initial".to_owned()];
        let pinned = checkpoints(&begins, Some(&run));
        for said in [
            asked(&[], Some("latest@initial")),
            asked(&pinned, Some("latest@initial")),
        ] {
            assert!(said.contains("`hf download org/model --revision aaaa`"), "{said}");
        }
        assert_eq!(checkpoints(&begins, None), begins);
        let said = asked(&begins, None);
        assert!(
            said.contains("`hf download org/model`"),
            "a configuration alone: {said}"
        );
    }
}

//! Rejects a run, or one of its processes, that this machine cannot play, before anything starts:
//! models, data sets, files, programs, GPUs or memory are missing.

pub(super) mod files;
pub(super) mod model_folders;

use configs::{AgentName, DeviceName, Problem, RunConfig, SuiteConfig};
use rollout::hub_cache::Cache;
use rollout::tasks::TasksError;
use rollout::workflow::Workflow;
use rollout::workflows::warm::WarmSource;

use super::devices::{self, DeviceReport};
use super::select;
use crate::base::fault::{Usage, problems_error};
use crate::participant;
use crate::policy::memory::Processes;
use crate::run_folder::{RunFolder, connect, models};

/// Time after which a command says that it waits for servers.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

/// Rejects a run that this machine cannot play. `folder` is that of a run that continues.
///
/// # Errors
/// Returns an error that lists everything missing, and what to do.
pub(super) fn require(config: &RunConfig, processes: Processes, folder: Option<&RunFolder>) -> anyhow::Result<()> {
    let cache = Cache::of_environment();
    let config = &without_past_warm_starts(config.clone(), folder);
    let unfit = || {
        let reports = devices::reports(config, processes);
        let files = files::of_tasks(config).into_iter().chain(files::of_agents(config));
        let files = files.chain(taken_ports(config));
        unfit(config, &cache, &reports, files.collect())
    };
    let refused = refusal(config, &cache).or_else(unfit);
    refused.map_or(Ok(()), |usage| Err(anyhow::Error::from(usage)))?;
    require_answers(config)?;
    // The coordinator of a run that continues checks the tasks against those of its beginning.
    folder.map_or_else(|| require_playable(config), |_| Ok(()))
}

/// Rejects a new run if its servers do not answer, before its folder is made.
///
/// # Errors
/// The first server that cannot be reached or refuses the login.
pub(super) fn require_servers(config: &RunConfig) -> anyhow::Result<()> {
    let run = &config.run;
    select::block_on(async {
        let mut probing = std::pin::pin!(connect::probe(&run.broker, &run.state));
        tokio::select! {
            answer = &mut probing => return answer,
            () = tokio::time::sleep(PATIENCE) => {}
        }
        eprintln!("waiting for the message broker and the state store to answer");
        probing.await
    })
}

/// Rejects a new run whose tasks or evaluations the workflow cannot play.
fn require_playable(config: &RunConfig) -> anyhow::Result<()> {
    let built = rollout::workflows::build(&config.workflow, &config.graders, &config.tools);
    let workflow = built.map_err(|problems| problems_error(&problems))?;
    let mut during = config.clone();
    during.eval.suites.retain(|_, suite| is_played(suite));
    let mut problems = unplayable(config, workflow.as_ref());
    problems.extend(crate::eval::suites::problems(&during));
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems_error(&problems)),
    }
}

/// Returns the addresses of HTTP fronts that other processes have.
fn taken_ports(config: &RunConfig) -> Vec<Problem> {
    let fronts = config.agents.iter().filter_map(|(name, agent)| {
        let address = agent.http.as_ref()?.address()?;
        let error = std::net::TcpListener::bind(address).err()?;
        Some(Problem {
            path: format!("agents.{name}.http.listen"),
            message: format!("{address} cannot be used: {error}"),
        })
    });
    fronts.collect()
}

/// Returns a problem for each source of the run's own tasks that the workflow cannot play, and for
/// each warm start without examples.
pub(super) fn unplayable(config: &RunConfig, workflow: &dyn Workflow) -> Vec<Problem> {
    let tasks = crate::turn::tasks::problems(config, workflow).into_iter();
    let tasks = tasks.map(|(key, error)| of_data(key, error, ""));
    let warm_starts = config.agents.iter().filter_map(|(name, agent)| {
        let warm = agent.train.warm_start.as_ref()?;
        let opened = WarmSource::open(warm, &config.workflow, &config.graders, &config.tasks, config.run.seed);
        Some(of_data(
            "warm_start.source",
            opened.err()?,
            &format!("agents.{name}.train."),
        ))
    });
    tasks.chain(warm_starts).collect()
}

/// Returns the problem with a source of tasks or examples that the setting `key` of `table` names.
fn of_data(key: &str, error: TasksError, table: &str) -> Problem {
    let (key, message) = match error {
        TasksError::Config { key, message } => (key, message),
        other => (key.to_owned(), with_cause(&other)),
    };
    Problem {
        path: format!("{table}{key}"),
        message,
    }
}

/// Formats the error with its cause.
fn with_cause(error: &TasksError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Rejects an agent if this machine does not have its model, adapter, templates, programs or
/// device. `folder` is the run's, if it exists.
///
/// # Errors
/// Returns an error that lists everything missing, and what to do.
pub(super) fn require_agent(config: &RunConfig, name: &AgentName, folder: Option<&RunFolder>) -> anyhow::Result<()> {
    let cache = Cache::of_environment();
    let own = alone(config, name, folder);
    let device = config.agents.get(name).map(|agent| agent.device);
    // The other devices of its trainer belong to processes of their own.
    let is_its = |place: DeviceName| Some(place) == device || place == DeviceName::Cpu;
    let unfit = || {
        let reports = devices::reports_of(&own, Processes::Each, is_its);
        unfit(&own, &cache, &reports, files::of_agents(&own))
    };
    let refused = refusal(&own, &cache).or_else(unfit);
    refused.map_or(Ok(()), |usage| Err(usage.into()))
}

/// Returns the configuration with one agent only and no tasks.
fn alone(config: &RunConfig, name: &AgentName, folder: Option<&RunFolder>) -> RunConfig {
    let mut own = config.clone();
    own.agents.retain(|other, _| other == name);
    own.tasks = own.tasks.on("queue".into());
    own.eval.source = None;
    own.eval.suites.clear();
    without_past_warm_starts(own, folder)
}

/// Removes the warm starts that are not made any more: their weights exist, or the agent plays an
/// earlier opponent.
fn without_past_warm_starts(mut config: RunConfig, folder: Option<&RunFolder>) -> RunConfig {
    for (name, agent) in &mut config.agents {
        let is_made = folder.is_some_and(|folder| folder.initial(name).is_dir());
        if is_made || agent.past.is_some() {
            agent.train.warm_start = None;
        }
    }
    config
}

/// Rejects a coordinator if its data sets, programs or judges cannot be used on this machine.
///
/// # Errors
/// Returns an error that lists everything missing, and what to do.
pub(super) fn require_coordinator(config: &RunConfig) -> anyhow::Result<()> {
    let cache = Cache::of_environment();
    let mut own = config.clone();
    own.agents.clear();
    let refused = refusal(&own, &cache).or_else(|| unfit(&own, &cache, &[], files::of_tasks(&own)));
    refused.map_or(Ok(()), |usage| Err(anyhow::Error::from(usage)))?;
    require_answers(config)
}

/// Rejects programs, tools and judges that cannot answer.
fn require_answers(config: &RunConfig) -> anyhow::Result<()> {
    let mut problems = match rollout::workflows::build(&config.workflow, &config.graders, &config.tools) {
        Err(problems) => problems,
        Ok(workflow) => {
            let tools = workflow.tools();
            let servers = participant::check_servers(&tools).into_iter();
            let servers = servers.map(|(name, message)| Problem {
                path: format!("tools.{name}.kind"),
                message,
            });
            servers.chain(participant::check_programs(config)).collect()
        }
    };
    problems.extend(participant::check_judges(config));
    if problems.is_empty() {
        return Ok(());
    }
    Err(problems_error(&problems))
}

/// Returns an error that lists missing or damaged model folders, missing files and devices, and
/// devices that are too small.
fn unfit(config: &RunConfig, cache: &Cache, reports: &[DeviceReport], files: Vec<Problem>) -> Option<Usage> {
    let found = models::found(config, cache).into_iter();
    let folders = found.filter_map(|one| Some(format!("{}: {}", one.key, one.folder.err()?)));
    let files = model_folders::damaged(config, cache).into_iter().chain(files);
    let files = files.map(|one| format!("{}: {}", one.path, one.message));
    let devices = reports.iter().filter_map(DeviceReport::problem);
    let problems: Vec<String> = folders.chain(files).chain(devices).collect();
    if problems.is_empty() {
        return None;
    }
    let usage = Usage::new(format!("the run was not started:\n  {}", problems.join("\n  ")));
    Some(
        usage
            .hint("correct the configuration; `dyad doctor CONFIG` lists what this machine has and what the run needs"),
    )
}

fn refusal(config: &RunConfig, cache: &Cache) -> Option<Usage> {
    let missing = missing(config, cache);
    if missing.is_empty() {
        return None;
    }
    let keys: Vec<&str> = missing.iter().map(|(key, _)| key.as_str()).collect();
    let mut commands: Vec<&str> = Vec::new();
    for (_, command) in &missing {
        if !commands.contains(&command.as_str()) {
            commands.push(command);
        }
    }
    let usage = Usage::new(format!(
        "the run was not started: {}: neither a folder here nor in the Hugging Face cache {}",
        keys.join(", "),
        cache.folder().display()
    ));
    let hint = format!(
        "correct the path, or download from the Hub, which dyad does not do itself:\n{}",
        commands.join("\n")
    );
    Some(usage.hint(hint))
}

/// Returns the key and the download command of each missing model and data set.
pub(super) fn missing(config: &RunConfig, cache: &Cache) -> Vec<(String, String)> {
    let data_sets = played(config)
        .into_iter()
        .filter_map(|(key, source)| Some((key, rollout::tasks::download(source, cache)?)));
    models::downloads(config, cache).into_iter().chain(data_sets).collect()
}

/// Returns the sets of tasks that a run reads: only `dyad eval` plays the other suites.
fn played(config: &RunConfig) -> Vec<(String, &str)> {
    sources(config, is_played)
}

fn is_played(suite: &SuiteConfig) -> bool {
    suite.every.is_some_and(|every| every > 0)
}

/// Returns the key and source of every set of tasks in the configuration; suites are filtered by
/// `wanted`.
pub(super) fn sources(config: &RunConfig, wanted: impl Fn(&SuiteConfig) -> bool) -> Vec<(String, &str)> {
    let mut all = vec![("tasks.source".to_owned(), config.tasks.source.as_str())];
    let mix = config.tasks.mix.iter().enumerate();
    all.extend(mix.map(|(index, one)| (format!("tasks.mix.{index}.source"), one.source.as_str())));
    let eval = config.eval.source.iter();
    all.extend(eval.map(|source| ("eval.source".to_owned(), source.as_str())));
    let suites = config.eval.suites.iter().filter(|(_, suite)| wanted(suite));
    all.extend(suites.map(|(name, suite)| (format!("eval.suites.{name}.source"), suite.source.as_str())));
    all
}

#[cfg(test)]
mod tests;

//! Files and programs that a configuration names and this machine does not have.

use std::path::Path;

use broker::local::process::find_binary;
use configs::{AgentConfig, AgentName, Problem, RunConfig};

/// Returns a problem for each missing file that a coordinator reads.
pub(super) fn of_tasks(config: &RunConfig) -> Vec<Problem> {
    let sources = super::played(config).into_iter();
    let mut missing: Vec<Problem> = sources.filter_map(|(key, source)| of_source(key, source)).collect();
    let rates = config
        .tasks
        .curriculum
        .as_ref()
        .map(|curriculum| &curriculum.pass_rates);
    missing.extend(rates.and_then(|path| no_file("tasks.curriculum.pass_rates".into(), path)));
    missing
}

/// Returns a problem for each missing file or program of the agents.
pub(in crate::cli) fn of_agents(config: &RunConfig) -> Vec<Problem> {
    let agents = config.agents.iter();
    agents.flat_map(|(name, agent)| of_agent(name, agent)).collect()
}

fn of_agent(name: &AgentName, agent: &AgentConfig) -> impl Iterator<Item = Problem> {
    let key = |key: &str| format!("agents.{name}.{key}");
    let adapter = agent.lora.as_ref().and_then(|lora| lora.path.as_ref());
    let adapter = adapter.filter(|path| !path.is_dir()).map(|path| Problem {
        path: key("lora.path"),
        message: format!(
            "there is no folder {}: name the folder of an adapter that PEFT or a checkpoint wrote",
            path.display()
        ),
    });
    let template = agent.chat_template.as_ref();
    let template = template.and_then(|path| no_file(key("chat_template"), path));
    let warm = agent.train.warm_start.as_ref();
    let warm = warm.and_then(|warm| of_source(key("train.warm_start.source"), &warm.source));
    let program = agent.train.command.first().filter(|word| !is_program(word));
    let program = program.map(|word| Problem {
        path: key("train.command"),
        message: format!("{word:?} is neither a program on PATH nor a file here: install it, or correct its path"),
    });
    [adapter, template, warm, program].into_iter().flatten()
}

fn of_source(path: String, source: &str) -> Option<Problem> {
    let message = rollout::tasks::locate(source).err()?;
    Some(Problem { path, message })
}

fn no_file(key: String, path: &Path) -> Option<Problem> {
    (!path.is_file()).then(|| Problem {
        path: key,
        message: format!(
            "there is no file {}: paths count from the working directory",
            path.display()
        ),
    })
}

/// Returns true if a command may begin with this word.
fn is_program(word: &str) -> bool {
    match word.contains('/') {
        true => Path::new(word).is_file(),
        false => find_binary(&[], word).is_some(),
    }
}

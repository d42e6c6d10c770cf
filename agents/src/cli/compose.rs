//! `dyad compose CONFIG`: the containers of a configuration, for docker compose.

mod service;

use std::path::{Path, PathBuf};

use clap::Args;
use configs::{AgentName, DeviceName, EngineKind, ModelConfig, RunConfig};

use crate::base::fault::Usage;
use service::{Engine, Service};

/// Print the services of a configuration for docker compose
///
/// Write it to compose.override.yaml, which docker compose reads after compose.yaml. Each agent
/// becomes a service, as does each engine of kind dyad or vllm whose URL names one.
#[derive(Debug, Args)]
pub struct ComposeArgs {
    /// The run's configuration; its folder is mounted as /configs
    pub config: PathBuf,
    /// Give each agent and engine that computes on a GPU one of its own
    #[arg(long)]
    pub gpus: bool,
}

pub fn run(args: &ComposeArgs) -> anyhow::Result<()> {
    let config = super::check::check(&args.config)?;
    let path = args.config.canonicalize()?;
    let here = std::env::current_dir()?;
    print!("{}", file(&config, &Place::of(&path, &here), args.gpus)?);
    Ok(())
}

/// The place of a configuration on the host and in its containers.
struct Place {
    /// The mounted folder.
    folder: String,
    /// The file in the container.
    file: String,
}

impl Place {
    /// Places a file in the folder `configs` of the working directory, or of the container in which
    /// this command runs, as compose.yaml mounts it. The folder of another file is mounted itself.
    fn of(path: &Path, here: &Path) -> Self {
        let shipped = [here.join("configs"), PathBuf::from("/configs")];
        let within = shipped.iter().find_map(|folder| path.strip_prefix(folder).ok());
        let parent = path.parent().unwrap_or(Path::new("/"));
        let (folder, file) = match within {
            Some(file) => ("./configs".to_owned(), file.display().to_string()),
            None => {
                let file = path.file_name().unwrap_or_default();
                (parent.display().to_string(), Path::new(file).display().to_string())
            }
        };
        Self {
            folder,
            file: format!("/configs/{file}"),
        }
    }
}

/// Returns the file, or all reasons why containers cannot play the configuration.
fn file(config: &RunConfig, place: &Place, gpus: bool) -> anyhow::Result<String> {
    let problems = problems(config, gpus);
    if !problems.is_empty() {
        let message = format!(
            "containers cannot play this configuration:\n  {}",
            problems.join("\n  ")
        );
        return Err(Usage::new(message).into());
    }
    let mut services = vec![Service::coordinator(config)];
    for name in ["a", "b"] {
        if !config.participants().iter().any(|agent| agent.as_str() == name) {
            services.push(Service::unused(name));
        }
    }
    for name in config.participants() {
        let agent = &config.agents[&name];
        services.push(Service::agent(&name, agent));
        services.extend(engines(config, &name).map(|engine| Service::engine(&name, agent, engine)));
    }
    Ok(service::render(&services, config, place, gpus))
}

/// Returns the engines of an agent that become services: those whose URL names a host without dots.
fn engines<'a>(config: &'a RunConfig, name: &AgentName) -> impl Iterator<Item = Engine> + use<'a> {
    let settings = &config.agents[name].engine;
    let ours = matches!(settings.kind, EngineKind::Dyad | EngineKind::Vllm);
    let urls = settings.urls.iter().filter(move |_| ours);
    urls.filter_map(|url| Engine::read(url))
        .filter(|engine| !engine.host.contains('.'))
}

fn problems(config: &RunConfig, gpus: bool) -> Vec<String> {
    let participants = config.participants();
    let agents = participants.iter().map(|name| (name, &config.agents[name]));
    let mut problems = Vec::new();
    let mut on_gpu = false;
    for (name, agent) in agents {
        match agent.device {
            DeviceName::Cpu => {}
            DeviceName::Cuda(0) => on_gpu = true,
            device @ DeviceName::Cuda(_) => problems.push(format!(
                "agents.{name}.device is {device}: each container sees one GPU, so write \"cuda:0\" for every agent"
            )),
        }
        let engine = &agent.engine;
        on_gpu |= engine.kind == EngineKind::Vllm && engines(config, name).next().is_some();
        for url in &engine.urls {
            if Engine::read(url).is_some_and(|engine| engine.is_loopback()) {
                problems.push(format!(
                    "agents.{name}.engine.urls has {url}: a container reaches others by name, so write \
                     \"http://engine-{name}:8101\""
                ));
            }
        }
        let fetches = engine.kind == EngineKind::Dyad && engines(config, name).next().is_some();
        if fetches && engine.weights_url.is_none() {
            problems.push(format!(
                "agents.{name}.engine.weights_url is not set: its engine fetches weights over the network, so write \
                 weights_listen = \"0.0.0.0:8100\" and weights_url = \"http://agent-{name}:8100\""
            ));
        }
    }
    if on_gpu && !gpus {
        problems.push("an agent or its engine computes on a GPU: add --gpus".into());
    }
    if gpus && !on_gpu {
        problems.push("no agent computes on a GPU: write device = \"cuda:0\", or leave out --gpus".into());
    }
    problems
}

/// Returns true if the model is a name of the Hugging Face Hub.
fn is_of_hub(model: &ModelConfig) -> bool {
    matches!(model, ModelConfig::Path(path) if !path.is_absolute() && !path.is_dir())
}

#[cfg(test)]
mod tests;

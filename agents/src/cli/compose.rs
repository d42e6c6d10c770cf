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
/// becomes a service. So does each engine of kind dyad or vllm with a URL that names a service.
#[derive(Debug, Args)]
pub struct ComposeArgs {
    /// The run's configuration; its folder is mounted as /configs
    pub config: PathBuf,
    /// Give each agent and engine its own GPUs, as many as it computes on
    #[arg(long)]
    pub gpus: bool,
}

pub fn run(args: &ComposeArgs) -> anyhow::Result<()> {
    let config = super::check::check(&args.config)?;
    let path = args.config.canonicalize().map_err(|error| {
        Usage::new(format!("cannot mount {}: {error}", args.config.display()))
            .hint("`dyad init NAME` copies a shipped configuration here")
    })?;
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
    /// Places a file in the folder `configs` of the working directory as compose.yaml mounts it.
    /// The folder of another file is mounted itself.
    fn of(path: &Path, here: &Path) -> Self {
        let within = path.strip_prefix(here.join("configs")).ok();
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

/// Returns the file.
fn file(config: &RunConfig, place: &Place, gpus: bool) -> anyhow::Result<String> {
    let (config, changes) = contained(config);
    let on_gpu = config.participants().iter().any(|name| {
        let agent = &config.agents[name];
        let vllm = agent.engine.kind == EngineKind::Vllm && engines(&config, name).next().is_some();
        agent.device != DeviceName::Cpu || vllm
    });
    match (on_gpu, gpus) {
        (true, false) => return Err(Usage::new("an agent or its engine computes on a GPU: add --gpus").into()),
        (false, true) => {
            let message = "no agent computes on a GPU: write device = \"cuda:0\", or leave out --gpus";
            return Err(Usage::new(message).into());
        }
        _ => {}
    }
    let problems = problems(&config);
    if !problems.is_empty() {
        let message = format!(
            "containers cannot play this configuration:\n  {}",
            problems.join("\n  ")
        );
        return Err(Usage::new(message).into());
    }
    let mut services = vec![Service::coordinator(&config)];
    for name in ["a", "b"] {
        if !config.participants().iter().any(|agent| agent.as_str() == name) {
            services.push(Service::unused(name));
        }
    }
    for name in config.participants() {
        let agent = &config.agents[&name];
        services.push(Service::agent(&name, agent));
        services.extend(engines(&config, &name).map(|engine| Service::engine(&name, agent, engine)));
    }
    unite(&mut services)?;
    Ok(service::render(&services, &config, &changes, place, gpus))
}

/// Unites equal services: a vLLM server of several adapters.
fn unite(services: &mut Vec<Service>) -> anyhow::Result<()> {
    let mut seen: Vec<Service> = Vec::new();
    for service in std::mem::take(services) {
        let taken = ["rabbitmq", "redis"].contains(&service.name.as_str());
        match seen.iter().find(|other| other.name == service.name) {
            Some(same) if *same == service => {}
            None if !taken => seen.push(service),
            _ => {
                let message = format!("two services would be called {}", service.name);
                return Err(Usage::new(message)
                    .hint("give each engine its own host name in engine.urls; agents that share a server need the same settings")
                    .into());
            }
        }
    }
    *services = seen;
    Ok(())
}

/// Returns the reasons why containers cannot play a configuration.
fn problems(config: &RunConfig) -> Vec<String> {
    let mut problems = Vec::new();
    for name in config.participants() {
        let agent = &config.agents[&name];
        let local = agent
            .engine
            .urls
            .iter()
            .find(|url| Engine::read(url).is_some_and(|engine| engine.is_loopback()));
        if let Some(url) = local {
            problems.push(format!(
                "agents.{name}.engine.urls has {url}, which is the container itself: write the address of the server's host"
            ));
        }
        if let ModelConfig::Path(path) = &agent.model
            && path.is_relative()
            && path.is_dir()
        {
            problems.push(format!(
                "agents.{name}.model.path is the folder {}: write its absolute path",
                path.display()
            ));
        }
    }
    // compose.yaml mounts the folder configs.
    let relative = |source: &str| {
        let path = source.split_once(':').map(|(_, path)| path)?;
        let is_file = ["jsonl:", "parquet:", "arrow:"]
            .iter()
            .any(|kind| source.starts_with(kind));
        (is_file && !path.starts_with('/') && !path.starts_with("configs/")).then(|| path.to_owned())
    };
    let sources = super::host_check::sources(config, |_| true).into_iter();
    let relative = sources.filter_map(|(key, source)| Some((key, relative(source)?)));
    problems.extend(relative.map(|(key, path)| format!("{key} is {path}: move it below configs/, which is mounted")));
    problems
}

/// Returns the configuration as containers can play it, and its changes as options. Each container
/// sees only its own GPUs, from `cuda:0`, and reaches others by name instead of on loopback.
fn contained(config: &RunConfig) -> (RunConfig, Vec<String>) {
    let (mut config, mut changes) = (config.clone(), Vec::new());
    for name in config.participants() {
        let Some(agent) = config.agents.get_mut(&name) else {
            continue;
        };
        let mut change =
            |key: &str, value: &dyn std::fmt::Display| changes.push(format!("agents.{name}.{key}={value}"));
        let seen = service::gpus(agent);
        let inside = |device: DeviceName| match seen.iter().position(|gpu| *gpu == device) {
            Some(index) => DeviceName::Cuda(index),
            None => device,
        };
        if inside(agent.device) != agent.device {
            agent.device = inside(agent.device);
            change("device", &format!("\"{}\"", agent.device));
        }
        let devices: Vec<DeviceName> = agent.train.devices.iter().copied().map(inside).collect();
        if devices != agent.train.devices {
            let names: Vec<String> = devices.iter().map(ToString::to_string).collect();
            change("train.devices", &toml::Value::from(names));
            agent.train.devices = devices;
        }
        let engine = &mut agent.engine;
        let mut moved = false;
        for (index, url) in engine.urls.iter_mut().enumerate() {
            let ours = matches!(engine.kind, EngineKind::Dyad | EngineKind::Vllm);
            if let Some(local) = Engine::read(url).filter(|engine| ours && engine.is_loopback()) {
                let suffix = if index == 0 { String::new() } else { format!("-{index}") };
                *url = format!("http://engine-{name}{suffix}:{}", local.port);
                moved = true;
            }
        }
        if moved {
            change("engine.urls", &toml::Value::from(engine.urls.clone()));
        }
        if moved && engine.kind == EngineKind::Dyad && engine.weights_url.is_none() {
            engine.weights_listen = "0.0.0.0:8100".into();
            engine.weights_url = Some(format!("http://agent-{name}:8100"));
            change("engine.weights_listen", &"\"0.0.0.0:8100\"");
            change("engine.weights_url", &format!("\"http://agent-{name}:8100\""));
        }
    }
    (config, changes)
}

/// Returns the engines of an agent that become services: their URLs name hosts without dots.
fn engines<'a>(config: &'a RunConfig, name: &AgentName) -> impl Iterator<Item = Engine> + use<'a> {
    let settings = &config.agents[name].engine;
    let ours = matches!(settings.kind, EngineKind::Dyad | EngineKind::Vllm);
    let urls = settings.urls.iter().filter(move |_| ours);
    urls.filter_map(|url| Engine::read(url))
        .filter(|engine| !engine.host.contains('.'))
}

/// Returns true if the model is a name of the Hugging Face Hub.
fn is_of_hub(model: &ModelConfig) -> bool {
    matches!(model, ModelConfig::Path(path) if !path.is_absolute() && !path.is_dir())
}

#[cfg(test)]
mod tests;

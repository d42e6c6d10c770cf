//! `dyad compose CONFIG`: the containers of a configuration, for docker compose.

mod paths;
mod render;
mod servers;
mod service;

use std::path::{Path, PathBuf};

use clap::Args;
use configs::{AgentName, DeviceName, EngineKind, ModelConfig, RunConfig};

use super::shipped;
use crate::base::fault::Usage;
use service::{Engine, Named, Service};

/// Print the services of a configuration for docker compose
///
/// Write it to compose.override.yaml, which docker compose reads after compose.yaml. Each agent
/// becomes a service. So does each engine of kind dyad or vllm with a URL that names a service.
#[derive(Debug, Args)]
pub struct ComposeArgs {
    /// The run's configuration, or the name of one in configs/; its folder is mounted as /configs
    pub config: PathBuf,
    /// Give each agent and engine its own GPUs, as many as it computes on
    #[arg(long)]
    pub gpus: bool,
}

pub fn run(args: &ComposeArgs) -> anyhow::Result<()> {
    let here = std::env::current_dir()?.canonicalize()?;
    let path = mountable(&args.config, shipped::folder().ok().as_deref(), &here)?;
    let config = super::check::check(&path)?;
    let path = path
        .canonicalize()
        .map_err(|error| Usage::new(format!("cannot mount {}: {error}", args.config.display())))?;
    let place = Place::of(&args.config, &path, &here);
    print!("{}", file(&config, &place, args.gpus)?);
    Ok(())
}

/// Returns the file that `given` means. A shipped one must be where compose.yaml mounts it.
fn mountable(given: &Path, folder: Option<&Path>, here: &Path) -> Result<PathBuf, Usage> {
    let own = here.join("configs").join(format!("{}.toml", given.display()));
    if !here.join(given).exists() && given.components().count() == 1 && own.is_file() {
        return Ok(own);
    }
    let file = shipped::resolve(given.to_owned(), folder, here).map_err(Usage::new)?;
    let mounted = |file: &Path| {
        file.canonicalize()
            .is_ok_and(|file| file.starts_with(here.join("configs")))
    };
    if file == given || mounted(&file) {
        return Ok(file);
    }
    let name = given.display();
    let message = format!("{name} is a shipped configuration, and docker compose mounts files of this folder only");
    Err(Usage::new(message).hint(format!(
        "`dyad init {name}` copies it here; then `dyad compose {name}.toml`"
    )))
}

/// The place of a configuration on the host and in its containers.
struct Place {
    /// The configuration as the user named it.
    given: String,
    /// The mounted folder; none for the folder `configs` that compose.yaml mounts.
    folder: Option<String>,
    /// The file in the container.
    file: String,
}

impl Place {
    /// Places a file in the folder `configs` of the working directory as compose.yaml mounts it.
    /// The folder of another file is mounted itself.
    fn of(given: &Path, path: &Path, here: &Path) -> Self {
        let within = path.strip_prefix(here.join("configs")).ok();
        let parent = path.parent().unwrap_or(Path::new("/"));
        let (folder, file) = match within {
            Some(file) => (None, file),
            None => (
                Some(parent.display().to_string()),
                Path::new(path.file_name().unwrap_or_default()),
            ),
        };
        Self {
            given: given.display().to_string(),
            folder,
            file: format!("/configs/{}", file.display()),
        }
    }
}

/// Returns the file.
fn file(config: &RunConfig, place: &Place, gpus: bool) -> anyhow::Result<String> {
    let (config, changes) = contained(config);
    let on_gpu = config.participants().iter().any(|name| {
        let agent = &config.agents[name];
        let vllm = agent.engine.kind == EngineKind::Vllm;
        let computes = |engine: Engine| vllm || engine.device != DeviceName::Cpu;
        agent.device != DeviceName::Cpu || engines(&config, name).any(computes)
    });
    match (on_gpu, gpus) {
        (true, false) => return Err(Usage::new("an agent or its engine computes on a GPU: add --gpus").into()),
        (false, true) => {
            let message = "no agent computes on a GPU: write device = \"cuda:0\", or leave out --gpus";
            return Err(Usage::new(message).into());
        }
        _ => {}
    }
    let named = Named::of(&config);
    let problems = problems(&config, &named);
    if !problems.is_empty() {
        let message = format!(
            "containers cannot play this configuration:\n  {}",
            problems.join("\n  ")
        );
        return Err(Usage::new(message).into());
    }
    let mut services = vec![Service::coordinator(&config, &named)];
    for name in ["a", "b"] {
        if !config.participants().iter().any(|agent| agent.as_str() == name) {
            services.push(Service::unused(name));
        }
    }
    for name in config.participants() {
        let agent = &config.agents[&name];
        services.push(Service::agent(&name, agent, &named));
        services.extend(engines(&config, &name).map(|engine| Service::engine(&name, agent, engine, &named)));
    }
    unite(&mut services)?;
    Ok(render::render(&services, &config, &changes, place, gpus))
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
fn problems(config: &RunConfig, named: &Named) -> Vec<String> {
    let mut problems: Vec<String> = named.paths.iter().filter_map(paths::NamedPath::problem).collect();
    problems.extend(named.servers.iter().filter_map(servers::NamedServer::problem));
    problems.extend(servers::foreign_listeners(config));
    problems.extend(config.participants().iter().filter_map(|name| unseen(config, name)));
    problems
}

/// Returns a problem if an agent's model is a folder that its vLLM server does not see.
fn unseen(config: &RunConfig, name: &AgentName) -> Option<String> {
    let agent = &config.agents[name];
    let ModelConfig::Path(path) = &agent.model else {
        return None;
    };
    let serves = agent.engine.kind == EngineKind::Vllm && engines(config, name).next().is_some();
    let hidden = serves && !paths::is_of_hub(path) && !paths::is_seen_by_vllm(path);
    hidden.then(|| {
        format!(
            "agents.{name}.model.path is {}, and containers of vLLM see no configs/: write its absolute path on this host",
            path.display()
        )
    })
}

/// Returns the configuration as containers can play it, and its changes as options. Each container
/// sees only its own GPUs, from `cuda:0`, and reaches others by name instead of on loopback.
fn contained(config: &RunConfig) -> (RunConfig, Vec<String>) {
    let (mut config, mut changes) = (config.clone(), Vec::new());
    // The volume that all services share.
    if config.run.folder != Path::new("runs") {
        config.run.folder = "runs".into();
        changes.push("run.folder=\"runs\"".to_owned());
    }
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
            if let Some(local) = Engine::read(url, agent.device).filter(|_| ours && servers::is_loopback(url)) {
                let suffix = if index == 0 { String::new() } else { format!("-{index}") };
                *url = format!("http://engine-{name}{suffix}:{}", local.port);
                moved = true;
            }
        }
        if moved {
            change("engine.urls", &toml::Value::from(engine.urls.clone()));
        }
        let near = engine.weights_url.as_deref().is_none_or(servers::is_loopback);
        if moved && engine.kind == EngineKind::Dyad && near {
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
    let agent = &config.agents[name];
    let settings = &agent.engine;
    let ours = matches!(settings.kind, EngineKind::Dyad | EngineKind::Vllm);
    let urls = settings.urls.iter().enumerate().filter(move |_| ours);
    let device = move |index: usize| settings.devices.get(index).copied().unwrap_or(agent.device);
    urls.filter_map(move |(index, url)| Engine::read(url, device(index)))
        .filter(|engine| !engine.host.contains('.'))
}

#[cfg(test)]
mod tests;

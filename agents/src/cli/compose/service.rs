//! The services of a run: the command, environment, mounts and GPUs of each.

use configs::{AgentConfig, AgentName, DeviceName, EngineKind, JUDGE_KEY, ModelConfig, RunConfig};

use super::paths::{self, Mount, NamedPath, Reader};
use super::servers::{self, NamedServer};

const BROKER: &str = "amqp://${RABBITMQ_USER:?copy .env.example to .env}:${RABBITMQ_PASSWORD:?set RABBITMQ_PASSWORD \
                      in .env}@rabbitmq:5672/dyad";

/// An engine that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Engine {
    pub(super) host: String,
    pub(super) port: u16,
    /// The device that it computes on outside of a container.
    pub(super) device: DeviceName,
}

impl Engine {
    /// Reads `http://HOST:PORT`.
    pub(super) fn read(url: &str, device: DeviceName) -> Option<Self> {
        let (_, rest) = url.split_once("://")?;
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':')?;
        Some(Self {
            host: host.to_owned(),
            port: port.parse().ok()?,
            device,
        })
    }

    /// Returns its device in its container, which sees one GPU at most.
    fn inside(&self) -> DeviceName {
        match self.device {
            DeviceName::Cpu => DeviceName::Cpu,
            DeviceName::Cuda(_) => DeviceName::Cuda(0),
        }
    }
}

/// The paths and servers that the configuration names.
pub(super) struct Named {
    pub(super) paths: Vec<NamedPath>,
    pub(super) servers: Vec<NamedServer>,
}

impl Named {
    pub(super) fn of(config: &RunConfig) -> Self {
        Self {
            paths: paths::named(config),
            servers: servers::named(config),
        }
    }
}

/// The program of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Coordinator,
    Agent,
    Engine,
    Vllm,
    /// A service of compose.yaml that this run does not have.
    Unused,
}

/// One service of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Words of our own, and values of the configuration with `$` doubled.
    pub(super) command: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    /// The environment variables that choose its GPUs.
    pub(super) gpus: Vec<String>,
    pub(super) hub: bool,
    pub(super) mounts: Vec<Mount>,
    /// True if it asks a server on Docker's host.
    pub(super) asks_host: bool,
}

impl Service {
    fn new(name: String, kind: Kind) -> Self {
        Self {
            name,
            kind,
            command: Vec::new(),
            environment: Vec::new(),
            gpus: Vec::new(),
            hub: false,
            mounts: Vec::new(),
            asks_host: false,
        }
    }

    /// Adds the paths and servers that the service reads.
    fn reading(mut self, named: &Named, reads: impl Fn(&Reader) -> bool) -> Self {
        self.mounts = paths::mounts(&named.paths, &reads);
        let asked = || named.servers.iter().filter(|server| reads(&server.reader));
        self.asks_host = asked().any(NamedServer::is_on_host);
        if asked().any(NamedServer::is_plaintext) {
            self.environment.push(optional("DYAD_ALLOW_PLAINTEXT"));
        }
        self
    }

    pub(super) fn unused(agent: &str) -> Self {
        Self::new(format!("agent-{agent}"), Kind::Unused)
    }

    pub(super) fn coordinator(config: &RunConfig, named: &Named) -> Self {
        let data_sets = crate::cli::host_check::sources(config, |_| true);
        let tokens = config
            .tools
            .keys()
            .map(|tool| format!("DYAD_TOOL_TOKEN_{}", variable(tool)));
        let judges = config.graders.values().filter_map(|grader| grader.judge.as_ref());
        // compose.yaml passes the usual key on.
        let keys = judges.filter(|judge| judge.agent.is_none() && judge.key != JUDGE_KEY);
        let mut secrets: Vec<String> = tokens.chain(keys.map(|judge| judge.key.clone())).collect();
        secrets.sort();
        secrets.dedup();
        let service = Self {
            command: vec!["coordinator".into()],
            environment: secrets.iter().map(|name| optional(name)).collect(),
            hub: data_sets.iter().any(|(_, source)| paths::is_source_of_hub(source)),
            ..Self::new("coordinator".into(), Kind::Coordinator)
        };
        service.reading(named, |reader| matches!(reader, Reader::Coordinator | Reader::Workflow))
    }

    pub(super) fn agent(name: &AgentName, agent: &AgentConfig, named: &Named) -> Self {
        let keys = ["DYAD_HTTP_TOKEN", "DYAD_ENGINE_TOKEN", "DYAD_OPENAI_KEY"];
        let warm = agent.train.warm_start.as_ref();
        let service = Self {
            command: ["agent", "--name", name.as_str()].map(str::to_owned).to_vec(),
            environment: [("DYAD_BROKER".to_owned(), BROKER.to_owned())]
                .into_iter()
                .chain(keys.map(optional))
                .collect(),
            gpus: variables(name.as_str(), gpus(agent).len()),
            hub: is_of_hub(&agent.model) || warm.is_some_and(|warm| paths::is_source_of_hub(&warm.source)),
            ..Self::new(format!("agent-{name}"), Kind::Agent)
        };
        service.reading(named, |reader| match reader {
            Reader::Coordinator => false,
            Reader::Workflow => warm.is_some(),
            Reader::Agent(own) | Reader::Engine(own) | Reader::Server(own) => own == name,
        })
    }

    pub(super) fn engine(name: &AgentName, agent: &AgentConfig, engine: Engine, named: &Named) -> Self {
        let listen = format!("0.0.0.0:{}", engine.port);
        if agent.engine.kind == EngineKind::Vllm {
            let of_server = |reader: &Reader| matches!(reader, Reader::Server(own) if own == name);
            return Self::vllm(agent, engine).reading(named, of_server);
        }
        let token = "${DYAD_ENGINE_TOKEN:?set DYAD_ENGINE_TOKEN in .env: openssl rand -hex 32}";
        let mut command = ["engine", "--agent", name.as_str(), "--listen", &listen]
            .map(str::to_owned)
            .to_vec();
        if engine.inside() != agent.device {
            command.extend(["--device".into(), engine.inside().to_string()]);
        }
        let service = Self {
            command,
            environment: vec![("DYAD_ENGINE_TOKEN".into(), token.into())],
            gpus: variables(&engine.host, usize::from(engine.device != DeviceName::Cpu)),
            hub: is_of_hub(&agent.model),
            ..Self::new(engine.host, Kind::Engine)
        };
        service.reading(named, |reader| match reader {
            Reader::Engine(own) | Reader::Server(own) => own == name,
            Reader::Coordinator | Reader::Workflow | Reader::Agent(_) => false,
        })
    }

    /// The server as agents/ENGINES.md says to start it.
    fn vllm(agent: &AgentConfig, engine: Engine) -> Self {
        let model = match &agent.model {
            ModelConfig::Path(path) if paths::is_of_hub(path) => literal(&path.display().to_string()),
            // The image of vLLM has another working directory.
            ModelConfig::Path(path) => literal(&paths::inside(path).display().to_string()),
            ModelConfig::Random(_) | ModelConfig::Served(_) => String::new(),
        };
        let mut command = vec![model, "--port".into(), engine.port.to_string()];
        let mut environment = vec![("VLLM_API_KEY".to_owned(), "${DYAD_ENGINE_TOKEN:-}".to_owned())];
        if let Some(lora) = &agent.lora {
            let rank = lora.rank().to_string();
            command.extend(["--enable-lora", "--max-lora-rank", &rank, "--max-loras", "2"].map(str::to_owned));
            environment.push(("VLLM_ALLOW_RUNTIME_LORA_UPDATING".into(), "1".into()));
        } else if agent.train.enabled {
            environment.push(("VLLM_SERVER_DEV_MODE".into(), "1".into()));
        }
        if agent.sampling.temperature != 1.0 {
            command.extend(["--logprobs-mode", "processed_logprobs"].map(str::to_owned));
        }
        Self {
            command,
            environment,
            gpus: variables(&engine.host, 1),
            hub: is_of_hub(&agent.model),
            ..Self::new(engine.host, Kind::Vllm)
        }
    }
}

/// Returns true if the model is a name of the Hugging Face Hub.
fn is_of_hub(model: &ModelConfig) -> bool {
    matches!(model, ModelConfig::Path(path) if paths::is_of_hub(path))
}

/// Returns a variable that a service gets from .env, empty if it is not set there.
fn optional(name: &str) -> (String, String) {
    (name.to_owned(), format!("${{{name}:-}}"))
}

/// Returns a text of the configuration as docker compose reads it back: `$` would begin a variable.
pub(super) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

/// Returns the GPUs that an agent's process and the ranks of its trainer compute on.
pub(super) fn gpus(agent: &AgentConfig) -> Vec<DeviceName> {
    let mut gpus = Vec::new();
    for device in std::iter::once(&agent.device).chain(&agent.train.devices) {
        if *device != DeviceName::Cpu && !gpus.contains(device) {
            gpus.push(*device);
        }
    }
    gpus
}

/// Returns a variable for each GPU: NAME, NAME_2 and so on.
fn variables(name: &str, gpus: usize) -> Vec<String> {
    let name = variable(name);
    let one = |gpu| match gpu {
        1 => name.clone(),
        gpu => format!("{name}_{gpu}"),
    };
    (1..=gpus).map(one).collect()
}

/// Returns a name as a part of an environment variable.
fn variable(name: &str) -> String {
    let sign = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    name.chars().map(sign).collect()
}

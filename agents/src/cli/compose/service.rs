//! The services as lines of YAML.

use std::fmt::Write;

use configs::{AgentConfig, AgentName, DeviceName, EngineKind, ModelConfig, RunConfig};

use super::{Place, is_of_hub};

/// The version that the driver was written for.
const VLLM: &str = "vllm/vllm-openai:v0.33.0";
/// The folder of the Hugging Face cache in containers of dyad.
const HUB: &str = "/var/lib/dyad/huggingface";
/// Its models and data sets on the host. The rest, the user's token, stays there.
const HUB_HERE: &str = "${HF_HOME:-~/.cache/huggingface}/hub";
const BROKER: &str = "amqp://${RABBITMQ_USER:?copy .env.example to .env}:${RABBITMQ_PASSWORD:?set RABBITMQ_PASSWORD \
                      in .env}@rabbitmq:5672/dyad";

/// An engine that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Engine {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Engine {
    /// Reads `http://HOST:PORT`.
    pub(super) fn read(url: &str) -> Option<Self> {
        let (_, rest) = url.split_once("://")?;
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':')?;
        Some(Self {
            host: host.to_owned(),
            port: port.parse().ok()?,
        })
    }

    pub(super) fn is_loopback(&self) -> bool {
        let address = self.host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

/// The program of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
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
    kind: Kind,
    command: Vec<String>,
    environment: Vec<(String, String)>,
    /// The environment variables that choose its GPUs.
    gpus: Vec<String>,
    hub: bool,
    /// Folders that have the same path on the host, with the mode of their mount.
    folders: Vec<String>,
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
            folders: Vec::new(),
        }
    }

    pub(super) fn unused(agent: &str) -> Self {
        Self::new(format!("agent-{agent}"), Kind::Unused)
    }

    pub(super) fn coordinator(config: &RunConfig) -> Self {
        let data_sets = crate::cli::host_check::sources(config, |_| true);
        let tokens = config.tools.keys().map(|tool| {
            let tool = variable(tool);
            (
                format!("DYAD_TOOL_TOKEN_{tool}"),
                format!("${{DYAD_TOOL_TOKEN_{tool}:-}}"),
            )
        });
        Self {
            command: vec!["coordinator".into()],
            environment: tokens.collect(),
            hub: data_sets.iter().any(|(_, source)| source.starts_with("hf:")),
            ..Self::new("coordinator".into(), Kind::Coordinator)
        }
    }

    pub(super) fn agent(name: &AgentName, agent: &AgentConfig) -> Self {
        let keys = ["DYAD_HTTP_TOKEN", "DYAD_ENGINE_TOKEN", "DYAD_OPENAI_KEY"];
        let keys = keys.map(|key| (key.to_owned(), format!("${{{key}:-}}")));
        Self {
            command: ["agent", "--name", name.as_str()].map(str::to_owned).to_vec(),
            environment: [("DYAD_BROKER".to_owned(), BROKER.to_owned())]
                .into_iter()
                .chain(keys)
                .collect(),
            gpus: variables(name.as_str(), gpus(agent).len()),
            hub: is_of_hub(&agent.model),
            folders: folders(agent),
            ..Self::new(format!("agent-{name}"), Kind::Agent)
        }
    }

    pub(super) fn engine(name: &AgentName, agent: &AgentConfig, engine: Engine) -> Self {
        let listen = format!("0.0.0.0:{}", engine.port);
        if agent.engine.kind == EngineKind::Vllm {
            return Self::vllm(agent, engine);
        }
        let token = "${DYAD_ENGINE_TOKEN:?set DYAD_ENGINE_TOKEN in .env: openssl rand -hex 32}";
        Self {
            command: ["engine", "--agent", name.as_str(), "--listen", &listen]
                .map(str::to_owned)
                .to_vec(),
            environment: vec![("DYAD_ENGINE_TOKEN".into(), token.into())],
            gpus: variables(&engine.host, usize::from(agent.device != DeviceName::Cpu)),
            hub: is_of_hub(&agent.model),
            folders: folders(agent),
            ..Self::new(engine.host, Kind::Engine)
        }
    }

    /// The server as agents/ENGINES.md says to start it.
    fn vllm(agent: &AgentConfig, engine: Engine) -> Self {
        let model = match &agent.model {
            ModelConfig::Path(path) => path.display().to_string(),
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
            folders: folders(agent),
            ..Self::new(engine.host, Kind::Vllm)
        }
    }
}

/// Returns the mounts of an agent's own folders: its model, and the weights for servers.
fn folders(agent: &AgentConfig) -> Vec<String> {
    let adapter = agent.lora.as_ref().and_then(|lora| lora.path.as_ref());
    let model = match &agent.model {
        ModelConfig::Path(path) => Some(path),
        ModelConfig::Random(_) | ModelConfig::Served(_) => None,
    };
    let read = adapter.into_iter().chain(model).map(|path| (path, ":ro"));
    let written = agent.engine.weights_folder.as_ref().map(|path| (path, ""));
    let absolute = read.chain(written).filter(|(path, _)| path.is_absolute());
    absolute
        .map(|(path, mode)| format!("{0}:{0}{mode}", path.display()))
        .collect()
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

/// Returns the whole file.
pub(super) fn render(
    services: &[Service],
    config: &RunConfig,
    changes: &[String],
    place: &Place,
    gpus: bool,
) -> String {
    let variant = if gpus { "cuda" } else { "cpu" };
    let option = if gpus { " --gpus" } else { "" };
    let mut text = format!(
        "# Made by `dyad compose {file}{option}`, for compose.override.yaml. docker compose reads it after\n\
         # compose.yaml: docker compose up --build -d\n\n\
         x-dyad: &dyad\n\
         \x20 image: dyad:{variant}\n\
         \x20 build:\n    context: .\n    args:\n      VARIANT: {variant}\n\n\
         # For services that compose.yaml does not have.\n\
         x-new: &new\n\
         \x20 <<: *dyad\n\
         \x20 depends_on:\n    rabbitmq:\n      condition: service_healthy\n    redis:\n      condition: service_healthy\n\
         \x20 restart: on-failure\n\
         \x20 init: true\n\
         \x20 stop_grace_period: 30s\n\
         \x20 cap_drop: [ALL]\n\
         \x20 security_opt: [\"no-new-privileges:true\"]\n\
         \x20 logging:\n    driver: json-file\n    options:\n      max-size: 50m\n      max-file: \"5\"\n\n\
         services:\n",
        file = place.file.trim_start_matches('/'),
    );
    let mut next_gpu = 0;
    for service in services {
        service.write(&mut text, config, changes, place);
        let own = if gpus { service.gpus.as_slice() } else { &[] };
        if own.len() > 1 {
            // NCCL's ranks exchange data through /dev/shm. Docker's default of 64 MB is too small.
            text.push_str("    shm_size: 1gb\n");
        }
        if !own.is_empty() {
            let id =
                |(index, variable): (usize, &String)| format!("\"${{DYAD_GPU_{variable}:-{}}}\"", next_gpu + index);
            let ids: Vec<String> = own.iter().enumerate().map(id).collect();
            let _ = write!(
                text,
                "    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n\
                 \x20             device_ids: [{}]\n\
                 \x20             capabilities: [gpu]\n",
                ids.join(", ")
            );
            next_gpu += own.len();
        }
    }
    text
}

impl Service {
    fn write(&self, text: &mut String, config: &RunConfig, changes: &[String], place: &Place) {
        let _ = writeln!(text, "  {}:", self.name);
        match self.kind {
            Kind::Unused => {
                let _ = writeln!(text, "    profiles: [unused] # this run has no such agent");
                return;
            }
            Kind::Vllm => {
                let _ = writeln!(text, "    image: {VLLM}\n    ipc: host\n    restart: on-failure");
            }
            _ => {
                let anchor = if self.is_of_compose_yaml() { "dyad" } else { "new" };
                let _ = writeln!(text, "    <<: *{anchor}");
            }
        }
        let run = format!("${{DYAD_RUN:-{}}}", config.run.name);
        let own = match self.kind {
            Kind::Vllm => Vec::new(),
            Kind::Engine => vec![place.file.clone()],
            _ => vec!["--config".into(), place.file.clone(), "--run".into(), run],
        };
        let (first, rest) = self.command.split_at(1.min(self.command.len()));
        // `dyad engine` takes its configuration as the first argument.
        let words = match self.kind {
            Kind::Engine => [first, &own, rest].concat(),
            _ => [first, rest, &own].concat(),
        };
        let sets = changes.iter().flat_map(|change| ["--set", change]);
        let sets = sets.filter(|_| self.kind != Kind::Vllm);
        let words = words.iter().map(String::as_str).chain(sets);
        let words: Vec<String> = words.map(quoted).collect();
        let _ = writeln!(text, "    command: [{}]", words.join(", "));
        self.write_environment(text);
        self.write_volumes(text, place);
        if self.kind == Kind::Agent && !self.is_of_compose_yaml() {
            let _ = writeln!(
                text,
                "    healthcheck:\n      test: [CMD, healthy]\n      interval: 5s\n      timeout: 3s\n      retries: 6\n      start_period: 60s"
            );
        }
    }

    /// Returns true if compose.yaml has the service too. Its lists would be written twice, which
    /// docker compose refuses for some.
    fn is_of_compose_yaml(&self) -> bool {
        ["coordinator", "agent-a", "agent-b"].contains(&self.name.as_str())
    }

    fn write_environment(&self, text: &mut String) {
        let hub = (self.hub && self.kind != Kind::Vllm).then(|| ("HF_HOME".to_owned(), HUB.to_owned()));
        // compose.yaml sets it for its own services.
        let new = self.kind != Kind::Vllm && !self.is_of_compose_yaml();
        let stays_down = new.then(|| ("DYAD_USAGE_EXIT".to_owned(), "0".to_owned()));
        let all: Vec<&(String, String)> = self.environment.iter().chain(&hub).chain(&stays_down).collect();
        if all.is_empty() {
            return;
        }
        let _ = writeln!(text, "    environment:");
        for (key, value) in all {
            let _ = writeln!(text, "      {key}: {}", quoted(value));
        }
    }

    fn write_volumes(&self, text: &mut String, place: &Place) {
        let _ = writeln!(text, "    volumes:");
        if self.kind != Kind::Vllm {
            let _ = writeln!(text, "      - {}", quoted(&format!("{}:/configs:ro", place.folder)));
            // Paths of a configuration start at the working directory.
            let _ = writeln!(text, "      - ./configs:/var/lib/dyad/configs:ro");
        }
        // vLLM reads weights that its agent writes into the run's folder.
        let _ = writeln!(text, "      - runs:/var/lib/dyad/runs");
        if self.hub {
            let inside = if self.kind == Kind::Vllm {
                "/root/.cache/huggingface"
            } else {
                HUB
            };
            let _ = writeln!(text, "      - {}", quoted(&format!("{HUB_HERE}:{inside}/hub:ro")));
        }
        for folder in &self.folders {
            let _ = writeln!(text, "      - {}", quoted(folder));
        }
    }
}

/// Returns a text as a YAML string: JSON's strings are YAML's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

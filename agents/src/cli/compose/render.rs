//! The services as lines of YAML.

use std::fmt::Write;
use std::path::Path;

use configs::RunConfig;

use super::paths::{self, Mount, NamedPath};
use super::service::{Kind, Service, literal};
use super::{Place, servers};
use crate::cli::shell_word::shell_word;

/// The version that the driver was written for.
const VLLM: &str = "vllm/vllm-openai:v0.33.0";
/// The folder of the Hugging Face cache in containers of dyad.
const HUB: &str = "/var/lib/dyad/huggingface";
/// Its models and data sets on the host. The rest, the user's token, stays there.
const HUB_HERE: &str = "${HF_HOME:-~/.cache/huggingface}/hub";

/// Returns the whole file.
pub(super) fn render(
    services: &[Service],
    config: &RunConfig,
    changes: &[String],
    place: &Place,
    gpus: bool,
) -> String {
    let mut text = head(config, place, gpus);
    let mut next_gpu = 0;
    for service in services {
        service.write(&mut text, config, changes, place);
        if gpus {
            service.write_gpus(&mut text, next_gpu);
            next_gpu += service.gpus.len();
        }
    }
    text
}

/// Returns what comes before the services.
fn head(config: &RunConfig, place: &Place, gpus: bool) -> String {
    let variant = if gpus { "cuda" } else { "cpu" };
    let option = if gpus { " --gpus" } else { "" };
    format!(
        "# Made by `dyad compose {given}{option}`, for compose.override.yaml. docker compose reads it after\n\
         # compose.yaml: docker compose up --build -d\n{notes}\n\
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
        given = shell_word(&place.given),
        notes = notes(config),
    )
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
        let words = self.words(config, changes, place);
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let _ = writeln!(text, "    command: [{}]", words.join(", "));
        self.write_environment(text);
        self.write_volumes(text, place);
        if self.asks_host {
            let _ = writeln!(text, "    extra_hosts: [\"host.docker.internal:host-gateway\"]");
        }
        if self.kind == Kind::Agent && !self.is_of_compose_yaml() {
            let _ = writeln!(
                text,
                "    healthcheck:\n      test: [CMD, healthy]\n      interval: 5s\n      timeout: 3s\n      retries: 6\n      start_period: 60s"
            );
        }
    }

    /// Returns the words of its command.
    fn words(&self, config: &RunConfig, changes: &[String], place: &Place) -> Vec<String> {
        if self.kind == Kind::Vllm {
            return self.command.clone();
        }
        let run = format!("${{DYAD_RUN:-{}}}", config.run.name);
        let file = literal(&place.file);
        let own = match self.kind {
            Kind::Engine => vec![file],
            _ => vec!["--config".into(), file, "--run".into(), run],
        };
        let (first, rest) = self.command.split_at(1.min(self.command.len()));
        // `dyad engine` takes its configuration as the first argument.
        let words = match self.kind {
            Kind::Engine => [first, &own, rest].concat(),
            _ => [first, rest, &own].concat(),
        };
        let sets = changes.iter().flat_map(|change| ["--set".to_owned(), literal(change)]);
        words.into_iter().chain(sets).collect()
    }

    /// Writes its GPUs; `first` is the default of the first one.
    fn write_gpus(&self, text: &mut String, first: usize) {
        if self.gpus.len() > 1 {
            // NCCL's ranks exchange data through /dev/shm. Docker's default of 64 MB is too small.
            text.push_str("    shm_size: 1gb\n");
        }
        if self.gpus.is_empty() {
            return;
        }
        let id = |(index, variable): (usize, &String)| format!("\"${{DYAD_GPU_{variable}:-{}}}\"", first + index);
        let ids: Vec<String> = self.gpus.iter().enumerate().map(id).collect();
        let _ = write!(
            text,
            "    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n\
             \x20             device_ids: [{}]\n\
             \x20             capabilities: [gpu]\n",
            ids.join(", ")
        );
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
            let _ = match &place.folder {
                None => writeln!(text, "      - ./configs:/configs:ro,z"),
                Some(folder) => writeln!(text, "      - {}", bound(folder, "/configs", true)),
            };
            // Paths of a configuration start at the working directory.
            let _ = writeln!(text, "      - ./configs:/var/lib/dyad/configs:ro,z");
        }
        // vLLM reads weights that its agent writes into the run's folder.
        let _ = writeln!(text, "      - runs:/var/lib/dyad/runs");
        if self.hub {
            let inside = if self.kind == Kind::Vllm {
                "/root/.cache/huggingface"
            } else {
                HUB
            };
            let _ = writeln!(text, "      - {}", quoted(&format!("{HUB_HERE}:{inside}/hub:ro,z")));
        }
        for Mount { path, read_only } in &self.mounts {
            let path = path.display().to_string();
            let _ = writeln!(text, "      - {}", bound(&path, &path, *read_only));
        }
    }
}

/// Returns the mount of a host's path, with a label that lets containers read it under SELinux; `z`
/// has no effect elsewhere. docker-compose 1.29, which Debian ships, has the label in the short
/// form only. That form splits paths at `:` and makes a folder where a path is missing, so other
/// paths have the long form; only a folder to write may be made.
fn bound(source: &str, target: &str, read_only: bool) -> String {
    let is_short = !source.contains(':') && !target.contains(':') && (!read_only || Path::new(source).exists());
    let [source, target] = [source, target].map(literal);
    if is_short {
        let rights = if read_only { "ro,z" } else { "z" };
        return quoted(&format!("{source}:{target}:{rights}"));
    }
    let [source, target] = [source, target].map(|path| quoted(&path));
    let made = if read_only { "" } else { ", create_host_path: true" };
    format!("{{type: bind, source: {source}, target: {target}, read_only: {read_only}, bind: {{selinux: z{made}}}}}")
}

/// Returns comments with what the user should know about the configuration in containers.
fn notes(config: &RunConfig) -> String {
    let named = paths::named(config);
    let missing = named.iter().filter_map(NamedPath::note);
    let notes = servers::hidden_listeners(config).into_iter();
    let notes = notes.chain(programs(config)).chain(missing);
    // A path may have line breaks, which would end the comment.
    notes.map(|note| format!("# {}\n", note.escape_debug())).collect()
}

/// Returns a note if the run starts programs, which the image may not be able to run.
fn programs(config: &RunConfig) -> Option<String> {
    let trains = config.agents.values().any(|agent| agent.train.is_external());
    let starts = trains || !paths::programs(config).is_empty();
    starts.then(|| {
        "The run starts programs of its own, and the image has no Python: build one `FROM dyad:cpu` with it.".into()
    })
}

/// Returns a text as a YAML string: JSON's strings are YAML's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

mod gpus;
mod places;

use yaml_rust2::{Yaml, YamlLoader};

use super::*;
use crate::cli::exit_code::render;

const ASTRAFLOW: &str = include_str!("../../../../configs/actor-verifier-astraflow.toml");
/// Its engines.
const ENGINES: [&str; 2] = [
    r#"engine = { kind = "dyad", urls = ["http://127.0.0.1:8101"], devices = ["cuda:2"] }"#,
    r#"engine = { kind = "dyad", urls = ["http://127.0.0.1:8102"], devices = ["cuda:5"] }"#,
];
const SIGNAL: &str = include_str!("../../../../configs/signal.toml");

fn config(text: &str) -> RunConfig {
    RunConfig::parse(text, Path::new("x.toml")).unwrap_or_else(|error| panic!("{error}"))
}

fn place() -> Place {
    let given = Path::new("configs/x.toml");
    Place::of(given, Path::new("/here/configs/x.toml"), Path::new("/here"))
}

/// Returns the services of a configuration.
fn services(text: &str, gpus: bool) -> Yaml {
    services_of(&config(text), gpus)
}

fn services_of(config: &RunConfig, gpus: bool) -> Yaml {
    let file = file(config, &place(), gpus).unwrap_or_else(|error| panic!("{error}"));
    let mut documents = YamlLoader::load_from_str(&file).unwrap_or_else(|error| panic!("{error}\n{file}"));
    documents.remove(0)["services"].clone()
}

fn names(services: &Yaml) -> Vec<&str> {
    let names = services.as_hash().unwrap().keys();
    names.map(|name| name.as_str().unwrap()).collect()
}

fn words(service: &Yaml) -> String {
    let words = service["command"].as_vec().unwrap().iter();
    words.map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

/// Returns the paths that a service has from the host, and whether it may only read them.
fn bound(service: &Yaml) -> Vec<(&str, bool)> {
    let volumes = service["volumes"].as_vec().unwrap().iter();
    let bound = volumes.filter_map(|volume| {
        let Some(short) = volume.as_str() else {
            assert_eq!(volume["bind"]["selinux"].as_str(), Some("z"), "{volume:?}");
            let (source, target) = (volume["source"].as_str()?, volume["target"].as_str()?);
            return Some((source, target, volume["read_only"].as_bool()?));
        };
        // A volume of docker has no label.
        let (paths, rights) = short.rsplit_once(':').filter(|(_, rights)| rights.ends_with('z'))?;
        let (source, target) = paths.split_once(':')?;
        Some((source, target, rights == "ro,z"))
    });
    let bound = bound.filter(|(source, target, _)| source == target);
    bound.map(|(source, _, read_only)| (source, read_only)).collect()
}

fn refusal(text: &str, gpus: bool) -> String {
    render(&file(&config(text), &place(), gpus).unwrap_err())
}

#[test]
fn every_agent_is_a_service_under_its_name() {
    let services = services(ASTRAFLOW, true);
    let participants = config(ASTRAFLOW).participants();
    let wanted: Vec<String> = participants.iter().map(|name| format!("agent-{name}")).collect();
    let names = names(&services);
    for (index, name) in wanted.iter().enumerate() {
        assert!(names.contains(&name.as_str()), "{names:?}");
        let device = &services[name.as_str()]["deploy"]["resources"]["reservations"]["devices"][0];
        let id = device["device_ids"][0].as_str().unwrap();
        // Two for each trainer, one for its engine.
        assert!(
            id.ends_with(&format!(":-{}}}", 3 * index)),
            "each has its own GPUs: {id}"
        );
        let volumes = services[name.as_str()]["volumes"].as_vec().unwrap();
        assert!(
            volumes
                .iter()
                .any(|volume| volume.as_str().unwrap().contains("huggingface")),
            "{volumes:?}"
        );
        let environment = &services[name.as_str()]["environment"];
        assert_eq!(
            environment["DYAD_USAGE_EXIT"].as_str(),
            Some("0"),
            "a refused one stays down"
        );
        let words = words(&services[name.as_str()]);
        assert!(words.contains("--config /configs/x.toml --run ${DYAD_RUN:-"), "{words}");
        assert!(words.contains("--set agents.verifier.device=\"cuda:0\""), "{words}");
    }
    assert_eq!(
        services["agent-a"]["profiles"][0].as_str(),
        Some("unused"),
        "compose.yaml has it"
    );
}

#[test]
fn agents_of_compose_yaml_are_replaced_not_left_out() {
    let services = services(SIGNAL, false);
    assert_eq!(names(&services), ["coordinator", "agent-a", "agent-b"]);
    assert!(services["agent-a"]["deploy"].is_badvalue() && services["agent-a"]["profiles"].is_badvalue());
}

#[test]
fn engines_on_loopback_become_services_with_names() {
    let services = services(ASTRAFLOW, true);
    let words = words(&services["engine-verifier"]);
    assert!(
        words.starts_with("engine /configs/x.toml --agent verifier --listen 0.0.0.0:8102 --set "),
        "{words}"
    );
    let urls = "agents.verifier.engine.urls=[\"http://engine-verifier:8102\"]";
    assert!(words.contains(urls), "{words}");
    assert!(
        words.contains("agents.solver.engine.weights_url=\"http://agent-solver:8100\""),
        "{words}"
    );
    let token = services["engine-solver"]["environment"]["DYAD_ENGINE_TOKEN"]
        .as_str()
        .unwrap();
    assert!(
        token.contains(":?"),
        "without a token an engine listens on loopback only: {token}"
    );
}

#[test]
fn changes_in_the_command_make_the_configuration_of_containers() {
    let (contained, changes) = contained(&config(ASTRAFLOW));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    std::fs::write(&path, ASTRAFLOW).unwrap();
    let loaded = RunConfig::load_with(&path, &changes).unwrap();
    let text = |config: &RunConfig| toml::to_string(config).unwrap();
    assert_eq!(text(&loaded), text(&contained));
}

#[test]
fn vllm_is_started_as_the_agent_needs_it() {
    let vllm = "lora = { rank = 8 }\nengine = { kind = \"vllm\", urls = [\"http://vllm-a:8000\", \"http://elsewhere.org:8000\"] }";
    let text = ASTRAFLOW.replace(ENGINES[0], vllm);
    let services = services(&text, true);
    let words = words(&services["vllm-a"]);
    assert!(words.contains("--port 8000 --enable-lora --max-lora-rank 8"), "{words}");
    assert!(!words.contains("--set"), "{words}");
    assert_eq!(
        services["vllm-a"]["environment"]["VLLM_ALLOW_RUNTIME_LORA_UPDATING"].as_str(),
        Some("1")
    );
    assert!(
        services["elsewhere.org"].is_badvalue(),
        "another host's server is not ours to start"
    );
}

/// SELinux refuses what has no label for containers (SigNoz/signoz#1580).
#[test]
fn mounts_of_the_host_have_a_label_for_selinux() {
    let files = [
        include_str!("../../../../compose.yaml").to_owned(),
        include_str!("../../../../compose.users.yaml").to_owned(),
        include_str!("../../../../compose.observe.yaml").to_owned(),
        file(&config(ASTRAFLOW), &place(), true).unwrap(),
    ];
    for text in files {
        let lines = text.lines().map(str::trim);
        let is_of_host = |line: &&str| {
            let is_path = ["- ./", "- ${", "- \"${HF"].iter().any(|start| line.starts_with(start));
            is_path && line.contains(":/")
        };
        let mounts: Vec<&str> = lines.filter(is_of_host).collect();
        assert!(!mounts.is_empty(), "{text}");
        for mount in mounts {
            assert!(mount.contains(":ro,z"), "{mount}");
        }
    }
}

/// docker compose appends lists of both files, and refuses some with repeated items.
#[test]
fn services_of_compose_yaml_get_no_list_twice() {
    let own = include_str!("../../../../compose.yaml");
    let own = &YamlLoader::load_from_str(own).unwrap()[0]["services"];
    let services = services(SIGNAL, false);
    for name in names(&services) {
        assert!(!own[name].is_badvalue(), "compose.yaml has {name}");
        for (key, value) in services[name].as_hash().unwrap() {
            let key = key.as_str().unwrap();
            let is_merged = ["command", "volumes"].contains(&key);
            assert!(is_merged || value.as_vec().is_none(), "{name}.{key}");
        }
        assert!(services[name]["depends_on"].is_badvalue() && services[name]["security_opt"].is_badvalue());
    }
}

#[test]
fn servers_that_agents_share_are_one_service() {
    let vllm = "lora = { rank = 8 }\nengine = { kind = \"vllm\", urls = [\"http://shared:8000\"] }";
    let mut text = ASTRAFLOW.to_owned();
    for engine in ENGINES {
        text = text.replace(engine, vllm);
    }
    assert_eq!(
        names(&services(&text, true))
            .iter()
            .filter(|name| **name == "shared")
            .count(),
        1
    );
    let other = text.replacen("http://shared:8000", "http://shared:8001", 1);
    assert!(refusal(&other, true).contains("two services would be called shared"));
}

#[test]
fn what_no_container_reaches_is_refused_with_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    let data = SIGNAL.replace(
        "source = \"generator:signal\"   #",
        "source = \"jsonl:data/mine.jsonl\" #",
    );
    assert!(refusal(&data, false).contains("tasks.source is data/mine.jsonl: move it below configs/"));
    let sglang = "engine = { kind = \"sglang\", urls = [\"http://127.0.0.1:30000\"] }";
    let text = ASTRAFLOW.replace(ENGINES[0], sglang);
    assert!(refusal(&text, true).contains("which is the container itself"));
    let model = folder.path().display().to_string();
    let text = ASTRAFLOW.replace("Qwen/Qwen3-8B", &model);
    let services = services(&text, true);
    assert_eq!(bound(&services["agent-solver"]), [(model.as_str(), true)]);
}

#[test]
fn folder_of_a_configuration_elsewhere_is_mounted() {
    let of = |path: &str| Place::of(Path::new("x.toml"), Path::new(path), Path::new("/here"));
    let elsewhere = of("/data/mine/x.toml");
    assert_eq!(
        (elsewhere.folder.as_deref(), elsewhere.file.as_str()),
        (Some("/data/mine"), "/configs/x.toml")
    );
    let within = of("/here/configs/sub/x.toml");
    assert_eq!((within.folder, within.file.as_str()), (None, "/configs/sub/x.toml"));
}

#[test]
fn folder_of_runs_is_the_volume_of_all_services() {
    let mut config = config(SIGNAL);
    config.run.folder = "/scratch/runs".into();
    let services = services_of(&config, false);
    let words = words(&services["coordinator"]);
    assert!(words.ends_with("--set run.folder=\"runs\""), "{words}");
}

#[test]
fn shipped_name_is_a_file_of_configs_or_names_dyad_init() {
    let here = tempfile::tempdir().unwrap();
    let folder = crate::cli::shipped::tests::repository();
    let find = |given: &str| mountable(Path::new(given), Some(&folder), here.path());
    let refused = find("signal").unwrap_err();
    assert!(refused.hint.unwrap().starts_with("`dyad init signal` copies it here"));
    let own = here.path().join("configs/signal.toml");
    std::fs::create_dir(here.path().join("configs")).unwrap();
    std::fs::write(&own, SIGNAL).unwrap();
    assert_eq!(find("signal").unwrap(), own);
    assert_eq!(find("other.toml").unwrap(), Path::new("other.toml"));
    let dotted = here.path().join("configs/model-0.6b.toml");
    std::fs::write(&dotted, SIGNAL).unwrap();
    assert_eq!(find("model-0.6b").unwrap(), dotted);
    assert_eq!(find("signal.v2").unwrap(), Path::new("signal.v2"), "no other file");
}

#[test]
fn servers_on_the_host_are_reached_by_its_name() {
    let local = "http://127.0.0.1:50001/";
    let text =
        include_str!("../../../../configs/deep-research-8b.toml").replace(local, "http://host.docker.internal:50001/");
    let mut config = config(&text);
    for agent in config.agents.values_mut() {
        agent.device = DeviceName::Cpu;
        agent.train.devices = vec![DeviceName::Cpu; 2];
        agent.engine = configs::EngineConfig::default();
    }
    let services = services_of(&config, false);
    let hosts = services["coordinator"]["extra_hosts"][0].as_str();
    assert_eq!(hosts, Some("host.docker.internal:host-gateway"));
    let environment = &services["coordinator"]["environment"];
    assert_eq!(
        environment["DYAD_ALLOW_PLAINTEXT"].as_str(),
        Some("${DYAD_ALLOW_PLAINTEXT:-}")
    );
    let others = names(&services).into_iter().filter(|name| name.starts_with("agent-"));
    for name in others {
        assert!(
            services[name]["extra_hosts"].is_badvalue(),
            "{name} asks no such server"
        );
    }
}

#[test]
fn keys_of_judges_are_passed_to_the_coordinator() {
    let doctor = include_str!("../../../../configs/doctor-patient-8b.toml");
    let mut config = config(doctor);
    for agent in config.agents.values_mut() {
        agent.device = DeviceName::Cpu;
        agent.engine.devices.clear();
    }
    for judge in config.graders.values_mut().filter_map(|grader| grader.judge.as_mut()) {
        judge.key = "DYAD_JUDGE_KEY_MINE".into();
    }
    let services = services_of(&config, false);
    let environment = &services["coordinator"]["environment"];
    assert_eq!(
        environment["DYAD_JUDGE_KEY_MINE"].as_str(),
        Some("${DYAD_JUDGE_KEY_MINE:-}")
    );
}

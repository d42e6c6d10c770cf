//! GPUs of services, and the form of a file with GPUs.

use super::*;

#[test]
fn trainer_over_several_gpus_sees_them_all() {
    let devices = "[agents.a]\ndevice = \"cuda:1\"\ntrain.devices = [\"cuda:1\", \"cuda:2\"]";
    let cuda = SIGNAL.replace("[defaults.agent]", "[defaults.agent]\ndevice = \"cuda:0\"");
    let text = cuda.replace("[agents.a]", devices);
    let services = services(&text, true);
    let ids = |name: &str| {
        let device = &services[name]["deploy"]["resources"]["reservations"]["devices"][0];
        let ids = device["device_ids"].as_vec().unwrap().iter();
        ids.map(|id| id.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids("agent-a"), ["${DYAD_GPU_A:-0}", "${DYAD_GPU_A_2:-1}"]);
    assert_eq!(ids("agent-b"), ["${DYAD_GPU_B:-2}"]);
    let words = words(&services["agent-a"]);
    assert!(words.contains("--set agents.a.device=\"cuda:0\""), "{words}");
    let ranks = "--set agents.a.train.devices=[\"cuda:0\", \"cuda:1\"]";
    assert!(words.contains(ranks), "{words}");
    assert_eq!(services["agent-a"]["shm_size"].as_str(), Some("1gb"));
}

/// The agent trains on the CPU. Its engines have devices of their own.
#[test]
fn engines_with_devices_of_their_own_get_them() {
    let engine = r#"[agents.a.engine]
kind = "dyad"
urls = ["http://127.0.0.1:8101", "http://127.0.0.1:8102", "http://far:8103"]
devices = ["cuda:3", "cpu", "cuda:3"]
weights_listen = "0.0.0.0:8100"
weights_url = "http://agent-a:8100"
"#;
    let text = SIGNAL.replace("[agents.a]", engine);
    assert!(refusal(&text, false).contains("add --gpus"));
    let services = services(&text, true);
    let seen = |name: &str| {
        let ids = &services[name]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"];
        let ids: Vec<&str> = ids.as_vec().into_iter().flatten().filter_map(Yaml::as_str).collect();
        let words = words(&services[name]);
        let device = words.split_once("--device ").map(|(_, rest)| rest[..6].to_owned());
        (ids.join(" "), device)
    };
    let cuda = Some("cuda:0".to_owned());
    assert_eq!(seen("agent-a"), (String::new(), None));
    assert_eq!(seen("engine-a"), ("${DYAD_GPU_ENGINE_A:-0}".into(), cuda.clone()));
    assert_eq!(seen("engine-a-1"), (String::new(), None), "as its agent");
    assert_eq!(seen("far"), ("${DYAD_GPU_FAR:-1}".into(), cuda));
    let cuda = text.replace("[defaults.agent]", "[defaults.agent]\ndevice = \"cuda:5\"");
    let services = super::services(&cuda, true);
    let said = words(&services["engine-a-1"]);
    assert!(said.contains("--device cpu"), "{said}");
    assert!(services["engine-a-1"]["deploy"].is_badvalue());
    assert!(!words(&services["engine-a"]).contains("--device"), "as its agent");
}

#[test]
fn gpus_are_asked_for_exactly_if_they_are_used() {
    let cuda = SIGNAL.replace("[defaults.agent]", "[defaults.agent]\ndevice = \"cuda:0\"");
    assert!(refusal(&cuda, false).contains("add --gpus"));
    assert!(refusal(SIGNAL, true).contains("leave out --gpus"));
}

/// Keys of the Compose specification that a service of ours may have.
const OF_SERVICES: [&str; 18] = [
    "<<",
    "build",
    "cap_drop",
    "command",
    "depends_on",
    "deploy",
    "environment",
    "extra_hosts",
    "healthcheck",
    "image",
    "init",
    "ipc",
    "logging",
    "profiles",
    "restart",
    "security_opt",
    "shm_size",
    "volumes",
];

fn keys(of: &Yaml) -> Vec<&str> {
    let keys = of.as_hash().unwrap_or_else(|| panic!("{of:?} is no mapping")).keys();
    keys.map(|key| key.as_str().unwrap()).collect()
}

fn is_texts(of: &Yaml) -> bool {
    of.as_vec()
        .is_some_and(|all| !all.is_empty() && all.iter().all(|one| one.as_str().is_some()))
}

/// `tests/docker/prove.sh` has docker compose itself read two of these files.
#[test]
fn shipped_configurations_with_gpus_have_the_form_of_compose_files() {
    let mut files = 0;
    for entry in std::fs::read_dir(crate::cli::shipped::tests::repository()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(config) = RunConfig::load(&path) else { continue };
        let Ok(text) = file(&config, &place(), true) else {
            continue;
        };
        let document = YamlLoader::load_from_str(&text).unwrap().remove(0);
        assert_eq!(keys(&document), ["x-dyad", "x-new", "services"], "{text}");
        files += 1;
        let services = document["services"].as_hash().unwrap();
        assert!(
            services.values().any(|service| !service["deploy"].is_badvalue()),
            "{text}"
        );
        for (name, service) in services {
            let unknown: Vec<&str> = keys(service)
                .into_iter()
                .filter(|key| !OF_SERVICES.contains(key))
                .collect();
            assert!(unknown.is_empty(), "{name:?}: {unknown:?}\n{text}");
            if service["profiles"].is_badvalue() {
                assert!(is_texts(&service["command"]), "{name:?}\n{text}");
            }
            let deploy = &service["deploy"];
            if deploy.is_badvalue() {
                continue;
            }
            let reservations = &deploy["resources"]["reservations"];
            assert_eq!(
                (keys(deploy), keys(&deploy["resources"]), keys(reservations)),
                (vec!["resources"], vec!["reservations"], vec!["devices"])
            );
            for device in reservations["devices"].as_vec().unwrap() {
                assert_eq!(keys(device), ["driver", "device_ids", "capabilities"], "{text}");
                assert_eq!(device["driver"].as_str(), Some("nvidia"));
                assert!(
                    is_texts(&device["device_ids"]) && is_texts(&device["capabilities"]),
                    "{text}"
                );
            }
        }
    }
    assert!(files > 5, "{files} files with GPUs");
}

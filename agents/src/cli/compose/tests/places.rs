//! The paths of a configuration: mounted, or refused by their key.

use super::*;

/// A change of a configuration; its first agent has this name.
type Change = fn(&mut RunConfig, &AgentName);

/// Makes an empty file, and returns its path.
fn made(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "").unwrap();
    path.display().to_string()
}

fn read_only<'a>(paths: &[&'a String]) -> Vec<(&'a str, bool)> {
    paths.iter().map(|path| (path.as_str(), true)).collect()
}

fn warm_start(source: String) -> configs::WarmStartConfig {
    configs::WarmStartConfig {
        source,
        steps: 1,
        batch: 1,
        lr: 1e-3,
        params: toml::Table::new(),
    }
}

#[test]
fn files_outside_configs_are_mounted_where_they_are_read() {
    let root = tempfile::tempdir().unwrap();
    let chat = made(root.path(), "t/chat.jinja");
    let held = made(root.path(), "data/held/out.jsonl");
    let speaker = made(root.path(), "w/speaker.jinja");
    let reward = made(root.path(), "p/reward.py");
    let warm = made(root.path(), "warm/b.jsonl");
    let data = root.path().join("data").display().to_string();
    let weights = root.path().join("shared/weights").display().to_string();
    let text = SIGNAL.replace("[agents.a]", &format!("[agents.a]\nchat_template = {chat:?}"));
    let mut config = config(&text);
    config.tasks.source = format!("parquet:{data}/part-*.parquet");
    config.eval.source = Some(format!("jsonl:{held}"));
    let templates = [("speaker".to_owned(), toml::Value::from(speaker.clone()))];
    let templates = toml::Table::from_iter(templates);
    config.workflow.params.insert("templates".into(), templates.into());
    let mut grader = configs::GraderConfig::of(&format!("process:{reward}"));
    grader.judge = None;
    config.graders.insert("own".into(), grader);
    let b = config.agents.values_mut().nth(1).unwrap();
    b.train.warm_start = Some(warm_start(format!("jsonl:{warm}")));
    b.engine.weights_folder = Some(weights.clone().into());
    let services = services_of(&config, false);
    assert_eq!(
        bound(&services["coordinator"]),
        read_only(&[&data, &reward, &speaker]),
        "the folder of a pattern holds the other data set too"
    );
    assert_eq!(bound(&services["agent-a"]), read_only(&[&chat]));
    let mut of_b = read_only(&[&reward, &speaker, &warm]);
    of_b.insert(1, (weights.as_str(), false));
    assert_eq!(
        bound(&services["agent-b"]),
        of_b,
        "a warm start reads the workflow's prompts"
    );
}

#[test]
fn paths_of_containers_and_paths_missing_here_get_no_mount() {
    let mut config = config(SIGNAL);
    config.tasks.source = "jsonl:/missing/x.jsonl".into();
    let reward = configs::GraderConfig::of("process:/missing/re\nward.py");
    config.graders.insert("own".into(), reward);
    let a = config.agents.values_mut().next().unwrap();
    a.chat_template = Some("/configs/chat.jinja".into());
    a.train.command = vec!["/opt/dyad/bin/trainer".into()];
    a.engine.weights_folder = Some("/missing/weights".into());
    let services = services_of(&config, false);
    assert!(bound(&services["coordinator"]).is_empty());
    assert_eq!(bound(&services["agent-a"]), [("/missing/weights", false)]);
    // docker compose makes the folder of a short mount.
    let made = services["agent-a"]["volumes"].as_vec().unwrap().last().unwrap();
    assert_eq!(made.as_str(), Some("/missing/weights:/missing/weights:z"));
    let text = file(&config, &place(), false).unwrap();
    let missing = "is not on this host: the image or a volume must have it";
    for note in [
        format!("# /missing/x.jsonl (tasks.source) {missing}"),
        format!("# /missing/re\\nward.py (graders.own.kind) {missing}"),
        "# /missing/weights (agents.a.engine.weights_folder) is not on this host: make it".to_owned(),
    ] {
        assert!(text.contains(&format!("\n{note}")), "{note}: {text}");
    }
    assert!(!text.contains("# /configs") && !text.contains("# /opt"), "{text}");
}

#[test]
fn command_has_paths_in_its_program_and_in_absolute_files() {
    let root = tempfile::tempdir().unwrap();
    let settings = made(root.path(), "settings.toml");
    let folder = root.path().display().to_string();
    let with = |command: &[&str]| {
        let mut config = config(SIGNAL);
        let a = config.agents.values_mut().next().unwrap();
        a.train.command = command.iter().map(|word| (*word).to_owned()).collect();
        config
    };
    // Tests run in a folder that has `src` and `Cargo.toml`.
    for command in [
        ["python3", "-m", "src"].as_slice(),
        &["src", "."],
        &["trainer", "--scratch", &folder],
        &["/usr/bin/env", "Cargo.toml"],
    ] {
        let services = services_of(&with(command), false);
        assert!(bound(&services["agent-a"]).is_empty(), "{command:?}");
    }
    let services = services_of(&with(&["trainer", &settings]), false);
    assert_eq!(bound(&services["agent-a"]), read_only(&[&settings]));
    let text = file(&with(&["/missing/trainer"]), &place(), false).unwrap();
    assert!(
        text.contains("# /missing/trainer (agents.a.train.command) is not"),
        "{text}"
    );
    let refused = render(&file(&with(&["./Cargo.toml"]), &place(), false).unwrap_err());
    assert!(
        refused.contains("agents.a.train.command is ./Cargo.toml: move it below configs/"),
        "{refused}"
    );
}

#[test]
fn warm_start_of_the_hub_gets_its_cache() {
    let mut config = config(SIGNAL);
    let b = config.agents.values_mut().nth(1).unwrap();
    b.train.warm_start = Some(warm_start("hf:org/name".into()));
    let services = services_of(&config, false);
    let has_cache = |name: &str| {
        let mut volumes = services[name]["volumes"].as_vec().unwrap().iter();
        volumes.any(|volume| volume.as_str().is_some_and(|text| text.contains("huggingface")))
    };
    assert!(has_cache("agent-b") && !has_cache("agent-a") && !has_cache("coordinator"));
}

#[test]
fn paths_below_runs_are_in_the_volume() {
    let own = "runs/first/models/solver";
    let vllm = "lora = { rank = 8 }\nengine = { kind = \"vllm\", urls = [\"http://vllm-a:8000\"], weights_folder = \"runs/w\" }";
    let text = ASTRAFLOW.replace(ENGINES[0], vllm).replace("Qwen/Qwen3-8B", own);
    let services = services(&text, true);
    let command = words(&services["vllm-a"]);
    assert!(command.starts_with(&format!("/var/lib/dyad/{own} --port")), "{command}");
    for name in ["vllm-a", "agent-solver"] {
        assert!(bound(&services[name]).is_empty(), "{name}");
        let volumes = services[name]["volumes"].as_vec().unwrap();
        assert!(
            volumes
                .iter()
                .any(|volume| volume.as_str() == Some("runs:/var/lib/dyad/runs"))
        );
    }
    for hidden in ["configs/own/model/here", "/configs/model"] {
        let refused = refusal(&text.replace(own, hidden), true);
        assert!(refused.contains("containers of vLLM see no configs/"), "{refused}");
    }
}

#[test]
fn home_of_the_user_is_not_mounted() {
    let home = std::env::var("HOME").unwrap_or_else(|_| "/".into());
    let mut config = config(SIGNAL);
    config.tasks.source = format!("jsonl:{home}/*.jsonl");
    let refused = render(&file(&config, &place(), false).unwrap_err());
    assert!(
        refused.contains("tasks.source is") && refused.contains("put the files into a folder of their own"),
        "{refused}"
    );
}

#[test]
fn programs_of_suites_need_python_too() {
    let mut config = config(SIGNAL);
    let note = "the image has no Python";
    assert!(!file(&config, &place(), false).unwrap().contains(note));
    let suite = configs::SuiteConfig {
        source: "generator:signal".into(),
        grader: Some("process:configs/programs/own.py".into()),
        ..configs::SuiteConfig::default()
    };
    config.eval.suites.insert("own".into(), suite);
    assert!(file(&config, &place(), false).unwrap().contains(note));
}

#[test]
fn paths_that_no_container_has_are_refused_by_their_key() {
    let refused = |change: Change| {
        let mut config = config(SIGNAL);
        let first = config.agents.keys().next().unwrap().clone();
        change(&mut config, &first);
        render(&file(&config, &place(), false).unwrap_err())
    };
    let cases: [(&str, Change); 9] = [
        ("tasks.source is up/../x.jsonl: write it without `..`", |config, _| {
            config.tasks.source = "jsonl:up/../x.jsonl".into();
        }),
        (
            "tasks.source is /*/x.jsonl, and containers would see all of /: put",
            |config, _| {
                config.tasks.source = "jsonl:/*/x.jsonl".into();
            },
        ),
        (
            "tasks.source is /opt/*.jsonl, and mounting /opt would hide",
            |config, _| {
                config.tasks.source = "jsonl:/opt/*.jsonl".into();
            },
        ),
        ("tasks.source is src: move it below configs/", |config, _| {
            config.tasks.source = "hf:src".into();
        }),
        ("workflow.kind is mine.py: move it below configs/", |config, _| {
            config.workflow.kind = "process:mine.py".into();
        }),
        ("agents.a.chat_template is chat.jinja: move it below", |config, name| {
            config.agents.get_mut(name).unwrap().chat_template = Some("chat.jinja".into());
        }),
        (
            "agents.a.engine.weights_folder is configs/w: write its absolute",
            |config, name| {
                config.agents.get_mut(name).unwrap().engine.weights_folder = Some("configs/w".into());
            },
        ),
        (
            "agents.a.model.path is ./own: move it below configs/",
            |config, name| {
                config.agents.get_mut(name).unwrap().model = ModelConfig::Path("./own".into());
            },
        ),
        (
            "https://huggingface.co/a/b, which is a URL: write a/b",
            |config, name| {
                config.agents.get_mut(name).unwrap().model = ModelConfig::Path("https://huggingface.co/a/b".into());
            },
        ),
    ];
    for (said, change) in cases {
        let error = refused(change);
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[test]
fn paths_below_configs_need_no_mount_of_their_own() {
    let mut config = config(SIGNAL);
    config.tasks.source = "jsonl:./configs/data/x.jsonl".into();
    config
        .agents
        .values_mut()
        .for_each(|agent| agent.chat_template = Some("configs/chat.jinja".into()));
    let services = services_of(&config, false);
    assert!(bound(&services["coordinator"]).is_empty() && bound(&services["agent-a"]).is_empty());
}

#[test]
fn dollars_and_colons_of_paths_stay_what_they_are() {
    let mut config = config(SIGNAL);
    let root = tempfile::tempdir().unwrap();
    let data = made(root.path(), "da$ta/a:b.jsonl");
    config.tasks.source = format!("jsonl:{data}");
    let chat = made(root.path(), "da$ta/chat.jinja");
    let weights = "/missing/w:0";
    let a = config.agents.values_mut().next().unwrap();
    a.chat_template = Some(chat.clone().into());
    a.engine.weights_folder = Some(weights.into());
    let place = Place::of(
        Path::new("my $file.toml"),
        Path::new("/m$ine/my $file.toml"),
        Path::new("/here"),
    );
    let text = file(&config, &place, false).unwrap();
    let shown = data.replace('$', "$$");
    let mount = format!("source: \"{shown}\", target: \"{shown}\"");
    assert!(text.contains(&mount), "{text}");
    // A path that is missing must not be made, unless a container writes into it.
    assert!(text.contains("source: \"/m$$ine\", target: \"/configs\""), "{text}");
    let made = format!(
        "source: \"{weights}\", target: \"{weights}\", read_only: false, bind: {{selinux: z, create_host_path: true}}"
    );
    assert!(text.contains(&made), "{text}");
    let chat = chat.replace('$', "$$");
    assert!(text.contains(&format!("- \"{chat}:{chat}:ro,z\"")), "{text}");
    assert!(
        text.contains("\"--config\", \"/configs/my $$file.toml\", \"--run\", \"${DYAD_RUN:-signal}\""),
        "{text}"
    );
    assert!(
        text.starts_with("# Made by `dyad compose 'my $file.toml'`, for"),
        "{text}"
    );
}

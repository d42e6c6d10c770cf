use std::path::Path;

use super::*;
use crate::cli::exit_code::{code, render};

#[test]
fn everything_missing_is_listed_with_each_command_once() {
    let text = include_str!("../../../../configs/actor-verifier-astraflow.toml");
    let config = RunConfig::parse(text, Path::new("x.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path().to_owned());
    let refused: anyhow::Error = refusal(&config, &cache).unwrap().into();
    assert_eq!(code(&refused), 2);
    let said = render(&refused);
    for command in [
        "hf download Qwen/Qwen3-8B",
        "hf download --repo-type dataset HuggingFaceH4/aime_2024",
        "hf download --repo-type dataset math-ai/aime25",
        "hf download --repo-type dataset HuggingFaceH4/MATH-500",
    ] {
        assert_eq!(
            said.lines().filter(|line| line.trim() == command).count(),
            1,
            "{command}: {said}"
        );
    }
    for key in [
        "agents.",
        "eval.source",
        "eval.suites.aime24.source",
        "eval.suites.math500.source",
    ] {
        assert!(said.contains(key), "{key}: {said}");
    }

    let mut config = config;
    let local = crate::run_folder::tests::config_in(folder.path());
    assert!(refusal(&local, &cache).is_none(), "none of it comes from the Hub");
    for suite in config.eval.suites.values_mut() {
        suite.every = None;
    }
    let keys: Vec<String> = missing(&config, &cache).into_iter().map(|(key, _)| key).collect();
    assert!(
        !keys.iter().any(|key| key.starts_with("eval.suites.")),
        "`dyad eval` needs them: {keys:?}"
    );
}

/// Returns a configuration of which agent a misses a template, and the coordinator its tasks.
fn with_missing_files(base: &Path) -> RunConfig {
    let mut config = crate::run_folder::tests::config_in(base);
    config.tasks.source = "jsonl:nowhere/tasks.jsonl".into();
    let a = config.agents.values_mut().next().unwrap();
    a.chat_template = Some("nowhere/chat.jinja".into());
    config
}

fn said(checked: anyhow::Result<()>) -> String {
    let error = checked.unwrap_err();
    assert_eq!(code(&error), 2);
    render(&error)
}

#[test]
fn each_process_needs_only_what_it_reads() {
    let base = tempfile::tempdir().unwrap();
    let config = with_missing_files(base.path());
    let [a, b] = ["a", "b"].map(|name| AgentName::new(name).unwrap());
    let of_a = said(require_agent(&config, &a, None));
    assert!(
        of_a.contains("agents.a.chat_template: there is no file nowhere/chat.jinja"),
        "{of_a}"
    );
    assert!(!of_a.contains("tasks.source"), "{of_a}");
    require_agent(&config, &b, None).unwrap();
    let coordinator = said(require_coordinator(&config));
    assert!(
        coordinator.contains("tasks.source: nowhere/tasks.jsonl is not a file"),
        "{coordinator}"
    );
    assert!(!coordinator.contains("chat_template"), "{coordinator}");
    let all = said(require(&config, Processes::One, None));
    assert!(
        all.contains("tasks.source: ") && all.contains("agents.a.chat_template: "),
        "{all}"
    );
}

#[test]
fn missing_device_or_model_is_that_of_its_agent() {
    let base = tempfile::tempdir().unwrap();
    let mut config = crate::run_folder::tests::config_in(base.path());
    let [a, b] = ["a", "b"].map(|name| AgentName::new(name).unwrap());
    config.agents.get_mut(&a).unwrap().device = DeviceName::Cuda(99);
    config.agents.get_mut(&b).unwrap().model = configs::ModelConfig::Path("/nowhere/model".into());
    assert!(said(require_agent(&config, &a, None)).contains("device cuda:99 of a: "));
    let of_b = said(require_agent(&config, &b, None));
    assert!(of_b.contains("agents.b.model: ") && !of_b.contains("cuda"), "{of_b}");
    require_coordinator(&config).unwrap();
}

#[test]
fn missing_program_stops_the_coordinator_before_it_starts() {
    let base = tempfile::tempdir().unwrap();
    let mut config = crate::run_folder::tests::config_in(base.path());
    let grader = configs::GraderConfig::of("process:nowhere/reward.py");
    config.graders.insert("own".into(), grader);
    let text = said(require_coordinator(&config));
    assert!(
        text.contains("graders.own") && text.contains("nowhere/reward.py"),
        "{text}"
    );
    let a = AgentName::new("a").unwrap();
    require_agent(&config, &a, None).unwrap();
}

#[test]
fn warm_start_is_needed_only_before_it_was_made() {
    let base = tempfile::tempdir().unwrap();
    let mut config = crate::run_folder::tests::config_in(base.path());
    let a = AgentName::new("a").unwrap();
    config.agents.get_mut(&a).unwrap().train.warm_start = Some(configs::WarmStartConfig {
        source: "jsonl:nowhere/warm.jsonl".into(),
        steps: 1,
        batch: 1,
        lr: 1e-3,
        params: toml::Table::new(),
    });
    let folder = RunFolder::create(base.path(), &config, None).unwrap();
    let text = said(require_agent(&config, &a, Some(&folder)));
    assert!(text.contains("agents.a.train.warm_start.source: "), "{text}");
    std::fs::create_dir_all(folder.initial(&a)).unwrap();
    require_agent(&config, &a, Some(&folder)).unwrap();
    require(&config, Processes::One, Some(&folder)).unwrap();
}

#[test]
fn unknown_program_of_a_trainer_is_named() {
    let base = tempfile::tempdir().unwrap();
    let mut config = crate::run_folder::tests::config_in(base.path());
    let a = AgentName::new("a").unwrap();
    config.agents.get_mut(&a).unwrap().train.command = vec!["no-such-trainer".into(), "--fast".into()];
    let text = said(require_agent(&config, &a, None));
    assert!(
        text.contains("agents.a.train.command: \"no-such-trainer\" is neither"),
        "{text}"
    );
}

#[test]
fn damaged_model_folder_stops_its_agent_before_it_starts() {
    let base = tempfile::tempdir().unwrap();
    let mut config = crate::run_folder::tests::config_in(base.path());
    let [a, b] = ["a", "b"].map(|name| AgentName::new(name).unwrap());
    config.agents.get_mut(&b).unwrap().model = configs::ModelConfig::Path(base.path().into());
    for checked in [
        require(&config, Processes::One, None),
        require(&config, Processes::Each, None),
        require_agent(&config, &b, None),
    ] {
        let text = said(checked);
        let fault = format!(
            "agents.b.model: reading {}: ",
            base.path().join("config.json").display()
        );
        assert!(text.contains(&fault), "{text}");
    }
    require_agent(&config, &a, None).unwrap();
    require_coordinator(&config).unwrap();
}

#[test]
fn unplayable_tasks_or_evaluations_stop_a_run_before_it_starts() {
    let base = tempfile::tempdir().unwrap();
    let config = crate::run_folder::tests::config_in(base.path());
    let path = base.path().join("t.jsonl");
    std::fs::write(&path, "{\"prompt\": \"o1\"}\n").unwrap();
    let source = format!("jsonl:{}", path.display());
    require(&config, Processes::One, None).unwrap();
    type Change = fn(&mut RunConfig, String);
    let cases: [(&str, Change); 3] = [
        ("tasks.source: ", |config, source| config.tasks.source = source),
        ("eval.source: ", |config, source| config.eval.source = Some(source)),
        ("eval.suites.s.source: ", |config, source| {
            let suite = format!("source = {source:?}\nevery = 1");
            config.eval.suites.insert("s".into(), toml::from_str(&suite).unwrap());
        }),
    ];
    for (key, change) in cases {
        let mut config = config.clone();
        change(&mut config, source.clone());
        for processes in [Processes::One, Processes::Each] {
            let text = said(require(&config, processes, None));
            assert!(text.contains(key) && text.contains("nothing under \"label\""), "{text}");
        }
    }
}

#[test]
fn warm_start_without_examples_stops_a_run_before_it_starts() {
    let base = tempfile::tempdir().unwrap();
    let mut config = crate::run_folder::tests::config_in(base.path());
    let path = base.path().join("w.jsonl");
    std::fs::write(&path, "{\"messages\": [{\"role\": \"user\", \"content\": \"?\"}]}\n").unwrap();
    let lines = format!("jsonl:{}", path.display());
    for (source, why) in [
        ("generator:signal", "is no warm start"),
        (&lines, "line 1: the last of at least two messages"),
    ] {
        let warm = format!("source = {source:?}\nsteps = 1\nbatch = 1\nlr = 1e-3");
        let b = AgentName::new("b").unwrap();
        config.agents.get_mut(&b).unwrap().train.warm_start = Some(toml::from_str(&warm).unwrap());
        let text = said(require(&config, Processes::One, None));
        assert!(text.contains("agents.b.train.warm_start.source: "), "{text}");
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn dead_server_stops_a_new_run_before_its_folder_is_made() {
    let base = tempfile::tempdir().unwrap();
    let mut config = crate::run_folder::tests::config_in(base.path());
    require_servers(&config).unwrap();
    config.run.state = "redis://127.0.0.1:1/0".into();
    assert_eq!(code(&require_servers(&config).unwrap_err()), 75);
    assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
}

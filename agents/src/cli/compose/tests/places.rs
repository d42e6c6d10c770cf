//! The paths of a configuration: mounted, or refused by their key.

use super::*;

/// A change of a configuration; its first agent has this name.
type Change = fn(&mut RunConfig, &AgentName);

#[test]
fn files_outside_configs_are_mounted_where_they_are_read() {
    let text = SIGNAL.replace("[agents.a]", "[agents.a]\nchat_template = \"/t/chat.jinja\"");
    let mut config = config(&text);
    config.tasks.source = "parquet:/data/part-*.parquet".into();
    config.eval.source = Some("jsonl:/data/held/out.jsonl".into());
    let templates = [("speaker".to_owned(), toml::Value::from("/w/speaker.jinja"))];
    let templates = toml::Table::from_iter(templates);
    config.workflow.params.insert("templates".into(), templates.into());
    let mut grader = configs::GraderConfig::of("process:/p/reward.py");
    grader.judge = None;
    config.graders.insert("own".into(), grader);
    let b = config.agents.values_mut().nth(1).unwrap();
    b.train.warm_start = Some(configs::WarmStartConfig {
        source: "jsonl:/warm/b.jsonl".into(),
        steps: 1,
        batch: 1,
        lr: 1e-3,
        params: toml::Table::new(),
    });
    b.engine.weights_folder = Some("/shared/weights".into());
    let services = services_of(&config, false);
    let read = |paths: &[&'static str]| paths.iter().map(|path| (*path, true)).collect::<Vec<_>>();
    assert_eq!(
        bound(&services["coordinator"]),
        read(&["/data", "/p/reward.py", "/w/speaker.jinja"]),
        "the folder of a pattern holds the other data set too"
    );
    assert_eq!(bound(&services["agent-a"]), read(&["/t/chat.jinja"]));
    let mut of_b = read(&["/p/reward.py", "/w/speaker.jinja", "/warm/b.jsonl"]);
    of_b.insert(1, ("/shared/weights", false));
    assert_eq!(
        bound(&services["agent-b"]),
        of_b,
        "a warm start reads the workflow's prompts"
    );
}

#[test]
fn paths_that_no_container_has_are_refused_by_their_key() {
    let refused = |change: Change| {
        let mut config = config(SIGNAL);
        let first = config.agents.keys().next().unwrap().clone();
        change(&mut config, &first);
        render(&file(&config, &place(), false).unwrap_err())
    };
    let cases: [(&str, Change); 7] = [
        ("tasks.source is up/../x.jsonl: write it without `..`", |config, _| {
            config.tasks.source = "jsonl:up/../x.jsonl".into();
        }),
        ("tasks.source is /*/x.jsonl, and mounting / would hide", |config, _| {
            config.tasks.source = "jsonl:/*/x.jsonl".into();
        }),
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
    config.tasks.source = "jsonl:/da$ta/a:b.jsonl".into();
    let place = Place::of(
        Path::new("my $file.toml"),
        Path::new("/m$ine/my $file.toml"),
        Path::new("/here"),
    );
    let text = file(&config, &place, false).unwrap();
    assert!(
        text.contains("source: \"/da$$ta/a:b.jsonl\", target: \"/da$$ta/a:b.jsonl\""),
        "{text}"
    );
    assert!(text.contains("source: \"/m$$ine\", target: \"/configs\""), "{text}");
    assert!(
        text.contains("\"--config\", \"/configs/my $$file.toml\", \"--run\", \"${DYAD_RUN:-signal}\""),
        "{text}"
    );
    assert!(
        text.starts_with("# Made by `dyad compose 'my $file.toml'`, for"),
        "{text}"
    );
}

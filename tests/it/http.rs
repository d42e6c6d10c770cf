//! Agents that answer over HTTP while they train, asked by OpenAI's own client.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tests::ports::quiet_port;
use tests::program::{Program, Running, fail, metrics, signal, wait_until};
use tests::small::Small;
use tests::trace::digests;

use crate::program;

const PATIENCE: Duration = Duration::from_secs(240);
const TOKEN: &str = "0123456789abcdef-of-the-tests";

/// Returns a command that runs OpenAI's client.
fn python(scenario: &str, urls: &[String]) -> Command {
    let python = std::env::var_os("DYAD_TEST_PYTHON").unwrap_or_else(|| "tests/.venv/bin/python".into());
    let mut command = Command::new(python);
    command
        .arg("tests/python/openai_client.py")
        .arg(scenario)
        .args(urls)
        .current_dir(Program::root())
        .stdin(Stdio::null());
    command
}

/// Plays a scenario to its end, which must be good. Returns its output.
fn scenario(name: &str, urls: &[String], token: Option<&str>) -> String {
    let mut command = python(name, urls);
    if let Some(token) = token {
        command.env("DYAD_HTTP_TOKEN", token);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{name}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// Returns a run without end in which a trains and b is frozen, with room for long answers.
fn without_end() -> Small {
    Small::new()
        .set("run.mode", "async")
        .set("run.train_steps", 1_000_000)
        .set("workflow.group_size", 16)
        .set("defaults.agent.model.random.max_context", 20_000)
        .set("agents.b.http.context", 20_000)
        .set("defaults.agent.train.checkpoint_every", 0)
        .set("agents.b.train.enabled", false)
}

fn start(program: &Program, config: &Small, environment: &[(&str, &str)]) -> Running {
    program.launch("run", &config.save(program), environment)
}

#[test]
fn openais_client_talks_to_agents_while_they_train() {
    let program = program();
    let config = without_end()
        .set("defaults.agent.http.listen", "127.0.0.1:0")
        .set("agents.a.engine.replicas", 2);
    // Log every line, so that a token in any of them is found.
    let mut run = start(&program, &config, &[("DYAD_HTTP_TOKEN", TOKEN), ("RUST_LOG", "trace")]);
    let urls = [program.front("a"), program.front("b")];
    scenario("training", &urls, Some(TOKEN));
    assert!(run.running());
    let trained = metrics(&program.run_folder(), "train").len();
    wait_until("more steps after the scenario", PATIENCE, || {
        metrics(&program.run_folder(), "train").len() > trained
    });
    drop(run);
    let mut files = vec![program.run_folder()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes());
        assert!(!found, "the token is in {}", path.display());
    }
}

#[test]
fn a_client_that_leaves_is_cancelled_and_one_too_many_rejected() {
    let program = program();
    let config = without_end()
        .set("agents.b.http.listen", "127.0.0.1:0")
        .set("agents.b.http.requests", 1)
        .set("agents.b.http.generations", 1);
    let _run = start(&program, &config, &[]);
    scenario("leaving", &[program.front("b")], None);
}

#[test]
fn an_engine_without_a_model_answers_too() {
    let program = program();
    let config = Small::scripted()
        .set("run.train_steps", 1_000_000)
        .set("agents.a.http.listen", "127.0.0.1:0");
    let _run = start(&program, &config, &[]);
    scenario("scripted", &[program.front("a")], None);
}

/// Waves are computed alone: a chatting client changes no trained sample and receives whole
/// answers.
#[test]
fn a_synchronous_run_is_the_same_with_a_client_that_chats() {
    let run = |fronts: bool| {
        let program = program();
        let mut config = Small::new().set("workflow.group_size", 32).set("run.train_steps", 150);
        let mut urls = Vec::new();
        if fronts {
            for agent in ["a", "b"] {
                let listen = format!("127.0.0.1:{}", quiet_port());
                urls.push(format!("http://{listen}/v1"));
                config = config.set(&format!("agents.{agent}.http.listen"), listen);
            }
        }
        let client = fronts.then(|| python("chatter", &urls).stdout(Stdio::piped()).spawn().unwrap());
        start(&program, &config, &[]).finish(PATIENCE);
        let counts = client.map(|client| client.wait_with_output().unwrap());
        let digests = digests(&program.run_folder());
        assert!(digests.len() >= 4, "{digests:?}");
        (
            digests,
            counts.map(|output| serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()),
        )
    };
    let (with, counts) = run(true);
    let counts = counts.unwrap();
    assert!(counts["answers"].as_u64().unwrap() >= 8, "{counts}");
    assert!(
        counts["versions"].as_u64().unwrap() >= 2,
        "an answer was interrupted by rounds: {counts}"
    );
    assert_eq!(with, run(false).0);
}

fn line(child: &mut Child) -> impl FnMut() -> String + use<> {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    move || lines.next().unwrap().unwrap()
}

#[test]
fn a_stream_that_outlasts_the_run_ends_with_the_reason() {
    let program = program();
    let config = without_end()
        .set("agents.b.http.listen", "127.0.0.1:0")
        .set("agents.b.http.context", 1_000_000)
        .set("defaults.agent.model.random.max_context", 2_000_000);
    let mut run = start(&program, &config, &[]);
    let mut client = python("last_words", &[program.front("b")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = line(&mut client);
    assert_eq!(line(), "begun");
    signal("TERM", run.pid());
    let last = line();
    assert!(last.contains("the run is ending"), "{last}");
    assert!(client.wait().unwrap().success());
    assert!(run.end(Duration::from_secs(30)).is_some(), "{}", run.log());
}

#[test]
#[ignore = "slow: `make test-long`; its clients are a large environment"]
fn the_clients_that_people_have_talk_to_a_training_agent() {
    let program = program();
    let config = without_end()
        .set("defaults.agent.model.random.tokenizer", "bytes")
        .set("defaults.agent.http.listen", "127.0.0.1:0");
    let _run = start(&program, &config, &[]);
    let python = std::env::var_os("DYAD_FIELD_PYTHON").unwrap_or_else(|| "tests/.venv-field/bin/python".into());
    let tokenizer = program.run_folder().join("models/a");
    let output = Command::new(python)
        .arg("tests/python/field_clients.py")
        .args([&program.front("a"), "a", program.home().to_str().unwrap()])
        .arg(tokenizer)
        .current_dir(Program::root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for client in ["litellm", "langchain", "harness"] {
        assert!(said.contains(&format!("{client} ok")), "{said}");
    }
}

/// A front that other machines reach needs a token; the run is refused before anything is loaded.
#[test]
fn no_front_listens_to_the_network_without_a_token() {
    let program = program();
    let config = without_end().set("agents.b.http.listen", "0.0.0.0:0");
    let (path, runs) = (config.save(&program), program.runs());
    let args = ["run", &path, "--folder", runs.to_str().unwrap()];
    let said = program.fail(2, &args);
    assert!(said.contains("DYAD_HTTP_TOKEN") && said.contains("0.0.0.0:0"), "{said}");
    let said = fail(2, program.command(&args).env("DYAD_HTTP_TOKEN", "short"));
    assert!(said.contains("can be guessed"), "{said}");
}

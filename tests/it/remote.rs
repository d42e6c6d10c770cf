//! Participants over RabbitMQ: they play the same conversations as a Rust type and a program, and
//! nothing is lost when one dies.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use broker::bus::Bus;
use broker::protocol::Kind;
use configs::ParticipantName;
use tests::kit::{configuration, essence, played};
use tests::letters::{broker_of, connect, message, topology};
use tests::program::{Program, json_lines, wait_for, wait_until};
use tests::servers::Servers;
use tests::small::Small;
use tests::trace::nothing_lost;

use crate::program;

const PATIENCE: Duration = Duration::from_secs(180);
const NAME: &str = "referee";

/// Returns a Python with pika, if the tests have one.
fn python() -> Option<String> {
    let python = std::env::var("DYAD_TEST_PYTHON").ok();
    if python.is_none() {
        println!("skipped: DYAD_TEST_PYTHON names no Python with pika (`make test` sets it)");
    }
    python
}

/// The shipped participant as a process, ended with the test.
struct Participant(Child);

impl Participant {
    fn start(python: &str, broker: &str, run: &str) -> Self {
        let shipped = Program::root().join("configs/programs/remote_workflow.py");
        Self::of(&shipped, python, broker, run)
    }

    fn of(file: &Path, python: &str, broker: &str, run: &str) -> Self {
        let child = Command::new(python)
            .arg(file)
            .arg(NAME)
            .env("DYAD_BROKER", broker)
            .env("DYAD_RUN", run)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_rust_type_a_program_and_a_participant_play_the_same() {
    let Some(python) = python() else { return };
    let (program, servers) = (program(), Servers::start());
    let file = |kind: &str| {
        let name = kind.split(':').next().unwrap();
        configuration(kind).write(&program.home().join(format!("{name}.toml")))
    };
    let broker = servers.rabbit.url();
    let _participant = Participant::start(&python, &broker, "contract");
    let rust = played(&program, &file("solve-verify"), &[]);
    let own = Program::exactly(env!("CARGO_BIN_EXE_own-workflow"));
    let own = played(&own, &file("double-check"), &[]);
    let process = played(&program, &file("process:configs/programs/solve_verify.py"), &[]);
    let over = ["--broker", &broker, "--run", "contract"];
    let remote = played(&program, &file("remote:referee"), &over);
    assert_eq!((rust.len(), own.len(), process.len(), remote.len()), (32, 32, 32, 32));
    let retries = rust.iter().filter(|one| one["rewards"].get("retry").is_some()).count();
    assert!(
        (1..32).contains(&retries),
        "{retries} of 32 retried: the answers reach too little"
    );
    for (((rust, own), process), remote) in rust.iter().zip(&own).zip(&process).zip(&remote) {
        assert_eq!(rust["status"], "completed");
        assert_eq!(essence(rust), essence(own), "a Rust type of another crate");
        assert_eq!(essence(rust), essence(process));
        assert_eq!(process, remote, "the same decisions in the same words");
    }
    // A grader over RabbitMQ gives the same rewards as the rule.
    let config = configuration("solve-verify").set("graders.correct.kind", "remote:referee");
    let config = config
        .set("graders.correct.timeout", "120s")
        .write(&program.home().join("graded.toml"));
    let graded = played(&program, &config, &over);
    assert_eq!(graded.len(), 32);
    for (rule, remote) in rust.iter().zip(&graded) {
        assert_eq!(essence(rule), essence(remote));
    }
    let task = ["--task", "configs/programs/task.json"];
    let said = program.fail(
        2,
        &[&["workflow", "test", config.to_str().unwrap()][..], &task].concat(),
    );
    assert!(said.contains("--broker"), "{said}");
}

/// The same contract as for a Rust type: made-up conversations in which each question is asked
/// twice.
#[test]
fn workflow_test_puts_a_participant_through_the_contract() {
    let Some(python) = python() else { return };
    let (program, servers) = (program(), Servers::start());
    let (home, broker) = (program.home(), servers.rabbit.url());
    let config = configuration("remote:referee").write(&home.join("kept.toml"));
    let test = |run: &str| {
        let config = config.to_str().unwrap();
        let task = ["--task", "configs/programs/task.json"];
        let run = ["--broker", &broker, "--run", run];
        let output = program.output(&[&["workflow", "test", config][..], &task, &run].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let _shipped = Participant::start(&python, &broker, "kept");
    let (code, said) = test("kept");
    assert!(
        code == Some(0) && said.contains("remote:referee keeps its contract in 8 made-up conversations"),
        "{said}"
    );
    let shipped = std::fs::read_to_string(Program::root().join("configs/programs/remote_workflow.py")).unwrap();
    let clock = shipped.replace("\"prompt\": prompt}", "\"prompt\": f\"{prompt}{time.time_ns()}\"}");
    assert_ne!(shipped, clock);
    let file = home.join("clock.py");
    std::fs::write(&file, clock).unwrap();
    let _clock = Participant::of(&file, &python, &broker, "clock");
    let (code, said) = test("clock");
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "remote:referee does not keep its contract: it gave two answers to the same question",
        "the question: {",
        "the first answer: {",
        "the second answer: {",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}

/// A live run of the shipped configuration.
struct Live {
    program: Program,
    running: tests::program::Running,
    run: PathBuf,
    broker: String,
}

fn live(steps: i64) -> Live {
    let program = program();
    let config = Small::of("configs/remote.toml")
        .set("run.transcripts", "all")
        .set("workflow.process.timeout", "120s")
        .set("workflow.process.workers", 2)
        .set("run.train_steps", steps)
        .save(&program);
    let running = program.launch("up", &config, &[]);
    let run = program.run_folder();
    let broker = wait_for("the broker", PATIENCE, || broker_of(&run));
    Live {
        program,
        running,
        run,
        broker,
    }
}

impl Live {
    fn id(&self) -> &str {
        self.run.file_name().unwrap().to_str().unwrap()
    }

    fn says(&self, words: &str) -> bool {
        let lines = json_lines(&self.run.join("logs/coordinator.jsonl"));
        lines.iter().any(|line| line.to_string().contains(words))
    }

    fn conversations(&self) -> usize {
        let files = std::fs::read_dir(self.run.join("transcripts"));
        let files = files.into_iter().flatten().flatten();
        files.map(|file| json_lines(&file.path()).len()).sum()
    }
}

#[test]
fn a_run_waits_for_its_participant_and_survives_its_kill() {
    let Some(python) = python() else { return };
    let mut live = live(4);
    wait_until("the warning about the absent participant", PATIENCE, || {
        live.says("no copy of the participant is connected")
    });
    assert_eq!(live.conversations(), 0);
    let first = Participant::start(&python, &live.broker, live.id());
    wait_until("conversations", PATIENCE, || live.conversations() >= 8);
    // SIGKILL while it holds questions.
    drop(first);
    // Answers to no question, under the participant's name and under another, and bytes that are no
    // answer.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let sent = runtime.block_on(async { tokio::time::timeout(PATIENCE, nonsense(&live)).await });
    assert!(
        sent.is_ok(),
        "no question came within {PATIENCE:?}, or the broker took no answer"
    );
    let _second = Participant::start(&python, &live.broker, live.id());
    let _third = Participant::start(&python, &live.broker, live.id());
    live.running.finish(PATIENCE);
    for agent in ["solver", "verifier"] {
        nothing_lost(&live.run, agent);
    }
    let failed = json_lines(&live.run.join("logs/coordinator.jsonl"));
    let failed = failed
        .iter()
        .filter(|line| line.to_string().contains("has no answer"))
        .count();
    assert_eq!(failed, 0, "no question failed: questions without an ack came again");
    let _ = &live.program;
}

/// Publishes answers that no question waits for to every coordinator of the run.
async fn nonsense(live: &Live) {
    let topology = topology(live.id());
    let bus = connect(&live.broker).await;
    let questions = topology.questions(&ParticipantName::new(NAME).unwrap());
    // The question carries the key of its answer.
    let mut asked = bus.consume(&questions, 1).await.unwrap();
    let question = asked.next().await.unwrap();
    let key = question.header("answer_key").unwrap().to_owned();
    let correlation = question.correlation_id.clone();
    let incarnation = key.split('.').nth(1).unwrap();
    let own = topology.to_answers(incarnation, NAME);
    assert_eq!(own.routing_key, key);
    let other = topology.to_answers(incarnation, "other");
    for (n, (to, correlation)) in [
        (own.clone(), Some("late-1".to_owned())),
        (own.clone(), None),
        (other, correlation),
    ]
    .into_iter()
    .enumerate()
    {
        let mut message = message(to, Kind::Question, &format!("nonsense-{n}"), *b"{");
        message.correlation_id = correlation;
        bus.publish(message).await.unwrap();
    }
    question.acker.reject(true).await;
    bus.close().await;
}

#[test]
fn with_a_broker_in_memory_a_participant_is_refused_by_name() {
    let program = program();
    let config = configuration("remote:referee").save(&program);
    for command in ["check", "run"] {
        let said = program.fail(2, &[command, &config]);
        assert!(
            said.contains("run.broker") && said.contains("referee"),
            "{command}: {said}"
        );
    }
}

#[test]
fn an_absent_participant_is_reported_and_no_queue_stays() {
    let (program, servers) = (program(), Servers::start());
    let (config, broker) = (configuration("remote:referee").save(&program), servers.rabbit.url());
    let task = ["--task", "configs/programs/task.json", "--broker", &broker];
    let args = ["workflow", "test", &config, "--run", "absent", "--wait", "1s"];
    let said = program.fail(75, &[&args[..], &task].concat());
    assert!(
        said.contains("no program listens as participant referee") && said.contains("DYAD_RUN=absent"),
        "{said}"
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let bus = connect(&broker).await;
        let topology = topology("absent");
        let questions = topology.questions(&ParticipantName::new(NAME).unwrap());
        for queue in [questions, topology.dead(), topology.tasks()] {
            assert_eq!(bus.depth(&queue).await, None, "{} is still there", queue.name);
        }
        bus.close().await;
    });
}

/// Plays as `make recipes` does: the participant finds the run's broker and ends with the run.
#[test]
fn the_table_of_recipes_brings_the_participant() {
    let Some(python) = python() else { return };
    let program = program();
    let base = program.home().join("base");
    let folder = ["--folder", base.to_str().unwrap()];
    let arguments = [&["recipes", "configs/remote.toml", "--steps", "2"][..], &folder].concat();
    let mut running = program.start_with(&arguments, &[("DYAD_PYTHON", &python)]);
    running.finish(PATIENCE);
    assert!(running.log().contains("remote: ok"), "{}", running.log());
}

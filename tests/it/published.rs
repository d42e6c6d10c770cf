//! Tasks that others publish: trained on, or in the dead letters with a reason a person understands.

use std::path::Path;
use std::time::Duration;

use broker::bus::amqp::AmqpBus;
use broker::bus::{Bus, Outgoing};
use broker::ids::RunId;
use broker::protocol::Kind;
use broker::topology::Topology;
use tests::letters::{Letter, connect, dead_letters};
use tests::program::{Program, Running, json_lines, metrics, wait_for};
use tests::trace::audit;

const PATIENCE: Duration = Duration::from_secs(120);
/// Two batches of four groups.
const GOOD: usize = 8;

/// The signal game on published tasks alone, in small batches, as they arrive.
fn configuration(program: &Program) -> std::path::PathBuf {
    let text = std::fs::read_to_string(Program::root().join("configs/signal.toml")).unwrap();
    let changes = [
        ("source = \"generator:signal\"   #", "source = \"queue\"   #"),
        ("params = { objects = 16 }\n\n[workflow]", "\n[workflow]"),
        ("mode = \"sync\" ", "mode = \"async\" "),
        ("train_steps = 1500", "train_steps = 2"),
        ("group_size = 16 ", "group_size = 4 "),
        ("batch_groups = 16 ", "batch_groups = 4 "),
        ("max_staleness = 0", "max_staleness = 1"),
    ];
    let text = changes.into_iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "configs/signal.toml no longer has {from:?}");
        text.replace(from, to)
    });
    let path = program.runs().parent().unwrap().join("published.toml");
    std::fs::write(&path, text).unwrap();
    path
}

struct Live {
    program: Program,
    running: Running,
    run: std::path::PathBuf,
}

fn live() -> Live {
    let program = Program::new(env!("CARGO_BIN_EXE_dyad-under-test"));
    let config = configuration(&program);
    let runs = program.runs();
    let running = program.start(&["up", config.to_str().unwrap(), "--folder", runs.to_str().unwrap()]);
    let run = program.run_folder();
    wait_for("the run to be running", PATIENCE, || {
        let lines = json_lines(&run.join("logs/coordinator.jsonl"));
        lines
            .iter()
            .any(|line| line["message"] == "the run is running")
            .then_some(())
    });
    Live { program, running, run }
}

async fn bus(run: &Path) -> (std::sync::Arc<AmqpBus>, Topology) {
    let connection: serde_json::Value =
        serde_json::from_slice(&std::fs::read(run.join("connection.json")).unwrap()).unwrap();
    let bus = connect(connection["broker"].as_str().unwrap()).await;
    let id = run.file_name().unwrap().to_str().unwrap();
    (bus, Topology::new(RunId::new(id).unwrap()))
}

/// What must be refused, as what, and words that its reason must have.
fn poison() -> Vec<(&'static str, Vec<u8>, &'static str, &'static [&'static str])> {
    let oversize = format!("{{\"prompt\": \"{}\", \"label\": \"o1\"}}", "x".repeat(1 << 20));
    vec![
        (
            "malformed",
            b"{\"prompt\": \"o1\"".to_vec(),
            "malformed",
            &["not a task", "EOF"],
        ),
        (
            "wrong-type",
            b"{\"prompt\": 7, \"label\": \"o1\"}".to_vec(),
            "malformed",
            &["not a task", "prompt"],
        ),
        (
            "wrong-workflow",
            br#"{"prompt": "o1", "label": "o1", "workflow": "chess"}"#.to_vec(),
            "version",
            &["chess", "signal"],
        ),
        ("oversize", oversize.into_bytes(), "too_large", &["limit", "bytes"]),
        (
            "wrong-label",
            br#"{"prompt": "o1", "label": 5}"#.to_vec(),
            "content",
            &["label"],
        ),
        ("no-utf8", vec![b'{', 0xff, 0xfe], "not_text", &["UTF-8"]),
    ]
}

async fn publish(bus: &AmqpBus, topology: &Topology, id: &str, body: Vec<u8>) {
    let message = Outgoing {
        to: topology.to(&topology.tasks()),
        kind: Kind::Task,
        message_id: id.into(),
        correlation_id: None,
        headers: Vec::new(),
        body: body.into(),
        durable: true,
    };
    bus.publish(message).await.unwrap();
}

#[test]
fn good_tasks_are_trained_on_and_bad_ones_end_with_a_reason() {
    let Live {
        program,
        mut running,
        run,
    } = live();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (bus, topology) = bus(&run).await;
        for (id, body, _, _) in poison() {
            publish(&bus, &topology, id, body).await;
        }
        let letters = dead_letters(&bus, &topology, poison().len()).await;
        for (id, body, class, words) in poison() {
            let letter = letters
                .iter()
                .find(|letter| letter.id == id)
                .unwrap_or_else(|| panic!("{id}"));
            let Letter { reason, body: kept, .. } = letter;
            assert_eq!(kept, &body, "{id} is kept byte for byte");
            assert_eq!(
                (letter.stage.as_str(), letter.class.as_str()),
                ("intake", class),
                "{id}"
            );
            assert!(
                words.iter().all(|word| reason.contains(word)),
                "{id}: {reason:?} says {words:?}"
            );
        }
        bus.close().await;
    });
    let listed = program.succeed(&["tasks", "dead", "--run", run.to_str().unwrap()]);
    assert!(listed.contains("chess"), "{listed}");
    mend(&program, &run, "wrong-label");

    // The run goes on: plain JSON lines, as anyone would write them.
    let tasks: String = (1..GOOD)
        .map(|i| format!("{{\"id\": \"mine-{i}\", \"prompt\": \"o{i}\", \"label\": \"o{i}\"}}\n"))
        .collect();
    let file = run.join("tasks.jsonl");
    std::fs::write(&file, tasks).unwrap();
    program.succeed(&["publish", file.to_str().unwrap(), "--run", run.to_str().unwrap()]);
    running.finish(PATIENCE);
    assert_eq!(metrics(&run, "train").len(), 4, "two batches of two agents");
    for agent in ["a", "b"] {
        assert_eq!(audit(&run, agent).counts.trained, (GOOD * 4) as u64);
    }
}

/// A person looks at a letter, writes it anew, wrongly and then well, and publishes that in its place.
fn mend(program: &Program, run: &Path, id: &str) {
    let dead = |more: &[&str]| {
        let args = ["tasks", "dead", "--run", run.to_str().unwrap()];
        program.output(&[args.as_slice(), more].concat())
    };
    let text = |output: &std::process::Output| {
        let both = [output.stdout.as_slice(), &output.stderr].concat();
        String::from_utf8(both).unwrap()
    };
    let shown = text(&dead(&[id]));
    assert!(
        shown.contains("at intake, as content, first 2")
            && shown.contains(r#""label\": 5"#)
            && !shown.contains("chess"),
        "{shown}"
    );
    let file = run.join("mended.json");
    for (label, code, says) in [("6", 2, "the edited task is no task"), ("\"o1\"", 0, "  requeued\n")] {
        std::fs::write(&file, format!("{{\"prompt\": \"o1\", \"label\": {label}}}\n")).unwrap();
        let done = dead(&["--requeue", id, "--edit", file.to_str().unwrap()]);
        assert_eq!(done.status.code(), Some(code), "{}", text(&done));
        assert!(text(&done).contains(says), "{}", text(&done));
    }
    let gone = dead(&[id]);
    assert_eq!(gone.status.code(), Some(2), "{}", text(&gone));
}

/// Relative paths count from the working directory: elsewhere the workflow cannot be built, and then no task is called good.
#[test]
fn a_task_that_cannot_be_judged_is_not_good() {
    let program = Program::new(env!("CARGO_BIN_EXE_dyad-under-test"));
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tasks.jsonl");
    std::fs::write(&file, "{\"prompt\": \"cough\", \"label\": 5}\n").unwrap();
    let (file, runs) = (file.to_str().unwrap(), program.runs());
    let judge = |folder: &Path, more: &[&str]| {
        let args = ["publish", file, "--validate-only", "--runs", runs.to_str().unwrap()];
        let mut command = program.command(&[&args[..], more].concat());
        let output = command.current_dir(folder).output().unwrap();
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let config = Program::root().join("configs/doctor-patient-8b.toml");
    let config = ["--config", config.to_str().unwrap()];
    let (code, said) = judge(home.path(), &config);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("patient_judge.jinja")
            && said.contains("count from the working directory")
            && !said.contains("good"),
        "{said}"
    );
    let (code, said) = judge(&Program::root(), &config);
    assert!(code == Some(2) && said.contains("line 1: the label is 5"), "{said}");
    let (code, said) = judge(home.path(), &[]);
    assert!(
        code == Some(0) && said.contains("only their form was checked") && said.contains("--config"),
        "{said}"
    );
}

/// Any AMQP client can publish: Python's pika, where the tests have it.
#[test]
fn python_publishes_and_is_trained_on() {
    let Ok(python) = std::env::var("DYAD_TEST_PYTHON") else {
        println!("skipped: DYAD_TEST_PYTHON names no Python with pika (`make test` sets it)");
        return;
    };
    let Live {
        program: _program,
        mut running,
        run,
    } = live();
    let connection: serde_json::Value =
        serde_json::from_slice(&std::fs::read(run.join("connection.json")).unwrap()).unwrap();
    for i in 0..GOOD {
        let output = std::process::Command::new(&python)
            .arg(Program::root().join("tests/python/publish_task.py"))
            .args([format!("o{i}"), format!("o{i}")])
            .env("DYAD_BROKER", connection["broker"].as_str().unwrap())
            .env("DYAD_RUN", run.file_name().unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    running.finish(PATIENCE);
    assert_eq!(metrics(&run, "train").len(), 4, "two batches of two agents");
}

//! Published tasks: trained, or in the dead letters with a reason that a person understands.

use std::path::Path;
use std::time::Duration;

use broker::bus::Bus;
use broker::bus::amqp::AmqpBus;
use broker::protocol::Kind;
use broker::topology::Topology;
use tests::letters::{Letter, broker_of, connect, dead_letters, message, topology};
use tests::program::{Program, Running, json_lines, metrics, wait_until};
use tests::small::Small;
use tests::trace::audit;

use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);
/// Two batches of four groups.
const GOOD: usize = 8;

/// Returns the signal game on published tasks alone, asynchronous and in small batches.
fn configuration() -> Small {
    Small::of("configs/signal.toml")
        .replace("tasks.source", "queue")
        .without("tasks.params")
        .replace("run.mode", "async")
        .replace("run.train_steps", 2)
        .replace("workflow.group_size", 4)
        .replace("defaults.agent.train.batch_groups", 4)
        .replace("defaults.agent.train.max_staleness", 1)
}

struct Live {
    program: Program,
    running: Running,
    run: std::path::PathBuf,
}

fn live(program: Program) -> Live {
    let running = program.launch("up", &configuration().save(&program), &[]);
    let run = program.run_folder();
    wait_until("the run to be running", PATIENCE, || {
        let lines = json_lines(&run.join("logs/coordinator.jsonl"));
        lines.iter().any(|line| line["message"] == "the run is running")
    });
    Live { program, running, run }
}

async fn bus(run: &Path) -> (std::sync::Arc<AmqpBus>, Topology) {
    let bus = connect(&broker_of(run).unwrap()).await;
    (bus, topology(run.file_name().unwrap().to_str().unwrap()))
}

/// Returns refused messages as (id, body, class of failure, words in the reason).
fn poison() -> Vec<(&'static str, Vec<u8>, &'static str, &'static [&'static str])> {
    let oversize = format!("{{\"prompt\": \"{}\", \"label\": \"o1\"}}", "x".repeat(1 << 20));
    vec![
        (
            "malformed",
            b"{\"prompt\": \"o1\"".to_vec(),
            "malformed",
            &["not JSON", "EOF"],
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
    let message = message(topology.to(&topology.tasks()), Kind::Task, id, body);
    bus.publish(message).await.unwrap();
}

#[test]
fn good_tasks_are_trained_on_and_bad_ones_end_with_a_reason() {
    let Live {
        program,
        mut running,
        run,
    } = live(program().with_configured_broker());
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
    correct(&program, &run, "wrong-label");

    // The run continues: plain JSON lines, as a person would write them.
    let tasks: String = (1..GOOD)
        .map(|i| format!("{{\"id\": \"mine-{i}\", \"prompt\": \"o{i}\", \"label\": \"o{i}\"}}\n"))
        .collect();
    let file = run.join("tasks.jsonl");
    std::fs::write(&file, tasks).unwrap();
    let publish = [
        "publish",
        "--wait",
        file.to_str().unwrap(),
        "--run",
        run.to_str().unwrap(),
    ];
    let outcomes = program.succeed(&publish);
    for i in 1..GOOD {
        assert!(outcomes.contains(&format!("task mine-{i}  played")), "{outcomes}");
    }
    running.finish(PATIENCE);
    assert_eq!(metrics(&run, "train").len(), 4, "two batches of two agents");
    for agent in ["a", "b"] {
        assert_eq!(audit(&run, agent).counts.trained, (GOOD * 4) as u64);
    }
    letters_remain(&program, &run);
}

/// The run's broker is gone with its queue. The letters are in the run folder.
fn letters_remain(program: &Program, run: &Path) {
    let dead = ["tasks", "dead", "--run", run.to_str().unwrap()];
    let listed = program.succeed(&dead);
    for said in [
        "malformed  (",
        "chess",
        "5 dead letters",
        " ended at ",
        "publish them to a live run",
    ] {
        assert!(listed.contains(said), "{said}: {listed}");
    }
    let shown = program.succeed(&[&dead[..], &["wrong-type"]].concat());
    assert!(
        shown.contains(r#"{"prompt": 7, "label": "o1"}"#) && !shown.contains("chess"),
        "{shown}"
    );
    let refused = program.fail(2, &[&dead[..], &["--requeue", "malformed"]].concat());
    assert!(refused.contains("requeued and dropped only while it runs"), "{refused}");
}

/// Inspects a dead letter, edits it wrongly and then rightly, and requeues it.
fn correct(program: &Program, run: &Path, id: &str) {
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
        shown.contains("at intake, as content, first 2") && shown.contains(r#""label": 5"#) && !shown.contains("chess"),
        "{shown}"
    );
    let file = run.join("corrected.json");
    for (label, code, says) in [("6", 2, "the edited task is not a task"), ("\"o1\"", 0, "  requeued\n")] {
        std::fs::write(&file, format!("{{\"prompt\": \"o1\", \"label\": {label}}}\n")).unwrap();
        let done = dead(&["--requeue", id, "--edit", file.to_str().unwrap()]);
        assert_eq!(done.status.code(), Some(code), "{}", text(&done));
        assert!(text(&done).contains(says), "{}", text(&done));
    }
    let gone = dead(&[id]);
    assert_eq!(gone.status.code(), Some(2), "{}", text(&gone));
    assert!(
        !text(&gone).contains("no dead letters"),
        "others are there: {}",
        text(&gone)
    );
}

/// Relative paths count from the working directory. From another folder the workflow cannot be
/// built, and then no task is called good.
#[test]
fn a_task_that_cannot_be_judged_is_not_good() {
    let program = program();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tasks.jsonl");
    std::fs::write(&file, "{\"prompt\": \"cough\", \"label\": 5}\n").unwrap();
    let (file, runs) = (file.to_str().unwrap(), program.runs());
    let judge = |folder: &Path, more: &[&str]| {
        let args = ["publish", file, "--dry-run", "--runs", runs.to_str().unwrap()];
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

/// Any AMQP client can publish: here Python's pika, if the tests have it.
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
    } = live(program());
    let broker = broker_of(&run).unwrap();
    for i in 0..GOOD {
        let output = std::process::Command::new(&python)
            .arg(Program::root().join("tests/python/publish_task.py"))
            .args([format!("o{i}"), format!("o{i}")])
            .env("DYAD_BROKER", &broker)
            .env("DYAD_RUN", run.file_name().unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    running.finish(PATIENCE);
    assert_eq!(metrics(&run, "train").len(), 4, "two batches of two agents");
}

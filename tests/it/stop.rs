//! Orders to stop, and the supervisor's reaction to processes that end too early.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tests::program::{Program, Running, json_folder, json_lines, signal, wait_until};
use tests::small::Small;
use tests::trace::{audit, batches};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(240);
const STEPS: u64 = 30;

fn up(program: Program) -> (Program, Running, PathBuf) {
    let config = Small::of("configs/signal.toml").set("run.train_steps", STEPS as i64);
    let running = program.launch("up", &config.save(&program), &[]);
    let run = program.run_folder();
    trained(&run, "b", 5);
    (program, running, run)
}

/// Waits until an agent has trained a number of batches.
fn trained(run: &Path, agent: &str, steps: usize) {
    wait_until(&format!("agent {agent} to train {steps} batches"), PATIENCE, || {
        batches(run, agent) >= steps
    });
}

/// Returns the process of this name that works in this folder.
fn server(name: &str, folder: &Path) -> Option<u32> {
    let folder = folder.canonicalize().ok()?;
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| std::fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&folder)))
        .find_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn complete(run: &Path) {
    for agent in ["a", "b"] {
        let audit = audit(run, agent);
        assert_eq!(
            (audit.twice, audit.missing, audit.counts.reserved),
            (0, 0, 0),
            "agent {agent}: {audit:?}"
        );
        assert!(audit.counts.trained >= STEPS * 256, "agent {agent}: {audit:?}");
    }
}

#[test]
fn latest_passes_over_a_run_that_failed_at_its_start() {
    let program = program();
    let config = || Small::of("configs/signal.toml").set("run.train_steps", 2);
    let played = program.play("run", &config().save(&program), &[]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let runs = program.runs();
    let runs = runs.to_str().unwrap();
    let front = config().set("agents.a.http.listen", listen.as_str()).save(&program);
    for command in ["run", "up"] {
        let refused = program.fail(2, &[command, &front, "--folder", runs]);
        assert!(
            refused.contains(&format!("agents.a.http.listen: {listen} cannot be used")),
            "{refused}"
        );
    }
    assert_eq!(
        std::fs::read_dir(runs).unwrap().count(),
        1,
        "a taken port makes no folder"
    );
    let busy = config().set("run.metrics.listen", listen.as_str()).save(&program);
    assert!(!program.output(&["run", &busy, "--folder", runs]).status.success());
    assert_eq!(std::fs::read_dir(runs).unwrap().count(), 2, "the run has a folder");
    let status = program.succeed(&["status", "--runs", runs]);
    let id = played.file_name().unwrap().to_str().unwrap();
    assert!(
        status.contains(&format!("note: `latest` is {id}; the newer run ")),
        "{status}"
    );
    assert!(
        status.contains(" before it played: ") && status.contains(&listen),
        "{status}"
    );
    let failed = std::fs::read_dir(runs).unwrap().flatten().map(|run| run.file_name());
    let failed = failed
        .filter_map(|run| run.into_string().ok())
        .find(|run| run != id)
        .unwrap();
    program.succeed(&["audit", "--runs", runs, "--run", &failed]);
    let resumed = program.fail(2, &["run", "--resume", "latest", "--steps", "3", "--runs", runs]);
    assert!(
        resumed.contains(&format!("--resume {id} continues the newest")),
        "{resumed}"
    );
    assert!(
        !program.succeed(&["logs", "--runs", runs]).contains(id),
        "the log says why it failed"
    );
}

/// Its processes use the servers of `dyad up`, not those of variables that its options outrank.
#[test]
fn options_of_a_supervisor_outrank_variables_in_its_processes() {
    let program = program();
    let config = Small::new().set("run.train_steps", 1).save(&program);
    let runs = program.runs();
    let args = [
        "up",
        &config,
        "--folder",
        runs.to_str().unwrap(),
        "--broker",
        "local:",
        "--state",
        "local:",
    ];
    let variables = [
        ("DYAD_BROKER", "amqp://127.0.0.1:1"),
        ("DYAD_STATE", "redis://127.0.0.1:1"),
        ("DYAD_CONFIG", "configs/arithmetic.toml"),
    ];
    program.start_with(&args, &variables).finish(Duration::from_secs(120));
}

/// Scripts of Slurm and Kubernetes leave `MASTER_PORT` set, which must change nothing. `RUST_LOG`
/// reaches every process: each logs its part of a conversation.
#[test]
fn variables_of_a_launcher_reach_processes_below_a_supervisor() {
    let program = program();
    let config = Small::new()
        .set("run.train_steps", 1)
        .set("run.transcripts", "first")
        .save(&program);
    let mut running = program.launch("up", &config, &[("MASTER_PORT", "29500"), ("RUST_LOG", "debug")]);
    running.finish(Duration::from_secs(120));
    let run = program.run_folder();
    let played = json_folder(&run.join("transcripts"));
    let id = played[0]["conversation"].as_str().unwrap();
    let (group, _) = id.split_once('/').unwrap();
    for (process, message) in [
        ("a", "a turn was generated"),
        ("b", "a turn was generated"),
        ("coordinator", "a conversation ended"),
    ] {
        let log = json_lines(&run.join(format!("logs/{process}.jsonl")));
        let is_found = |line: &&Value| line["conversation_id"] == id && line["message"] == message;
        let found = log.iter().find(is_found).expect(process);
        if process != "coordinator" {
            let role = if process == "a" { "speaker" } else { "listener" };
            assert_eq!(
                (&found["agent"], &found["role"]),
                (&process.into(), &role.into()),
                "{found}"
            );
            assert!(found["turn"].is_number(), "{found}");
        }
        let args = ["logs", process, "--conversation", id, "--run", run.to_str().unwrap()];
        let shown = program.succeed(&args);
        let is_about = |line: &str| line.contains(group);
        assert!(
            shown.contains(message) && shown.lines().all(is_about),
            "{process}: {shown}"
        );
    }
}

#[test]
fn run_is_played_by_one_process_and_says_if_that_was_killed() {
    let (program, mut running, run) = up(program().with_configured_broker());
    let (folder, config) = (run.to_str().unwrap(), std::fs::read(run.join("config.toml")).unwrap());
    for command in ["run", "up"] {
        for more in [&[][..], &["--steps", "99"]] {
            let refused = program.fail(2, &[&[command, "--resume", folder], more].concat());
            assert!(
                refused.contains(&format!("process {} plays run", running.pid())),
                "{refused}"
            );
        }
    }
    assert_eq!(std::fs::read(run.join("config.toml")).unwrap(), config);
    assert!(!run.join("ended.json").exists(), "the live run has not failed");
    running.kill_when("the next batch", PATIENCE, || batches(&run, "b") > 5);
    let status = program.succeed(&["status", "--run", folder]);
    assert!(status.contains("it was killed, or its machine went down"), "{status}");
    let refused = program.fail(75, &["pause", "--run", folder]);
    assert!(refused.contains("continue it with --resume"), "{refused}");
    program.succeed(&["up", "--resume", folder]);
    complete(&run);
}

/// Both processes end well although the run is not done.
#[test]
fn processes_stopped_by_a_signal_are_started_again() {
    let (_program, mut running, run) = up(program());
    signal("TERM", running.pids("b")[0]);
    trained(&run, "b", 10);
    signal("TERM", running.pids("coordinator")[0]);
    running.finish(PATIENCE);
    let log = running.log();
    for label in ["b", "coordinator"] {
        assert_eq!(running.pids(label).len(), 2, "{label}:\n{log}");
    }
    let coordinator = json_lines(&run.join("logs/coordinator.jsonl"));
    assert!(
        coordinator.iter().any(|line| line["message"] == "released"),
        "it released its groups"
    );
    complete(&run);
}

#[test]
fn private_servers_that_die_come_back_with_their_data() {
    let (_program, mut running, run) = up(program().with_configured_broker());
    let servers = run.join("servers");
    signal(
        "KILL",
        server("redis-server", &servers.join("redis")).expect("a private Redis"),
    );
    signal(
        "KILL",
        server("beam.smp", &servers.join("rabbitmq")).expect("a private RabbitMQ"),
    );
    running.finish(PATIENCE);
    let log = running.log();
    for name in ["Redis", "RabbitMQ"] {
        assert!(log.contains(&format!("private {name} died")), "{log}");
    }
    complete(&run);
}

/// Kills the process that writes the quorum queues until RabbitMQ gives it up, as a full disk does.
fn break_queues(data: &Path) {
    let pid = server("beam.smp", data).expect("a private RabbitMQ");
    let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let ports = environment
        .split('\0')
        .find(|entry| entry.starts_with("ERL_EPMD_PORT="));
    let (variable, port) = ports.unwrap().split_once('=').unwrap();
    let kill = "[begin case whereis(ra_log_wal) of undefined -> ok; P -> exit(P, kill) end, timer:sleep(50) end \
                || _ <- lists:seq(1, 40)].";
    let output = std::process::Command::new("/usr/lib/rabbitmq/bin/rabbitmqctl")
        .args(["eval", kill])
        .env("HOME", data)
        .env(variable, port)
        .env("RABBITMQ_NODENAME", "dyad@localhost")
        .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "slow: `make test-long`; a minute of waiting"]
fn private_rabbitmq_that_stores_nothing_is_started_again() {
    let (_program, mut running, run) = up(program().with_configured_broker());
    break_queues(&run.join("servers/rabbitmq"));
    running.finish(PATIENCE);
    let log = running.log();
    assert!(log.contains("private RabbitMQ runs, but stores no messages"), "{log}");
    complete(&run);
}

/// RabbitMQ's quorum queues store the paths of their files.
#[test]
fn run_in_a_moved_folder_goes_on_with_its_waiting_tasks() {
    let program = program().with_configured_broker();
    let config = Small::of("configs/signal.toml")
        .replace("tasks.source", "queue")
        .without("tasks.params")
        .replace("run.train_steps", 1)
        .replace("workflow.group_size", 4)
        .replace("defaults.agent.train.batch_groups", 4);
    let mut running = program.launch("up", &config.save(&program), &[]);
    let run = program.run_folder();
    wait_until("the run to be running", PATIENCE, || {
        let lines = json_lines(&run.join("logs/coordinator.jsonl"));
        lines.iter().any(|line| line["message"] == "the run is running")
    });
    program.succeed(&["pause", "--run", run.to_str().unwrap()]);
    let lines: String = (1..=4)
        .map(|n| format!("{{\"prompt\": \"o{n}\", \"label\": \"o{n}\"}}\n"))
        .collect();
    let tasks = program.file("tasks.jsonl", &lines);
    program.succeed(&["publish", &tasks, "--run", run.to_str().unwrap()]);
    signal("TERM", running.pid());
    running.end(PATIENCE).expect("it ends");

    // Names with quotes are a danger for the scripts that start RabbitMQ.
    let moved = program.home().join("it's \"moved\"");
    std::fs::rename(program.runs(), &moved).unwrap();
    let run = moved.join(run.file_name().unwrap());
    let folder = run.to_str().unwrap();
    let mut resumed = program.start(&["up", "--resume", folder]);
    wait_until("the run to be paused again", PATIENCE, || {
        let status = program.output(&["status", "--run", folder]).stdout;
        // Both agents and the coordinator.
        String::from_utf8_lossy(&status)
            .matches("waits for `dyad resume`")
            .count()
            == 3
    });
    program.succeed(&["resume", "--run", folder]);
    resumed.finish(PATIENCE);
    for agent in ["a", "b"] {
        let audit = audit(&run, agent);
        assert_eq!(
            (audit.counts.trained, audit.twice, audit.missing),
            (16, 0, 0),
            "agent {agent}: {audit:?}"
        );
    }
}

/// The other processes would wait for it for ever.
#[test]
fn a_process_that_refuses_its_configuration_ends_the_run() {
    let (_program, mut running, run) = up(program());
    std::fs::write(run.join("config.toml"), "[run]\nname = 7\n").unwrap();
    signal("KILL", running.pids("b")[0]);
    let status = running.end(PATIENCE).expect("it ends");
    let log = running.log();
    assert_eq!(status.code(), Some(2), "{log}");
    assert!(
        log.contains("b ended with exit status: 2") && log.contains("hint:"),
        "{log}"
    );
}

/// The run is in containers, which keep its folder in a volume: the host knows its name and its
/// broker. The password of the broker is not repeated.
#[test]
fn commands_on_a_host_without_the_run_name_its_containers() {
    let program = program();
    let runs = program.runs();
    let broker = ["--broker", "amqp://user:hunter2@127.0.0.1:5672/dyad"];
    for (command, more) in [
        ("status --run signal", &broker[..]),
        ("pause --run signal", &broker),
        ("tasks dead --run signal", &broker),
        ("conversation 7 --run signal", &[]),
        ("logs coordinator --run signal", &[]),
        ("compare signal second", &[]),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let said = program.fail(2, &[&words[..], more, &["--runs", runs.to_str().unwrap()]].concat());
        let inside = format!("`docker compose run --rm --no-deps coordinator {command}`");
        assert!(said.contains("hint: ") && said.contains(&inside), "{command}: {said}");
        assert!(!said.contains("hunter2"), "{command}: {said}");
    }
    let samples = [
        "samples",
        "signal",
        "--out",
        "x.parquet",
        "--runs",
        runs.to_str().unwrap(),
    ];
    let said = program.fail(2, &samples);
    assert!(
        said.contains("`docker compose cp coordinator:/var/lib/dyad/runs .`"),
        "{said}"
    );
}

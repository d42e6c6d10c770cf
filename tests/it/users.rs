//! A run of processes that each have their own user, and the files of the export.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use broker::bus::Bus;
use broker::protocol::Kind;
use broker::seal::{HEADER_ORDER, HEADER_SEAL, Seal};
use serde_json::json;
use tests::chaos::closed_groups;
use tests::fleet::{Fleet, RUN};
use tests::letters::{connect, message, topology};
use tests::program::{Program, fail, wait_for, wait_until};
use tests::secured::Secured;
use tests::trace::audit;

use crate::dashboard::{Pages, serve};
use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);
/// Two batches.
const TASKS: u64 = 10;
/// A third batch, which a page publishes.
const TASKS_OF_A_PAGE: u64 = 5;

/// Every process has its own user: tasks go in, both agents train them, orders are obeyed, pages
/// read and write, and the audit passes.
#[test]
fn a_run_passes_with_a_user_for_each_process() {
    let program = program();
    let servers = Secured::start(&program);
    let environment: Vec<(&str, String, String)> = [("a", "agent-a"), ("b", "agent-b"), ("c1", "coordinator")]
        .into_iter()
        .flat_map(|(label, name)| servers.environment(name).into_iter().map(move |(k, v)| (label, k, v)))
        .collect();
    let environment: Vec<(&str, &str, &str)> = environment
        .iter()
        .map(|(l, k, v)| (*l, k.as_str(), v.as_str()))
        .collect();
    let config = servers.config();
    let fleet = Fleet::start_with(&program, &config, 1, &environment);
    fleet.wait_until_running(PATIENCE);
    let run = fleet.run().to_str().unwrap();
    let lines: String = (0..TASKS)
        .map(|n| format!("{{\"id\": \"t{n}\", \"prompt\": \"o{n}\", \"label\": \"o{n}\"}}\n"))
        .collect();
    let file = servers.users().join("tasks.jsonl");
    std::fs::write(&file, lines).unwrap();
    let as_user = |name: &str| servers.broker(name);
    // Groups that only a's ledger has when the coordinator dies are handed back by a, under their
    // seal.
    fleet.signal("b", "STOP");
    let broker = ["--broker", &as_user("publisher")];
    program.succeed(&[&["publish", file.to_str().unwrap(), "--run", run][..], &broker].concat());
    wait_until("tasks in the custody of a", PATIENCE, || {
        audit(fleet.run(), "a").counts.reserved > 0
    });
    fleet.signal("c1", "KILL");
    fleet.signal("b", "CONT");
    servers.block_on(make_up(&as_user("agent-a")));
    wait_until("both agents to close every group", PATIENCE, || {
        let closed = |agent| closed_groups(fleet.run(), agent).unwrap_or(0);
        closed("a").min(closed("b")) == TASKS
    });
    let status = program.succeed(&["status", "--json", "--run", run, "--broker", &as_user("onlooker")]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert!(
        status.to_string().contains("\"a\"") && status.to_string().contains("\"b\""),
        "{status}"
    );
    let dead = wait_for("the made-up task among the dead letters", PATIENCE, || {
        let dead = program.succeed(&["tasks", "dead", "--run", run, "--broker", &as_user("operator")]);
        (!dead.contains("no dead letters")).then_some(dead)
    });
    for says in [
        "at reclaim, as forged",
        "published by fleet.agent-a",
        "\n1 dead letter\n",
    ] {
        assert!(dead.contains(says), "{dead}");
    }
    pages_act_with_the_rights_of_their_users(&program, &servers);
    program.succeed(&["drain", run, "--broker", &as_user("operator")]);
    fleet.finish(PATIENCE);
    let books = program.succeed(&["audit", "--json", "--run", run, "--broker", &as_user("operator")]);
    let books: serde_json::Value = serde_json::from_str(&books).unwrap();
    let finished = books["books"]["finished"].as_u64();
    assert_eq!(finished, Some(TASKS + TASKS_OF_A_PAGE), "{books:#}");
    no_password_is_logged(&servers, &fleet);
}

/// Pages read as the onlooker, publish as the publisher, and change letters and the run as the
/// operator. The onlooker itself may only read, so an act with the wrong user fails here.
fn pages_act_with_the_rights_of_their_users(program: &Program, servers: &Secured) {
    let [onlooker, publisher, operator] = ["onlooker", "publisher", "operator"].map(|name| servers.broker(name));
    let more = [
        "--write",
        "--broker",
        &onlooker,
        "--publisher",
        &publisher,
        "--operator",
        &operator,
    ];
    let running = serve(program, RUN, &more);
    let pages = Pages::of(&running);
    let api = |path: &str| format!("/api/runs/{RUN}/{path}");
    wait_until("both agents in the page", PATIENCE, || {
        let status = pages.json(&api("status"));
        status["live"]["agents"]
            .as_object()
            .is_some_and(|agents| agents.len() == 2)
    });
    let letters = pages.json(&api("letters"));
    assert_eq!(letters["total"], 1, "{letters}");
    let line = |n: u64| json!({"id": format!("p{n}"), "prompt": format!("o{n}"), "label": format!("o{n}")});
    let lines: Vec<String> = (0..TASKS_OF_A_PAGE).map(|n| line(n).to_string()).collect();
    let turns = pages.stream(RUN, "turns");
    let (status, answer) = pages.post(&api("tasks"), &json!({"lines": lines.join("\n")}));
    assert_eq!(
        (status, &answer["confirmed"]),
        (200, &json!(TASKS_OF_A_PAGE)),
        "{answer}"
    );
    turns.until(&["rate", "turn", "rewards"]);
    let (status, answer) = pages.post(&api("letters/requeue"), &json!({"ids": ["no-such-letter"]}));
    assert_eq!(
        (status, &answer["missing"]),
        (200, &json!(["no-such-letter"])),
        "{answer}"
    );
    pages.pause_and_resume(RUN);
    for url in [onlooker, publisher, operator] {
        let (user, _) = url.split_once('@').unwrap();
        let password = user.rsplit(':').next().unwrap();
        assert!(!running.log().contains(password), "the dashboard logs a password");
    }
}

/// Hands back, as agent a, a task that no coordinator gave it.
async fn make_up(url: &str) {
    let topology = topology(RUN);
    let bus = connect(url).await;
    let headers = [(HEADER_ORDER, "0".to_owned()), (HEADER_SEAL, Seal([7; 32]).to_string())];
    let body = br#"{"id": "made-up", "prompt": "o1", "label": "o1"}"#;
    let mut message = message(topology.to(&topology.reclaim()), Kind::Task, "made-up", *body);
    message.headers = headers.map(|(key, value)| (key.to_owned(), value)).to_vec();
    bus.publish(message).await.unwrap();
    bus.close().await;
}

/// Asserts that no password of the export's URLs is in a log or in any other file of the run
/// folder.
fn no_password_is_logged(servers: &Secured, fleet: &Fleet) {
    let secrets: Vec<String> = ["coordinator", "agent-a", "agent-b", "publisher", "operator", "onlooker"]
        .into_iter()
        .flat_map(|name| servers.environment(name).into_values())
        .map(|value| {
            let user = value.split_once('@').map_or(value.as_str(), |(user, _)| user);
            user.rsplit(':').next().unwrap().to_owned()
        })
        .collect();
    assert!(secrets.len() == 8 && secrets.iter().all(|secret| secret.len() == 32));
    let mut texts: Vec<String> = fleet.labels().iter().map(|label| fleet.log(label)).collect();
    for folder in ["", "logs", "metrics", "transcripts"] {
        for entry in std::fs::read_dir(fleet.run().join(folder)).unwrap().flatten() {
            texts.push(std::fs::read_to_string(entry.path()).unwrap_or_default());
        }
    }
    assert!(
        texts
            .iter()
            .filter(|text| text.contains("connected to RabbitMQ"))
            .count()
            >= 3
    );
    for secret in &secrets {
        assert!(!texts.iter().any(|text| text.contains(secret)), "a password is logged");
    }
}

#[test]
fn export_with_unusable_input_is_wrong_usage() {
    let program = program();
    let out = program.home().join("users");
    for (run, variable, given, problem) in [
        (
            "r",
            "DYAD_PASSWORD_AGENT_A",
            "short",
            "the password in DYAD_PASSWORD_AGENT_A: it has 5",
        ),
        (
            "r",
            "DYAD_PASSWORD_AGENT_A",
            "a password with blanks",
            "do not fit into a URL",
        ),
        ("r", "DYAD_TASK_KEY", "short", "DYAD_TASK_KEY has 5"),
        (
            "r",
            "DYAD_TASK_KEY",
            "a secret with blanks",
            "DYAD_TASK_KEY has characters",
        ),
        ("R R", "UNUSED", "", "is not a run id"),
    ] {
        let args = ["topology", "export", "--config", "configs/signal.toml", "--run", run];
        let servers = [
            "--broker",
            "amqp://h",
            "--state",
            "redis://h/0",
            "--out",
            out.to_str().unwrap(),
        ];
        let said = fail(2, program.command(&[&args[..], &servers].concat()).env(variable, given));
        assert!(said.contains(problem), "{said}");
    }
}

#[test]
fn an_export_keeps_its_secrets() {
    let program = program();
    let base = tempfile::tempdir().unwrap();
    let out = base.path().join("users");
    let export = |more: &[&str]| {
        let config = Program::root().join("configs/signal.toml");
        let (config, out) = (config.to_str().unwrap(), out.to_str().unwrap());
        let servers = [
            "--broker",
            "amqp://admin:topsecret@h:5672/dyad",
            "--state",
            "redis://h/0",
        ];
        let args = [
            &["topology", "export", "--run", "r", "--config", config, "--out", out],
            &servers[..],
            more,
        ]
        .concat();
        let given = "given-by-the-environment";
        let output = program
            .command(&args)
            .env("DYAD_PASSWORD_AGENT_A", given)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status, String::from_utf8(text).unwrap())
    };
    let (status, text) = export(&[]);
    assert!(status.success(), "{text}");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let mode = |name: &str| std::fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        read("agent-a.env"),
        "DYAD_BROKER=amqp://r.agent-a:given-by-the-environment@h:5672/dyad\n"
    );
    let first = read("coordinator.env");
    let secrets: Vec<&str> = first
        .lines()
        .map(|line| line.split('@').next().unwrap().rsplit([':', '=']).next().unwrap())
        .collect();
    assert_eq!(secrets.len(), 3);
    for secret in secrets.into_iter().chain(["given-by-the-environment", "topsecret"]) {
        for text in [&text, &read("rabbitmq.json"), &read("users.acl")] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    for name in [
        "coordinator.env",
        "agent-a.env",
        "agent-b.env",
        "publisher.env",
        "operator.env",
        "onlooker.env",
        "compose.env",
    ] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    assert_eq!(mode("."), 0o700, "only its owner may read the folder with hashes");

    let (status, text) = export(&[]);
    assert!(status.code() == Some(2) && text.contains("--replace"), "{text}");
    assert_eq!(
        read("coordinator.env"),
        first,
        "files are overwritten only with --replace"
    );
    assert!(export(&["--replace"]).0.success());
    assert_ne!(read("coordinator.env"), first);
    let task_key = |text: &str| {
        let key = text.lines().find_map(|line| line.strip_prefix("DYAD_TASK_KEY="));
        key.unwrap().to_owned()
    };
    let (before, now) = (task_key(&first), task_key(&read("coordinator.env")));
    assert!(
        now.ends_with(&format!(",{before}")),
        "the first key is still accepted for groups in custody"
    );
}

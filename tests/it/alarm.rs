//! An alarm of RabbitMQ, which then accepts no messages, and users without rights.

use std::process::Command;
use std::time::Duration;

use broker::local::rabbitmq::RabbitOptions;
use tests::program::{Program, json_lines, signal, wait_until};
use tests::servers::Servers;
use tests::small::Small;

use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);
const TASK: &str = r#"{"prompt": "o1", "label": "o1"}"#;

fn ctl(servers: &Servers, args: &[&str]) {
    let output = servers.rabbit.own().ctl(args).unwrap().output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Sets the free space below which RabbitMQ raises its alarm.
fn set_limit(servers: &Servers, limit: &str) {
    ctl(servers, &["set_disk_free_limit", limit]);
}

fn published(program: &Program) -> Small {
    Small::of("configs/signal.toml")
        .replace("tasks.source", "queue")
        .without("tasks.params")
        .set("run.folder", program.runs().to_str().unwrap())
}

/// Returns the findings of `dyad doctor`, which must include one that ends it with 75.
fn doctor(program: &Program, args: &[&str]) -> String {
    let output = program.output(&[&["doctor"][..], args].concat());
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn alarm_of_the_broker_is_named_by_status_publish_and_doctor() {
    let program = program();
    let servers = Servers::with(RabbitOptions::default());
    // RabbitMQ's operator for Kubernetes writes the vhost `/` as a URL that ends with `/`.
    let broker = servers.rabbit.url().replace("/%2f", "/");
    assert!(broker.ends_with('/'), "{broker}");
    let state = servers.redis.url();
    let config = published(&program).save(&program);
    let at = ["--broker", &broker, "--state", &state];
    let running = program.start(&[&["up", &config][..], &at].concat());
    let run = program.run_folder();
    wait_until("the run to be running", PATIENCE, || {
        let lines = json_lines(&run.join("logs/coordinator.jsonl"));
        lines.iter().any(|line| line["message"] == "the run is running")
    });
    let folder = run.to_str().unwrap();
    let status = || program.succeed(&["status", "--run", folder]);
    assert!(!status().contains("RabbitMQ:"), "no alarm yet");

    set_limit(&servers, "900GB");
    wait_until("the alarm in status", PATIENCE, || {
        status().contains("RabbitMQ: accepts no messages (low on disk)")
    });
    let shown = status();
    assert!(
        shown.contains("agent a: no heartbeat: RabbitMQ accepts no messages"),
        "{shown}"
    );
    let tasks = program.file("tasks.jsonl", TASK);
    let mut publish = program.start(&["publish", &tasks, "--run", folder]);
    wait_until("the alarm in publish", PATIENCE, || {
        publish.log().contains("RabbitMQ accepts no messages (low on disk)")
    });
    assert!(publish.running(), "{}", publish.log());
    let doctor = doctor(&program, &[&[config.as_str()][..], &at].concat());
    assert!(doctor.contains("accepts no messages (low on disk)"), "{doctor}");

    set_limit(&servers, "1MB");
    publish.finish(PATIENCE);
    assert!(publish.log().contains("1 tasks confirmed"), "{}", publish.log());
    wait_until("no alarm in status", PATIENCE, || !status().contains("RabbitMQ:"));
    drop(running);
}

#[test]
fn doctor_names_users_who_may_not_use_their_server() {
    let program = program();
    let servers = Servers::with(RabbitOptions::default());
    ctl(&servers, &["add_user", "idle", "secret"]);
    ctl(&servers, &["set_permissions", "idle", "^$", "^$", "^$"]);
    let state = servers.redis.url();
    let broker = {
        let url = servers.rabbit.url();
        format!("amqp://idle:secret@{}", url.split_once('@').unwrap().1)
    };
    let found = doctor(&program, &["--broker", &broker, "--state", &state]);
    assert!(
        found.contains("FIX  broker") && found.contains("set_permissions"),
        "{found}"
    );
    assert!(!found.contains("FIX  state store"), "{found}");

    let rule = ["acl", "setuser", "idle", "on", ">secret", "~nothing", "+@all"];
    let (password, address) = state.trim_start_matches("redis://:").split_once('@').unwrap();
    let port = address.trim_start_matches("127.0.0.1:").trim_end_matches("/0");
    let cli = ["-p", port, "-a", password, "--no-auth-warning"];
    let set = Command::new("redis-cli").args(cli).args(rule).output().unwrap();
    assert_eq!(set.stdout, b"OK\n", "{set:?}");
    let state = format!("redis://idle:secret@{address}");
    let found = doctor(&program, &["--broker", &servers.rabbit.url(), "--state", &state]);
    assert!(
        found.contains("FIX  state store") && found.contains("dyad:*"),
        "{found}"
    );
    assert!(!found.contains("FIX  broker"), "{found}");

    let url = servers.rabbit.url();
    let (server, _) = url.rsplit_once('/').unwrap();
    for path in ["", "/", "/%2f"] {
        let mut command = program.command(&["doctor", "--state", &servers.redis.url()]);
        let output = command.env("DYAD_BROKER", format!("{server}{path}")).output().unwrap();
        let found = String::from_utf8(output.stdout).unwrap();
        let is_good = |line: &str| line.starts_with("ok   broker") && line.ends_with("/%2f answers");
        assert!(found.lines().any(is_good), "{path:?}: {found}");
    }
    let found = doctor(&program, &["--broker", &format!("{server}/nowhere")]);
    assert!(found.contains("FIX  broker") && found.contains("(%2f is /)"), "{found}");
}

/// Its private servers are still starting.
#[test]
fn signal_ends_a_run_that_waits_for_its_servers() {
    for command in ["run", "up"] {
        let program = program().with_configured_broker();
        let script = program.file("rabbitmq-server", "#!/bin/sh\nexec sleep 1000\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).unwrap();
        let config = Small::of("configs/signal.toml")
            .set("run.folder", program.runs().to_str().unwrap())
            .set("run.broker", "local:")
            .save(&program);
        let mut running = program.start_with(&[command, &config], &[("DYAD_RABBITMQ_SERVER", &script)]);
        let run = program.run_folder();
        wait_until("the server's folder", PATIENCE, || {
            run.join("servers/rabbitmq/rabbitmq.conf").exists()
        });
        signal("TERM", running.pid());
        let status = running.end(Duration::from_secs(30)).expect("it ends");
        let log = running.log();
        assert_eq!(status.code(), Some(130), "{log}");
        assert!(log.contains(&format!("`dyad {command} --resume")), "{log}");
    }
}

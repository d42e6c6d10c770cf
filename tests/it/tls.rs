//! A whole run with processes that reach both servers by TLS alone.

use std::time::Duration;

use broker::local::rabbitmq::RabbitOptions;
use broker::local::redis::RedisServerOptions;
use tests::fleet::{Fleet, RUN};
use tests::program::fail;
use tests::servers::Servers;
use tests::small::Small;
use tests::trace::{audit, batches};

use crate::program;

// The same file as in broker's tests: one way to make certificates.
#[path = "../../broker/tests/tls/authority.rs"]
mod authority;

use self::authority::Authority;

const STEPS: usize = 4;

#[test]
fn a_run_trains_over_tls_only_with_the_authority() {
    let program = program();
    let authority = Authority::new();
    let rabbit = RabbitOptions {
        tls: Some(authority.server()),
        ..RabbitOptions::default()
    };
    let redis = RedisServerOptions {
        tls: Some(authority.server()),
        ..RedisServerOptions::default()
    };
    let servers = Servers::with_both(rabbit, redis);
    let (broker, state) = (servers.rabbit.own().tls_url(), servers.redis.tls_url());
    let config = Small::new()
        .set("run.broker", broker.clone())
        .set("run.state", state.clone())
        .set("run.folder", program.runs().to_str().unwrap())
        .set("run.train_steps", STEPS as i64)
        .write(&program.runs().with_file_name("run.toml"));

    let config_path = config.to_str().unwrap();
    let secrets = [&broker, &state].map(|url| url.split([':', '@']).nth(2).unwrap().to_owned());
    for alone in [
        &["coordinator", "--config", config_path, "--run", RUN][..],
        &["doctor", "--broker", &broker, "--state", &state],
    ] {
        let output = program.output(alone);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(75), "{text}");
        assert!(
            text.contains("signed by no authority that we trust: set DYAD_CA=FILE"),
            "{text}"
        );
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
    }

    let ca = authority.file();
    let environment = ["a", "b", "c1"].map(|label| (label, "DYAD_CA", ca.to_str().unwrap()));
    let fleet = Fleet::start_with(&program, &config, 1, &environment);
    fleet.finish(Duration::from_secs(240));
    for agent in ["a", "b"] {
        let trained = batches(fleet.run(), agent);
        assert!(trained >= STEPS, "agent {agent} trained {trained} batches");
        let audit = audit(fleet.run(), agent);
        assert_eq!((audit.twice, audit.missing), (0, 0), "agent {agent}: {audit:?}");
    }
    let doctor = program
        .command(&["doctor", "--broker", &broker, "--state", &state])
        .env("DYAD_CA", &ca)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert!(doctor.status.success() && text.contains("amqps://127.0.0.1"), "{text}");
}

/// A supervisor restarts a process that cannot reach a server. It must not restart one with a wrong
/// file.
#[test]
fn a_wrong_file_is_wrong_usage() {
    let program = program();
    let tasks = program.file("tasks.jsonl", "{\"prompt\": \"o1\"}\n");
    let broker = ["--broker", "amqps://u:p@localhost:1/%2f"];
    let mut publish = program.command(&[&["publish", &tasks, "--run", "r-1"][..], &broker].concat());
    let said = fail(2, publish.env("DYAD_CA", "/nowhere/ca.pem"));
    assert!(said.contains("/nowhere/ca.pem, which DYAD_CA names"), "{said}");
}

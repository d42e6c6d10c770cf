//! A RabbitMQ and a Redis that know only the users of `dyad topology export`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use broker::local::process::{Guarded, lock_log};
use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
use tokio::runtime::Runtime;

use crate::fleet::RUN;
use crate::ports::quiet_port;
use crate::program::{Program, wait_for};
use crate::small::Small;

const PATIENCE: Duration = Duration::from_secs(60);
/// A second run on the same servers.
pub const OTHER: &str = "other";

/// Both servers with only the exported users, and a run's configuration.
pub struct Secured {
    // Declared before the folder, so that they end before it is removed.
    pub rabbit: PrivateRabbit,
    _redis: Guarded,
    redis_port: u16,
    runtime: Runtime,
    users: PathBuf,
    folder: tempfile::TempDir,
}

impl Secured {
    /// Exports the users of two runs and starts the servers. The node loads the first run's users
    /// at its start and imports the other's while it runs.
    #[must_use]
    pub fn start(program: &Program) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (rabbit_port, redis_port) = (quiet_port(), quiet_port());
        let config = Small::scripted()
            .set("run.broker", format!("amqp://127.0.0.1:{rabbit_port}/dyad"))
            .set("run.state", format!("redis://127.0.0.1:{redis_port}/0"))
            .set("run.folder", program.runs().to_str().unwrap())
            .set("run.train_steps", 1_000_000)
            .set("workflow.group_size", 4)
            .set("defaults.agent.train.batch_groups", 5)
            // No workflow asks this grader; it makes the export write its user.
            .set("graders.judge.kind", "remote:judge")
            .set("tasks.source", "queue")
            .without("tasks.params")
            .write(&folder.path().join("run.toml"));
        for run in [RUN, OTHER] {
            let out = folder.path().join(run);
            let (config, out) = (config.to_str().unwrap(), out.to_str().unwrap());
            program.succeed(&["topology", "export", "--run", run, "--config", config, "--out", out]);
        }
        let users = folder.path().join(RUN);
        let runtime = Runtime::new().unwrap();
        let definitions = users.join("rabbitmq.json");
        let options = RabbitOptions {
            port: Some(rabbit_port),
            config: format!("load_definitions = {}", definitions.display()),
            ..RabbitOptions::default()
        };
        let rabbit = runtime
            .block_on(PrivateRabbit::start(&folder.path().join("rabbitmq"), options))
            .unwrap();
        let redis = start_redis(&folder.path().join("redis"), redis_port, &users.join("users.acl"));
        let secured = Self {
            rabbit,
            _redis: redis,
            redis_port,
            runtime,
            users,
            folder,
        };
        secured.import(&secured.folder.path().join(OTHER).join("rabbitmq.json"));
        secured
    }

    fn import(&self, definitions: &Path) {
        let import = ["import_definitions", definitions.to_str().unwrap()];
        let output = self.rabbit.ctl(&import).unwrap().output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Returns the run's configuration; its URLs name no user.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("run.toml")
    }

    /// Returns the folder of the first run's export.
    #[must_use]
    pub fn users(&self) -> &Path {
        &self.users
    }

    /// Returns the variables in `NAME.env`.
    #[must_use]
    pub fn environment(&self, name: &str) -> BTreeMap<String, String> {
        let text = std::fs::read_to_string(self.users.join(format!("{name}.env"))).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once('='));
        lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Returns the RabbitMQ URL of a kind of process.
    #[must_use]
    pub fn broker(&self, name: &str) -> String {
        self.environment(name)["DYAD_BROKER"].clone()
    }

    /// Runs a test's IO.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Returns the answer of Redis to the last of these lines.
    #[must_use]
    pub fn redis(&self, lines: &[&str]) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.redis_port)).unwrap();
        let text: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        stream.write_all(format!("{text}QUIT\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let answers: Vec<&str> = answer.lines().collect();
        assert_eq!(answers.len(), lines.len() + 1, "one line to each and to QUIT: {answer}");
        answers[lines.len() - 1].to_owned()
    }
}

fn start_redis(folder: &Path, port: u16, acl: &Path) -> Guarded {
    std::fs::create_dir(folder).unwrap();
    let log = lock_log(&folder.join("server.log"), folder).unwrap();
    let mut command = Command::new("redis-server");
    command
        .current_dir(folder)
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--appendonly", "yes", "--maxmemory-policy", "noeviction"]);
    command.arg("--aclfile").arg(acl);
    let server = Guarded::spawn(&command, &log).unwrap();
    wait_for("Redis to answer", PATIENCE, || {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
    });
    server
}

//! A run of real processes over real servers, reached through proxies.

use std::path::Path;
use std::time::{Duration, Instant};

use agents::ledger::Inspector;
use broker::bus::Bus;
use broker::local::rabbitmq::RabbitOptions;
use broker::protocol::Kind;
use broker::protocol::control::Command;
use broker::topology::Speaker;

use crate::fleet::{Fleet, RUN, tail};
use crate::letters::{connect, message, topology};
use crate::program::{Program, wait_until};
use crate::proxy::Proxy;
use crate::servers::{Rabbit, Servers};
use crate::small::Small;

/// Conversations of one task.
pub const GROUP: u64 = 4;
/// Groups in a batch. Publish a multiple of it, and every group is trained.
pub const BATCH: u64 = 5;
/// A wait that takes longer is stuck.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
const COORDINATORS: usize = 2;

/// The parts of a run.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    pub coordinators: usize,
    /// Groups in a batch.
    pub batch: u64,
    /// Older samples are not trained.
    pub staleness: u64,
    /// Pairs of label and `DYAD_FAILPOINTS`.
    pub failpoints: &'a [(&'a str, &'a str)],
    /// Failpoints act at every start of their process instead of once in the run.
    pub always: bool,
    /// More changes to the configuration.
    pub change: fn(Small) -> Small,
    /// JSON fields that every task has in addition to id, prompt and label; a comma precedes each.
    pub fields: &'a str,
    /// Options of a RabbitMQ of its own. If `None`, the run may share one with other tests.
    pub rabbit: Option<fn() -> RabbitOptions>,
    /// Environment of the processes, as (label, variable, value).
    pub environment: &'a [(&'a str, &'a str, &'a str)],
}

impl Default for Shape<'_> {
    fn default() -> Self {
        Self {
            coordinators: COORDINATORS,
            batch: BATCH,
            staleness: 3,
            failpoints: &[],
            always: false,
            change: |small| small,
            fields: "",
            rabbit: None,
            environment: &[],
        }
    }
}

/// Returns options of a broker that takes a message back after `timeout_ms` and checks for it every
/// second. This works up to RabbitMQ 4.2; from 4.3 on quorum queues check on their own, about once
/// a minute.
#[must_use]
pub fn impatient(timeout_ms: u64) -> RabbitOptions {
    RabbitOptions {
        config: format!("consumer_timeout = {timeout_ms}"),
        arguments: "-rabbit channel_tick_interval 1000".into(),
        ..RabbitOptions::default()
    }
}

/// A run with its servers, proxies and processes.
pub struct World {
    pub program: Program,
    pub servers: Servers,
    /// The proxy to the broker for every process except agent a.
    pub broker: Proxy,
    /// The proxy to the broker for agent a alone.
    pub link: Proxy,
    pub store: Proxy,
    pub fleet: Fleet,
    pub(super) published: u64,
    fields: String,
}

impl World {
    /// Starts a run that plays published tasks with a scripted engine, on two coordinators.
    #[must_use]
    pub fn start(binary: &str) -> Self {
        Self::with(binary, COORDINATORS, &[])
    }

    /// Starts a run like [`World::start`] with another number of coordinators and with failpoints
    /// as (label, `DYAD_FAILPOINTS`).
    #[must_use]
    pub fn with(binary: &str, coordinators: usize, failpoints: &[(&str, &str)]) -> Self {
        Self::shaped(
            binary,
            Shape {
                coordinators,
                failpoints,
                ..Shape::default()
            },
        )
    }

    /// Starts a run like [`World::with`] whose RabbitMQ is its own: the test may kill or change it.
    #[must_use]
    pub fn alone(binary: &str, coordinators: usize, failpoints: &[(&str, &str)]) -> Self {
        Self::shaped(
            binary,
            Shape {
                coordinators,
                failpoints,
                rabbit: Some(RabbitOptions::default),
                ..Shape::default()
            },
        )
    }

    /// Starts a run of another shape.
    #[must_use]
    pub fn shaped(binary: &str, shape: Shape) -> Self {
        let Shape {
            coordinators,
            batch,
            staleness,
            failpoints,
            always,
            change,
            fields,
            rabbit,
            environment: own,
        } = shape;
        let program = Program::new(binary);
        let servers = rabbit.map_or_else(Servers::start, |rabbit| Servers::with(rabbit()));
        let (broker, broker_url) = Proxy::before(&servers.rabbit.url());
        let (store, store_url) = Proxy::before(&servers.redis.url());
        let (link, link_url) = Proxy::before(&servers.rabbit.url());
        let config = change(Small::scripted())
            .set("run.broker", broker_url)
            .set("run.state", store_url)
            .set("run.folder", program.runs().to_str().unwrap())
            .set("run.train_steps", 1_000_000)
            .set("workflow.group_size", GROUP as i64)
            .set("defaults.agent.train.batch_groups", batch as i64)
            .set("defaults.agent.train.max_staleness", staleness as i64)
            .set("tasks.source", "queue")
            .without("tasks.params")
            .write(&program.home().join("run.toml"));
        // These pauses stand for a model. Without them the run ends before a fault can hit it.
        let slow = "turn.generated=sleep(20);turn.committed=sleep(20);group.decided=sleep(20);reserve.stored=sleep(20)";
        let once = program.home().join("fired");
        std::fs::create_dir(&once).unwrap();
        let mut environment = own.to_vec();
        environment.push(("a", "DYAD_BROKER", link_url.as_str()));
        for label in ["a", "b", "c1", "c2"] {
            let own = failpoints.iter().find(|(name, _)| *name == label);
            environment.push((label, "DYAD_FAILPOINTS", own.map_or(slow, |(_, points)| points)));
            if !always {
                environment.push((label, "DYAD_FAILPOINTS_ONCE", once.to_str().unwrap()));
            }
        }
        let fleet = Fleet::start_with(&program, &config, coordinators, &environment);
        let world = Self {
            program,
            servers,
            broker,
            link,
            store,
            fleet,
            published: 0,
            fields: fields.to_owned(),
        };
        world.fleet.wait_until_running(PATIENCE);
        world
    }

    /// Returns the number of tasks published so far.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Publishes `tasks` more tasks with `dyad publish`.
    pub fn publish(&mut self, tasks: u64) {
        self.publisher(tasks)();
    }

    /// Publishes from a thread, for publishing that may take long.
    #[must_use]
    pub fn publish_in_background(&mut self, tasks: u64) -> std::thread::JoinHandle<()> {
        std::thread::spawn(self.publisher(tasks))
    }

    /// Returns a function that publishes `tasks` more tasks and retries until all are confirmed.
    /// Retries are safe because an id is played once.
    fn publisher(&mut self, tasks: u64) -> impl FnOnce() + Send + 'static {
        let lines: String = (self.published..self.published + tasks)
            .map(|n| task_line(n, &self.fields) + "\n")
            .collect();
        self.published += tasks;
        // Several publishers may run at once.
        let file = self.program.home().join(format!("tasks-{}.jsonl", self.published));
        std::fs::write(&file, lines).unwrap();
        // Not through the proxy, which disturbs the run's own processes alone.
        let url = self.servers.rabbit.url();
        let run = self.fleet.run().to_str().unwrap();
        let mut publish = self
            .program
            .command(&["publish", file.to_str().unwrap(), "--run", run, "--broker", &url]);
        move || {
            wait_until("tasks to be confirmed", PATIENCE, || {
                tasks == 0 || publish.output().unwrap().status.success()
            });
        }
    }

    /// Returns the number of groups that both agents have closed.
    #[must_use]
    pub fn closed(&self) -> u64 {
        let closed = |agent| closed_groups(self.fleet.run(), agent).unwrap_or(0);
        closed("a").min(closed("b"))
    }

    /// Waits until both agents have closed `groups` groups and returns how long it took. Fails when
    /// no group closes for [`PATIENCE`].
    pub fn wait_closed(&self, groups: u64) -> Duration {
        let began = Instant::now();
        let mut last = (began, 0);
        loop {
            let closed = self.closed();
            if closed >= groups {
                break;
            }
            if closed > last.1 {
                last = (Instant::now(), closed);
            }
            assert!(
                last.0.elapsed() < PATIENCE,
                "{closed} of {groups} groups closed, and no other for {PATIENCE:?}\n{}",
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        began.elapsed()
    }

    /// Returns the last log lines of every process, and of the broker if it is the run's own.
    #[must_use]
    pub fn logs(&self) -> String {
        let broker = match &self.servers.rabbit {
            Rabbit::Own(rabbit) => format!("--- RabbitMQ\n{}\n", tail(&rabbit.log_path(), 60)),
            Rabbit::Shared(_) => String::new(),
        };
        self.fleet.logs() + &broker
    }

    /// Runs `rabbitmqctl` on the run's broker, which must be its own.
    pub fn rabbitmqctl(&self, args: &[&str]) -> String {
        let output = self.servers.rabbit.own().ctl(args).unwrap().output().unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Ends the run and asserts that nothing is lost or counted twice and that both agents finished
    /// every published task.
    pub fn end_well(&self) -> serde_json::Value {
        let (audit, passed) = self.end();
        assert!(passed, "{audit:#}\n{}", self.logs());
        let books = &audit["books"];
        let figures = [&books["published"], &books["finished"]].map(|figure| figure.as_u64().unwrap());
        assert_eq!(figures, [self.published; 2], "{books:#}");
        let open = [&books["unseen"], &books["unequal"]].map(ToString::to_string);
        assert_eq!(open, ["[]", "{}"]);
        audit
    }

    /// Waits for all published tasks, ends the run and audits it. Returns the audit and true if
    /// `dyad audit` passed.
    pub fn end(&self) -> (serde_json::Value, bool) {
        self.end_after(self.published)
    }

    /// Ends a run like [`World::end`] when only `groups` groups will close: the tasks of the others
    /// never enter a ledger.
    pub fn end_after(&self, groups: u64) -> (serde_json::Value, bool) {
        self.wait_closed(groups);
        self.drain();
        let run = self.fleet.run().to_str().unwrap();
        let url = self.servers.rabbit.url();
        let output = self
            .program
            .output(&["audit", "--json", "--run", run, "--broker", &url]);
        let audit = serde_json::from_slice(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            audit.unwrap_or_else(|_| panic!("no audit: {errors}")),
            output.status.success(),
        )
    }

    /// Orders the coordinators to drain until every process has ended.
    fn drain(&self) {
        let control = topology(RUN).to_control(Speaker::Operator);
        self.servers.block_on(async {
            let bus = connect(&self.servers.rabbit.url()).await;
            let began = Instant::now();
            while !self.fleet.ended() {
                assert!(began.elapsed() < PATIENCE, "the run does not end:\n{}", self.logs());
                let body = broker::codec::encode_json(&Command::Drain);
                let mut order = message(control.clone(), Kind::Command, "drain", body);
                order.durable = false;
                let _ = bus.publish(order).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            bus.close().await;
        });
    }
}

/// Returns the number of groups that an agent's ledger has closed, `None` while it is unreadable.
#[must_use]
pub fn closed_groups(run: &Path, agent: &str) -> Option<u64> {
    let inspector = Inspector::open(&run.join("buffer").join(format!("{agent}.sqlite"))).ok()?;
    inspector.closed().ok()
}

/// Returns the n-th task, with `fields` after its own fields.
#[must_use]
pub fn task_line(n: u64, fields: &str) -> String {
    let symbol = n % 16;
    format!(r#"{{"id": "task-{n}", "prompt": "o{symbol}", "label": "o{symbol}"{fields}}}"#)
}

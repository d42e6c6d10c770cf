//! Chaos: tasks go in while processes and servers are killed, halted, cut off and set back; then everything is counted.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agents::ledger::{Inspector, RowState};
use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::{Bus, Outgoing};
use broker::ids::RunId;
use broker::protocol::Kind;
use broker::protocol::control::Command;
use broker::topology::{Speaker, Topology};

use crate::fleet::{Fleet, RUN};
use crate::program::{Program, wait_for};
use crate::proxy::{Mode, Proxy};
use crate::servers::Servers;
use crate::small::Small;

/// Conversations of one task.
pub const GROUP: u64 = 4;
/// Groups of a batch: a run of a multiple of this leaves nothing untrained.
pub const BATCH: u64 = 5;
/// Anything that takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(120);
const COORDINATORS: usize = 2;

/// How much of what.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub conversations: u64,
    pub faults: u64,
    pub seed: u64,
    /// From one fault to the next, at least.
    pub pause: Duration,
}

/// What can happen to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillAgent,
    KillCoordinator,
    /// SIGSTOP for longer than a lease, then SIGCONT.
    HaltAgent,
    HaltCoordinator,
    CutBroker,
    CutStore,
    /// Connections stay open and nothing passes for a while.
    StallBroker,
    StallStore,
    KillBroker,
    KillStore,
    /// Redis comes back empty.
    EmptyStore,
    /// Redis comes back as it was some faults ago.
    OldStore,
}

impl Fault {
    /// How often each comes, out of 24: processes die more often than servers.
    const DRAWN: [(Self, u64); 12] = [
        (Self::KillAgent, 6),
        (Self::KillCoordinator, 4),
        (Self::HaltAgent, 1),
        (Self::HaltCoordinator, 2),
        (Self::CutBroker, 2),
        (Self::CutStore, 2),
        (Self::StallBroker, 1),
        (Self::StallStore, 1),
        (Self::KillBroker, 1),
        (Self::KillStore, 1),
        (Self::EmptyStore, 1),
        (Self::OldStore, 2),
    ];

    fn draw(dice: &mut Dice) -> Self {
        let mut left = dice.below(24);
        for (fault, weight) in Self::DRAWN {
            if left < weight {
                return fault;
            }
            left -= weight;
        }
        Self::KillAgent
    }

    fn of_a_server(self) -> bool {
        matches!(
            self,
            Self::KillBroker | Self::KillStore | Self::EmptyStore | Self::OldStore
        )
    }
}

/// SplitMix64: the same seed, the same faults.
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn one_of<'a>(&mut self, list: &'a [&str]) -> &'a str {
        list[self.below(list.len() as u64) as usize]
    }
}

/// What was done and what came of it.
#[derive(Debug, Default)]
pub struct Report {
    pub faults: BTreeMap<Fault, u64>,
    pub tasks: u64,
    /// From a server's return to the next group that both agents closed, at most.
    pub worst_recovery: Duration,
    /// The same after any fault.
    pub worst_silence: Duration,
    pub seconds: f64,
    pub starts: BTreeMap<String, u64>,
    /// What `dyad audit --json` said.
    pub audit: serde_json::Value,
    pub audit_passed: bool,
}

impl Report {
    #[must_use]
    pub fn conversations(&self) -> u64 {
        self.tasks * GROUP
    }

    fn of(&self, agent: &str, key: &str) -> u64 {
        self.audit["agents"][agent][key].as_u64().unwrap_or(u64::MAX)
    }

    /// Samples of one agent that have a verdict.
    #[must_use]
    pub fn decided(&self, agent: &str) -> u64 {
        self.of(agent, "decided")
    }

    /// Tasks and groups that are gone.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let count = |list: &serde_json::Value| list.as_array().map_or(0, |a| a.len() as u64);
        let unequal = self.audit["books"]["unequal"].as_object().map_or(0, |o| o.len() as u64);
        let missing: u64 = ["a", "b"].iter().map(|agent| self.of(agent, "missing")).sum();
        count(&self.audit["books"]["unseen"]) + unequal + missing
    }

    /// Samples that took effect twice.
    #[must_use]
    pub fn double(&self) -> u64 {
        ["a", "b"].iter().map(|agent| self.of(agent, "twice")).sum()
    }

    #[must_use]
    pub fn rate(&self) -> f64 {
        self.conversations() as f64 / self.seconds
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "faults           {}", self.faults.values().sum::<u64>())?;
        for (fault, count) in &self.faults {
            writeln!(f, "  {count:>4} {fault:?}")?;
        }
        writeln!(f, "starts           {:?}", self.starts)?;
        writeln!(f, "tasks            {}", self.tasks)?;
        writeln!(f, "conversations    {}", self.conversations())?;
        writeln!(
            f,
            "samples trained or discarded: a {}, b {}",
            self.decided("a"),
            self.decided("b")
        )?;
        writeln!(f, "lost             {}", self.lost())?;
        writeln!(f, "double           {}", self.double())?;
        writeln!(f, "groups split between attempts: {}", self.audit["split"])?;
        writeln!(
            f,
            "audit            {}",
            if self.audit_passed { "passed" } else { "FAILED" }
        )?;
        writeln!(
            f,
            "longest wait for a closed group: {:.1?} after any fault",
            self.worst_silence
        )?;
        writeln!(
            f,
            "                                 {:.1?} after a server was back",
            self.worst_recovery
        )?;
        writeln!(
            f,
            "time             {:.1} s, {:.1} conversations/s",
            self.seconds,
            self.rate()
        )
    }
}

/// What a run is made of.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    pub coordinators: usize,
    /// Groups of a batch.
    pub batch: u64,
    /// Samples that are older are not trained on.
    pub staleness: u64,
    /// As (label, `DYAD_FAILPOINTS`).
    pub failpoints: &'a [(&'a str, &'a str)],
    /// Failpoints act at every start of their process, not once in the run.
    pub always: bool,
}

impl Default for Shape<'_> {
    fn default() -> Self {
        Self {
            coordinators: COORDINATORS,
            batch: BATCH,
            staleness: 3,
            failpoints: &[],
            always: false,
        }
    }
}

/// A run with everything around it.
pub struct World {
    pub program: Program,
    pub servers: Servers,
    /// Before the broker, for all but agent a.
    pub broker: Proxy,
    /// Before the broker, for agent a alone.
    pub link: Proxy,
    pub store: Proxy,
    pub fleet: Fleet,
    published: u64,
}

impl World {
    /// A run that plays published tasks with a scripted engine, on two coordinators, reached through proxies.
    #[must_use]
    pub fn start(binary: &str) -> Self {
        Self::with(binary, COORDINATORS, &[])
    }

    /// As [`World::start`], with another number of coordinators and failpoints as (label, `DYAD_FAILPOINTS`).
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

    /// A run of another shape.
    #[must_use]
    pub fn shaped(binary: &str, shape: Shape) -> Self {
        let Shape {
            coordinators,
            batch,
            staleness,
            failpoints,
            always,
        } = shape;
        let program = Program::new(binary);
        let servers = Servers::start();
        let (broker, broker_url) = Proxy::before(&servers.rabbit.url());
        let (store, store_url) = Proxy::before(&servers.redis.url());
        let (link, link_url) = Proxy::before(&servers.rabbit.url());
        let config = Small::scripted()
            .set("run.broker", broker_url)
            .set("run.state", store_url)
            .set("run.folder", program.runs().to_str().unwrap())
            .set("run.train_steps", 1_000_000)
            .set("workflow.group_size", GROUP as i64)
            .set("defaults.agent.train.batch_groups", batch as i64)
            .set("defaults.agent.train.max_staleness", staleness as i64)
            .set("tasks.source", "queue")
            .without("tasks.params")
            .write(&home(&program).join("run.toml"));
        // As if a model spoke: without it everything is over before a fault can hit it.
        let slow = "turn.generated=sleep(20);turn.committed=sleep(20);group.decided=sleep(20);reserve.stored=sleep(20)";
        let once = home(&program).join("fired");
        std::fs::create_dir(&once).unwrap();
        let mut environment = vec![("a", "DYAD_BROKER", link_url.as_str())];
        for label in ["a", "b", "c1", "c2"] {
            let own = failpoints.iter().find(|(whose, _)| *whose == label);
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
        };
        wait_for("the run to be running", PATIENCE, || {
            world.fleet.log("c1").contains("the run is running").then_some(())
        });
        world
    }

    /// Publishes so many more tasks with `dyad publish`.
    pub fn publish(&mut self, tasks: u64) {
        self.publisher(tasks)();
    }

    /// Publishes from a thread of its own, for when it may take long.
    #[must_use]
    pub fn publish_beside(&mut self, tasks: u64) -> std::thread::JoinHandle<()> {
        std::thread::spawn(self.publisher(tasks))
    }

    /// What publishes so many more tasks, again and again until all are confirmed: an id is done once.
    fn publisher(&mut self, tasks: u64) -> impl FnOnce() + Send + 'static {
        let lines: String = (self.published..self.published + tasks)
            .map(|n| {
                format!(
                    "{{\"id\": \"task-{n}\", \"prompt\": \"o{0}\", \"label\": \"o{0}\"}}\n",
                    n % 16
                )
            })
            .collect();
        self.published += tasks;
        let file = home(&self.program).join("tasks.jsonl");
        std::fs::write(&file, lines).unwrap();
        // Past the proxy, which is about the run's own processes.
        let url = self.servers.rabbit.url();
        let run = self.fleet.run().to_str().unwrap();
        let mut publish = self
            .program
            .command(&["publish", file.to_str().unwrap(), "--run", run, "--broker", &url]);
        move || {
            wait_for("tasks to be confirmed", PATIENCE, || {
                (tasks == 0 || publish.output().unwrap().status.success()).then_some(())
            });
        }
    }

    /// Groups that both agents have closed.
    #[must_use]
    pub fn closed(&self) -> u64 {
        let closed = |agent| closed_groups(self.fleet.run(), agent).unwrap_or(0);
        closed("a").min(closed("b"))
    }

    /// Waits until both agents have closed so many groups; answers how long it took.
    pub fn wait_closed(&self, groups: u64) -> Duration {
        let began = Instant::now();
        while self.closed() < groups {
            assert!(
                began.elapsed() < PATIENCE,
                "{} of {groups} groups closed after {PATIENCE:?}\n{}",
                self.closed(),
                self.fleet.logs()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        began.elapsed()
    }

    /// `rabbitmqctl`, against the run's broker.
    pub fn rabbitmqctl(&self, args: &[&str]) -> String {
        let output = self.servers.rabbit.ctl(args).unwrap().output().unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Ends the run; nothing may be lost or twice, and every published task finished by both agents.
    pub fn end_well(&self) -> serde_json::Value {
        let (audit, passed) = self.end();
        assert!(passed, "{audit:#}\n{}", self.fleet.logs());
        let books = &audit["books"];
        let figures = [&books["published"], &books["finished"]].map(|figure| figure.as_u64().unwrap());
        assert_eq!(figures, [self.published; 2], "{books:#}");
        let open = [&books["unseen"], &books["unequal"]].map(ToString::to_string);
        assert_eq!(open, ["[]", "{}"]);
        audit
    }

    /// Waits for all that was published, ends the run and counts. The exit code of `dyad audit` is part of the answer.
    pub fn end(&self) -> (serde_json::Value, bool) {
        self.wait_closed(self.published);
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

    /// Tells the coordinators to end, until all have ended.
    fn drain(&self) {
        let topology = Topology::new(RunId::new(RUN).unwrap());
        self.servers.block_on(async {
            let bus = AmqpBus::connect(&self.servers.rabbit.url(), AmqpOptions::default())
                .await
                .unwrap();
            let began = Instant::now();
            while !self.fleet.ended() {
                assert!(began.elapsed() < PATIENCE, "does not end:\n{}", self.fleet.logs());
                let order = Outgoing {
                    to: topology.to_control(Speaker::Operator),
                    kind: Kind::Command,
                    message_id: "drain".into(),
                    correlation_id: None,
                    headers: Vec::new(),
                    body: broker::codec::encode_json(&Command::Drain).into(),
                    durable: false,
                };
                let _ = bus.publish(order).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            bus.close().await;
        });
    }

    /// Does one fault and undoes what of it does not heal by itself; returns when the healing begins.
    fn strike(&mut self, fault: Fault, dice: &mut Dice, old: &Path) {
        let agent = dice.one_of(&["a", "b"]);
        let coordinator = dice.one_of(&["c1", "c2"]);
        let short = Duration::from_millis(500 + dice.below(2500));
        match fault {
            Fault::KillAgent => self.kill(agent),
            Fault::KillCoordinator => self.kill(coordinator),
            Fault::HaltAgent => self.halt(agent, short),
            // The lease is two seconds.
            Fault::HaltCoordinator => self.halt(coordinator, short * 2),
            Fault::CutBroker => {
                self.broker.cut();
                self.link.cut();
            }
            Fault::CutStore => self.store.cut(),
            Fault::StallBroker => stall(&[&self.broker, &self.link], short),
            Fault::StallStore => stall(&[&self.store], short),
            Fault::KillBroker => self.servers.crash_rabbit(),
            Fault::KillStore => self.servers.crash_redis(true),
            Fault::EmptyStore => self.servers.crash_redis(false),
            Fault::OldStore => self.servers.restore_redis(old),
        }
    }

    /// SIGKILL, to a process that is there.
    fn kill(&self, label: &str) {
        wait_for("a process to be killed", PATIENCE, || {
            self.fleet.signal(label, "KILL").then_some(())
        });
    }

    fn halt(&self, label: &str, time: Duration) {
        wait_for("a process to be halted", PATIENCE, || {
            self.fleet.signal(label, "STOP").then_some(())
        });
        std::thread::sleep(time);
        self.fleet.signal(label, "CONT");
    }
}

fn stall(proxies: &[&Proxy], time: Duration) {
    proxies.iter().for_each(|proxy| proxy.set(Mode::Stall));
    std::thread::sleep(time);
    proxies.iter().for_each(|proxy| proxy.set(Mode::Pass));
}

fn home(program: &Program) -> PathBuf {
    program.runs().parent().unwrap().to_owned()
}

/// Groups that an agent's ledger has closed; nothing while it cannot be read.
#[must_use]
pub fn closed_groups(run: &Path, agent: &str) -> Option<u64> {
    let inspector = Inspector::open(&run.join("buffer").join(format!("{agent}.sqlite"))).ok()?;
    let rows = inspector.groups().ok()?;
    Some(rows.iter().filter(|row| row.state != RowState::Reserved).count() as u64)
}

/// Runs the plan to its end.
#[must_use]
pub fn run(binary: &str, plan: Plan) -> Report {
    let mut world = World::start(binary);
    let mut dice = Dice(plan.seed);
    let mut report = Report {
        tasks: (plan.conversations / GROUP).next_multiple_of(BATCH),
        ..Report::default()
    };
    let began = Instant::now();
    let mut old = world.servers.copy_redis();
    for n in 0..plan.faults {
        let due = report.tasks * (n + 1) / plan.faults;
        let tasks = due - world.published;
        let newer = world.servers.copy_redis();
        let before = world.closed();
        let publisher = world.publish_beside(tasks);
        std::thread::sleep(Duration::from_millis(dice.below(1500)));
        let fault = Fault::draw(&mut dice);
        println!(
            "{:>6.1} s  fault {n}: {fault:?}, {before} of {due} groups closed",
            began.elapsed().as_secs_f64()
        );
        world.strike(fault, &mut dice, old.path());
        *report.faults.entry(fault).or_default() += 1;
        let (healing, healed) = (Instant::now(), world.closed());
        publisher.join().unwrap();
        world.wait_closed((healed + 1).min(due));
        let waited = healing.elapsed();
        report.worst_silence = report.worst_silence.max(waited);
        if fault.of_a_server() {
            report.worst_recovery = report.worst_recovery.max(waited);
        }
        old = newer;
        std::thread::sleep(plan.pause.saturating_sub(waited));
    }
    world.publish(report.tasks - world.published);
    world.wait_closed(report.tasks);
    report.seconds = began.elapsed().as_secs_f64();
    (report.audit, report.audit_passed) = world.end();
    report.starts = world
        .fleet
        .labels()
        .into_iter()
        .map(|label| (label.clone(), world.fleet.starts(&label)))
        .collect();
    if !report.audit_passed || report.lost() + report.double() > 0 {
        println!("{}", world.fleet.logs());
    }
    report
}

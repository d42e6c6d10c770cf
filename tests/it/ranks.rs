//! A trainer of several ranks, as processes of their own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tests::fleet::{Fleet, RUN};
use tests::ports::quiet_port;
use tests::program::{Program, Running, signal, wait_until};
use tests::servers::Servers;
use tests::trace::{audit, batches, digests};

use crate::external::python;
use crate::program;

const PATIENCE: Duration = Duration::from_secs(240);
const STEPS: &str = "16";

/// Writes the signal game with two ranks of agent a, which split the state of `shard`; further
/// settings follow on their own lines. Each batch has several micro-batches, and the ranks a short
/// patience.
fn config(program: &Program, shard: &str) -> String {
    let text = std::fs::read_to_string(Program::root().join("configs/signal.toml")).unwrap();
    let (shard, more) = shard.split_once('\n').unwrap_or((shard, ""));
    let agent = format!(
        "[agents.a]\ntrain.devices = [\"cpu\", \"cpu\"]\ntrain.shard = \"{shard}\"\n{more}\n\
         train.micro_batch_tokens = 64\nengine.stuck_after = \"10s\"\n"
    );
    program.file("ranks.toml", &text.replace("[agents.a]\n", &agent))
}

/// Plays the run without faults, with one process for each rank above the first.
fn undisturbed(program: &Program, shard: &str) -> PathBuf {
    program.play("run", &config(program, shard), &["--seed", "5", "--steps", STEPS])
}

/// The processes of rank 1 of agent a's trainer, in the order of their starts.
fn ranks(running: &Running) -> Vec<u32> {
    let lines = running.supervised().into_iter();
    lines
        .filter(|(label, _)| label == "a")
        .filter_map(|(_, text)| rank_in(&text))
        .collect()
}

/// The process of the rank that this line of a log says was started.
fn rank_in(line: &str) -> Option<u32> {
    let (_, fields) = line.split_once("started a rank of the trainer")?;
    let number = fields.split("pid=").nth(1)?.chars();
    number.take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

fn trained_all(run: &Path) {
    let audit = audit(run, "a");
    assert_eq!((audit.twice, audit.missing), (0, 0), "{audit:?}");
    assert_eq!(audit.counts.trained, 16 * 256, "{audit:?}");
}

#[test]
fn ranks_train_the_same_with_and_without_shards() {
    let programs: Vec<Program> = (0..5).map(|_| program()).collect();
    let recomputed = "\ntrain.checkpoint_activations = true";
    let runs: Vec<PathBuf> = [
        "none".to_owned(),
        "optimizer".to_owned(),
        format!("gradient{recomputed}"),
        format!("full{recomputed}"),
        format!("gradient{recomputed}\ntrain.offload = \"optimizer\""),
    ]
    .iter()
    .zip(&programs)
    .map(|(shard, program)| undisturbed(program, shard))
    .collect();
    let whole = digests(&runs[0]);
    assert!(!whole.is_empty());
    for run in &runs {
        assert_eq!(digests(run), whole, "{}", run.display());
        trained_all(run);
    }
}

/// The variables of a rank, as torchrun sets them for ranks of one host.
fn variables(rank: &'static str, port: &str) -> [(&'static str, String); 5] {
    [
        ("RANK", rank.to_owned()),
        ("LOCAL_RANK", rank.to_owned()),
        ("WORLD_SIZE", "2".to_owned()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_owned()),
    ]
}

/// The addresses that listen at a port, from the kernel's table, in its hexadecimal form.
fn listening(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    let places = rows.filter_map(|row| {
        let mut fields = row.split_whitespace().skip(1);
        let (place, state) = (fields.next()?, fields.nth(1)?);
        (state == "0A").then_some(place)
    });
    let end = format!(":{port:04X}");
    places
        .filter_map(|place| Some(place.strip_suffix(&end)?.to_owned()))
        .collect()
}

/// Writes the undisturbed run for processes that are started one by one.
fn launched(program: &Program, servers: &Servers) -> String {
    let text = std::fs::read_to_string(config(program, "optimizer")).unwrap();
    let (broker, state, runs) = (servers.rabbit.url(), servers.redis.url(), program.runs());
    let urls = format!(
        "broker = \"{broker}\"\nstate = \"{state}\"\nfolder = \"{}\"\n",
        runs.display()
    );
    let text = text.replace("broker = \"memory:\"\nstate = \"memory:\"\n", &urls);
    let text = text
        .replace("seed = 0", "seed = 5")
        .replace("train_steps = 1500", "train_steps = 16");
    program.file("launched.toml", &text)
}

#[test]
fn launched_ranks_train_as_those_that_the_agent_starts() {
    let (program, clean, servers) = (program(), program(), Servers::start());
    let path = launched(&program, &servers);
    let port = quiet_port();
    let of = |rank| variables(rank, &port.to_string());
    let (first, second) = (of("0"), of("1"));
    let first: Vec<(&str, &str, &str)> = first.iter().map(|(name, value)| ("a", *name, value.as_str())).collect();
    let second: Vec<(&str, &str)> = second.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let fleet = Fleet::start_with(&program, Path::new(&path), 1, &first);
    let mut rank = program.start_with(&["agent", "--name", "a", "--config", &path, "--run", RUN], &second);
    wait_until("the ranks to meet", PATIENCE, || !listening(port).is_empty());
    assert_eq!(listening(port), ["0100007F"], "on loopback only");
    fleet.finish(PATIENCE);
    rank.finish(PATIENCE);
    trained_all(fleet.run());
    assert_eq!(digests(fleet.run()), digests(&undisturbed(&clean, "optimizer")));
}

/// torchrun itself, if `make parity` named a Python that has torch.
#[test]
fn torchrun_starts_ranks_that_train_the_same() {
    let Some(python) = python() else { return };
    let (program, clean, servers) = (program(), program(), Servers::start());
    let path = launched(&program, &servers);
    let which = ["--config", &path, "--run", RUN];
    let dyad = program.command(&[]).get_program().to_str().unwrap().to_owned();
    // Without `--` it takes `--run` for an option of its own.
    let launcher = "-m torch.distributed.run --standalone --no-python --nproc-per-node 2 --";
    let launcher: Vec<&str> = launcher.split(' ').collect();
    let agent = [dyad.as_str(), "agent", "--name", "a"];
    let mut ranks = program
        .with_binary(&python)
        .start(&[&launcher, &agent[..], &which].concat());
    let others = [&["coordinator"][..], &["agent", "--name", "b"][..]];
    let mut others = others.map(|args| program.start(&[args, &which[..]].concat()));
    others.iter_mut().for_each(|other| other.finish(PATIENCE));
    ranks.finish(PATIENCE);
    let run = program.runs().join(RUN);
    trained_all(&run);
    assert_eq!(digests(&run), digests(&undisturbed(&clean, "optimizer")));
}

/// A second host: a network namespace with a cable to this one.
struct Host {
    name: String,
    /// The end of the cable in the namespace.
    far: String,
    /// The address of this end.
    address: String,
}

impl Host {
    /// Needs root; `None` without the right to make namespaces.
    fn new() -> Option<Self> {
        let id = std::process::id();
        let (name, near, far) = (format!("dyad-{id}"), format!("dn{id}"), format!("df{id}"));
        let net = format!("100.127.{}", id % 250);
        if !ip(&format!("netns add {name}")) {
            return None;
        }
        let host = Self {
            address: format!("{net}.1"),
            name,
            far,
        };
        let Self { name, far, address } = &host;
        let is_up = [
            format!("link add {near} type veth peer name {far} netns {name}"),
            format!("addr add {address}/24 dev {near}"),
            format!("link set {near} up"),
            format!("-n {name} addr add {net}.2/24 dev {far}"),
            format!("-n {name} link set lo up"),
            format!("-n {name} link set {far} up"),
        ];
        is_up.iter().for_each(|command| assert!(ip(command), "ip {command}"));
        Some(host)
    }

    fn cut(&self, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        assert!(ip(&format!("-n {} link set {} {state}", self.name, self.far)));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.name));
    }
}

/// Runs `ip`. Returns false if it fails or is missing.
fn ip(command: &str) -> bool {
    let ended = std::process::Command::new("ip").args(command.split(' ')).status();
    ended.is_ok_and(|status| status.success())
}

#[test]
#[ignore = "needs root, for a second host's network: `make test-long`"]
fn ranks_on_two_hosts_lose_a_rank_and_two_seconds_of_network_and_no_bit() {
    let Some(host) = Host::new() else {
        println!("skipped: `ip netns add` needs root and iproute2");
        return;
    };
    let (program, clean, servers) = (program(), program(), Servers::start());
    let (path, port) = (launched(&program, &servers), quiet_port().to_string());
    let which = ["--config", &path, "--run", RUN];
    let dyad = program.command(&[]).get_program().to_str().unwrap().to_owned();
    let far = ["netns", "exec", &host.name, &dyad];
    let there = program.with_binary("ip");
    let ranks = |restart: &str| {
        let start = |rank: &'static str, program: &Program, before: &[&str]| {
            let of_host = [("MASTER_ADDR", &host.address[..]), ("LOCAL_RANK", "0")];
            let mut all = variables(rank, &port).to_vec();
            all.extend(of_host.map(|(name, value)| (name, value.to_owned())));
            all.push(("TORCHELASTIC_RESTART_COUNT", restart.to_owned()));
            let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
            program.start_with(&[before, &["agent", "--name", "a"], &which].concat(), &all)
        };
        [start("0", &program, &[]), start("1", &there, &far)]
    };
    let others = [&["coordinator"][..], &["agent", "--name", "b"][..]];
    let mut others = others.map(|args| program.start(&[args, &which[..]].concat()));
    let [mut first, mut second] = ranks("0");
    let run = program.runs().join(RUN);
    second.kill_when("agent a to train 5 batches", PATIENCE, || batches(&run, "a") >= 5);
    let ended = first.end(PATIENCE).and_then(|status| status.code());
    assert_eq!(ended, Some(70), "{}", first.log());

    let mut again = ranks("1");
    wait_until("agent a to train 10 batches", PATIENCE, || batches(&run, "a") >= 10);
    host.cut(true);
    let before = batches(&run, "a");
    assert!(before < 16, "the run was over before the cut");
    std::thread::sleep(Duration::from_secs(2));
    let within = batches(&run, "a") - before;
    assert!(within <= 1, "{within} batches without the other host");
    host.cut(false);
    others.iter_mut().chain(&mut again).for_each(|one| one.finish(PATIENCE));
    trained_all(&run);
    assert_eq!(digests(&run), digests(&undisturbed(&clean, "optimizer")));
}

#[test]
fn half_set_variables_of_a_launcher_are_refused() {
    let program = program();
    let path = config(&program, "none");
    let mut agent = program.command(&["agent", "--name", "a", "--config", &path, "--run", RUN]);
    let said = tests::program::fail(2, agent.env("RANK", "1").env("WORLD_SIZE", "2"));
    assert!(said.contains("LOCAL_RANK, MASTER_ADDR, MASTER_PORT are not"), "{said}");
    let single = config(&program, "optimizer").clone();
    let text = std::fs::read_to_string(&single).unwrap();
    let single = program.file("single.toml", &text.replace("[\"cpu\", \"cpu\"]", "[]"));
    let said = program.fail(2, &["check", &single]);
    assert!(said.contains("train.shard") && said.contains("several ranks"), "{said}");
}

/// Returns true for a process that is gone. A zombie has no memory, and its parent was killed.
fn has_ended(pid: &u32) -> bool {
    let memory = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    memory.is_empty() || memory.starts_with("0 ")
}

/// Sends a rank a signal in the middle of a run, and compares with an undisturbed one. Rank 0 is
/// the agent's process, which ends with `status`.
fn disturbed_by(name: &str, rank: usize, status: &str) {
    let (program, clean) = (program(), program());
    let (config, runs) = (config(&program, "optimizer"), program.runs());
    let folder = ["--folder", runs.to_str().unwrap()];
    let mut running = program.start(&[&["up", &config, "--seed", "5", "--steps", STEPS][..], &folder].concat());
    let run = program.run_folder();
    wait_until("agent a to train 5 batches", PATIENCE, || batches(&run, "a") >= 5);
    let all = [running.pids("a"), ranks(&running)].concat();
    signal(name, all[rank]);
    running.finish(PATIENCE);
    let log = running.log();
    assert_eq!(running.pids("a").len(), 2, "the agent started again:\n{log}");
    assert_eq!(ranks(&running).len(), 2, "and so did its rank:\n{log}");
    let again = format!("ended with {status} before the run; starting again");
    assert!(log.contains(&again), "{log}");
    assert!(all.iter().all(has_ended), "no rank of the first start is left");
    trained_all(&run);
    assert_eq!(digests(&run), digests(&undisturbed(&clean, "optimizer")));
}

#[test]
fn killed_rank_restarts_with_its_agent_and_costs_no_bit() {
    disturbed_by("KILL", 1, "exit status: 70");
}

/// Returns true if the agent's process works on groups, or has died while it worked on some.
fn has_marks(run: &Path) -> bool {
    let marks = std::fs::read(run.join("strikes/a.marks")).unwrap_or_default();
    let mut open = std::collections::BTreeSet::new();
    for mark in marks.chunks_exact(17) {
        match mark[0] {
            b'+' => open.insert(&mark[1..]),
            _ => open.remove(&mark[1..]),
        };
    }
    !open.is_empty()
}

#[test]
fn lost_rank_is_no_crash_of_the_groups_in_the_engine() {
    let (program, servers) = (program(), Servers::start());
    let path = launched(&program, &servers);
    let which = ["--config", &path, "--run", RUN];
    let others = [&["coordinator"][..], &["agent", "--name", "b"][..]];
    let _others = others.map(|args| program.start(&[args, &which[..]].concat()));
    // The engine is at work when the rank ends.
    let slow = [("DYAD_FAILPOINTS", "engine.step=4*off->sleep(60000)")];
    let mut agent = program.start_with(&[&["agent", "--name", "a"][..], &which].concat(), &slow);
    let run = program.runs().join(RUN);
    wait_until("the engine to work", PATIENCE, || has_marks(&run));
    let rank = agent.log().lines().find_map(rank_in).unwrap();
    signal("KILL", rank);
    let ended = agent.end(PATIENCE).and_then(|status| status.code());
    assert_eq!(ended, Some(70), "{}", agent.log());
    let said = "agent a: rank 1 of its trainer ended with signal: 9";
    assert!(agent.log().contains(said), "{}", agent.log());
    assert!(!has_marks(&run), "no group is to blame");
}

#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn rank_with_a_stop_signal_restarts_with_its_agent_and_costs_no_bit() {
    disturbed_by("TERM", 1, "exit status: 70");
}

#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn stopped_run_leaves_no_rank_and_continues_to_the_same_bits() {
    let (program, clean) = (program(), program());
    let (config, runs) = (config(&program, "optimizer"), program.runs());
    let folder = ["--folder", runs.to_str().unwrap()];
    let mut running = program.start(&[&["up", &config, "--seed", "5", "--steps", STEPS][..], &folder].concat());
    let run = program.run_folder();
    wait_until("agent a to train 5 batches", PATIENCE, || batches(&run, "a") >= 5);
    let all = [running.pids("a"), ranks(&running)].concat();
    signal("TERM", running.pid());
    let ended = running.end(PATIENCE).and_then(|status| status.code());
    assert_eq!(ended, Some(130), "{}", running.log());
    assert!(batches(&run, "a") < 16, "the run was over before the signal");
    assert!(all.len() == 2 && all.iter().all(has_ended), "{all:?} are left");
    let mut again = program.start(&["up", "--resume", run.to_str().unwrap()]);
    again.finish(PATIENCE);
    trained_all(&run);
    assert_eq!(digests(&run), digests(&undisturbed(&clean, "optimizer")));
}

#[test]
fn stopped_rank_restarts_with_its_agent_and_costs_no_bit() {
    disturbed_by("STOP", 1, "exit status: 70");
}

#[test]
fn stopped_first_rank_is_killed_and_costs_no_bit() {
    disturbed_by("STOP", 0, "signal: 9 (SIGKILL)");
}

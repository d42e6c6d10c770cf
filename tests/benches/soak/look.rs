//! Measurements of a run from outside: memory of its processes and servers, messages in its queues.

use std::collections::HashMap;

use broker::bus::Bus;
use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::ids::RunId;
use broker::topology::Topology;
use configs::AgentName;
use tests::chaos::World;
use tests::fleet::RUN;

pub(crate) const PROCESSES: [&str; 4] = ["a", "b", "c1", "c2"];

/// Resident memory in MiB by process; a server counts with all its children.
pub(crate) type Memory = Vec<(&'static str, f64)>;

pub(crate) fn memory(world: &World) -> Memory {
    let children = children();
    let servers = [
        ("RabbitMQ", world.servers.rabbit.own().pid()),
        ("Redis", world.servers.redis.pid()),
    ];
    let labels = world.fleet.labels();
    let running = PROCESSES
        .into_iter()
        .filter(|label| labels.iter().any(|own| own == label));
    let own = running.map(|label| (label, world.fleet.pid(label)));
    own.chain(servers)
        .map(|(who, pid)| (who, pid.map_or(0.0, |pid| mebibytes(pid, &children))))
        .collect()
}

/// Returns the MiB of one process in [`memory`].
pub(crate) fn of(memory: &Memory, who: &str) -> f64 {
    memory
        .iter()
        .find(|(name, _)| *name == who)
        .map_or(0.0, |(_, mib)| *mib)
}

fn mebibytes(pid: u32, children: &HashMap<u32, Vec<u32>>) -> f64 {
    let below = children.get(&pid).into_iter().flatten();
    resident(pid) + below.map(|child| mebibytes(*child, children)).sum::<f64>()
}

fn resident(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn children() -> HashMap<u32, Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let parent = status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
        children.entry(parent.unwrap_or(0)).or_default().push(pid);
    }
    children
}

/// Returns the bytes that Redis counts as its data, and its number of keys.
pub(crate) fn redis(world: &World) -> (f64, u64) {
    let info = world.servers.redis_ask(&["INFO", "memory"]);
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    let keys = world.servers.redis_ask(&["DBSIZE"]);
    (
        used.and_then(|text| text.trim().parse().ok()).unwrap_or(0.0),
        keys.trim().parse().unwrap_or(0),
    )
}

/// The run's queues over a separate connection.
pub(crate) struct Queues {
    bus: std::sync::Arc<AmqpBus>,
    topology: Topology,
}

impl Queues {
    pub(crate) fn of(world: &World) -> Self {
        let url = world.servers.rabbit.url();
        let bus = world.servers.block_on(AmqpBus::connect(&url, AmqpOptions::default()));
        Self {
            bus: bus.unwrap(),
            topology: Topology::new(RunId::new(RUN).unwrap()),
        }
    }

    /// Returns the ready messages in the queue of tasks, and in all others together.
    pub(crate) fn depths(&self, world: &World) -> (u64, u64) {
        let agents = ["a", "b"].map(|name| AgentName::new(name).unwrap());
        let (mut tasks, mut others) = (0, 0);
        for queue in self.topology.durable_queues(&agents) {
            let ready = world.servers.block_on(self.bus.depth(&queue)).unwrap_or(0);
            if queue.name == self.topology.tasks().name {
                tasks = ready;
            } else {
                others += ready;
            }
        }
        (tasks, others)
    }
}

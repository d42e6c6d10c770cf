//! The devices that a run's agents name, compared with what this machine has.

mod gpus;

use std::path::Path;

use configs::{AgentName, DeviceName, RunConfig};
use trainer::device;

use crate::agent::launched::Launched;
use crate::policy::memory::{self, Memory, OnDevice, Processes, amount};
pub(super) use gpus::{Gpu, listed as gpus};

/// A device that a configuration names, on this machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DeviceReport {
    pub device: DeviceName,
    /// The reason why this process cannot use it.
    pub missing: Option<String>,
    /// Its memory in bytes, if known.
    pub total: Option<u64>,
    pub needs: OnDevice,
    /// The part of `needs` in host memory that belongs to devices that are missing.
    pub elsewhere: u64,
}

/// Returns a report for each device. GPUs come first, because a process that begins with the CPU
/// cannot add one.
pub(super) fn reports(config: &RunConfig, processes: Processes) -> Vec<DeviceReport> {
    reports_of(config, processes, |_| true)
}

/// Returns a report for each device that is `wanted`. The others are not opened.
pub(super) fn reports_of(
    config: &RunConfig,
    processes: Processes,
    wanted: impl Fn(DeviceName) -> bool,
) -> Vec<DeviceReport> {
    let mut needs = memory::by_device(config, processes, launched());
    needs.retain(|device, _| wanted(*device));
    let report = |(device, needs): (DeviceName, OnDevice)| DeviceReport {
        device,
        missing: device::init(device.into()).err().map(|error| error.to_string()),
        total: total(device),
        needs,
        elsewhere: 0,
    };
    let mut reports: Vec<DeviceReport> = needs.into_iter().rev().map(report).collect();
    let missing = reports.iter().filter(|report| report.missing.is_some());
    let missing: Vec<DeviceName> = missing.map(|report| report.device).collect();
    for report in &mut reports {
        let hosted = report.needs.hosted.iter();
        let elsewhere = hosted.filter(|hosted| missing.contains(&hosted.device));
        report.elsewhere = elsewhere.map(|hosted| hosted.bytes).sum();
    }
    reports
}

/// Returns the number of ranks of a trainer, if torchrun or another launcher has started this
/// process.
pub(super) fn launched() -> Option<usize> {
    // A rank with incomplete variables reports them itself when it starts.
    Launched::of_environment().ok()?.map(|launched| launched.world_size)
}

impl DeviceReport {
    /// Returns the agents of the device, separated by commas.
    pub(super) fn agents(&self) -> String {
        let known = self.needs.agents.iter().map(|(name, _)| name);
        let hosted = self.needs.hosted.iter().map(|hosted| &hosted.agent);
        let all = known.chain(&self.needs.unknown).chain(hosted);
        let mut names: Vec<&str> = all.map(AgentName::as_str).collect();
        names.dedup();
        names.join(", ")
    }

    /// Returns the reason why the run cannot work here, if there is one.
    pub(super) fn problem(&self) -> Option<String> {
        let (device, agents) = (self.device, self.agents());
        if let Some(missing) = &self.missing {
            return Some(format!("device {device} of {agents}: {missing}"));
        }
        self.shortage()
    }

    /// Returns the verdict on a device of this machine that has less memory in all than its agents
    /// need. Host memory for missing devices does not count: the run is for another machine.
    pub(super) fn shortage(&self) -> Option<String> {
        let least = self.needs.least() - self.elsewhere;
        let is_short = |total: &u64| self.missing.is_none() && least > *total;
        let total = self.total.filter(is_short)?;
        let more = match self.device {
            // The host would hold the offloaded state and the other shares too.
            DeviceName::Cpu => "",
            DeviceName::Cuda(_) => {
                ", train.shard = \"optimizer\" with several train.devices, train.offload = \"optimizer\""
            }
        };
        Some(format!(
            "device {} of {} cannot suffice: weights, gradient, optimizer and engine.cache_mib need {}, and it has {}; try \
             a smaller model, agents.NAME.lora, a lower engine.cache_mib{more}, or a device with more memory",
            self.device,
            self.agents(),
            amount(least),
            amount(total)
        ))
    }

    /// Returns true if one agent alone needs more than the device has, whatever the others need.
    pub(super) fn is_too_small_for_one(&self) -> bool {
        let agents = self.needs.agents.iter().map(|(_, memory)| memory.least());
        let hosted = self
            .needs
            .hosted
            .iter()
            .map(|hosted| hosted.bytes)
            .filter(|_| self.elsewhere == 0);
        let largest = agents.chain(hosted).max();
        self.total.zip(largest).is_some_and(|(total, largest)| largest > total)
    }

    /// Returns advice if the caches of full slots would not fit on a GPU.
    fn cache_advice(&self) -> Option<String> {
        let total = self.total.filter(|_| self.device != DeviceName::Cpu)?;
        let memories = self.needs.agents.iter().map(|(_, memory)| memory);
        let (rows, engines) = memories.fold((0, 0), |(rows, engines), memory| {
            (rows + memory.rows, engines + memory.engines)
        });
        let spare = total.saturating_sub(self.needs.least() + self.needs.passing());
        if rows <= spare {
            return None;
        }
        // A tenth stays free for a step's own tensors.
        let each = (spare / 10 * 9 / engines.max(1)) >> 20;
        let wanted = format!("keys and values of full slots need {}", amount(rows));
        Some(match each {
            0 => format!(
                "{wanted}, and nothing is left for them: lower sampling.max_context, or train on another device"
            ),
            each => format!("{wanted}; engine.cache_mib = {each} bounds them to what is left"),
        })
    }

    /// Returns a line with the estimated total and a line for each agent.
    pub(super) fn memory(&self) -> String {
        let total = self.total.map_or("unknown".to_owned(), amount);
        let mut lines = vec![format!(
            "{}: {} at least, about {} at work, of {total}",
            self.device,
            amount(self.needs.least()),
            amount(self.needs.least() + self.needs.passing()),
        )];
        lines.extend(self.needs.agents.iter().map(|(name, memory)| parts(name, memory)));
        let hosted = self.needs.hosted.iter();
        lines.extend(hosted.map(|hosted| {
            let process = process(&hosted.agent, hosted.is_engine, hosted.rank);
            let bytes = amount(hosted.bytes);
            format!("{process}: {bytes} of host memory for {}", hosted.device)
        }));
        let unknown = self.needs.unknown.iter();
        lines.extend(unknown.map(|name| format!("{name}: unknown, its model cannot be read here")));
        lines.extend(self.cache_advice());
        lines.join("\n")
    }
}

/// Returns what an agent's memory consists of.
fn parts(name: &AgentName, memory: &Memory) -> String {
    let parts = [
        ("base", memory.base),
        ("weights", memory.weights),
        ("masters", memory.masters),
        ("gradient", memory.gradient),
        ("optimizer", memory.optimizer),
        ("CUDA about", memory.context),
        ("activations about", memory.activations),
        ("logits about", memory.logits),
        ("cache", memory.cache),
        ("cache for each full row", memory.row),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(part, bytes)| format!("{part} {}", amount(bytes)))
        .collect();
    let process = process(name, memory.is_engine, memory.rank);
    format!("{process}: {}", parts.join(", "))
}

/// Returns the name of an agent's process.
fn process(agent: &AgentName, is_engine: bool, rank: usize) -> String {
    match (is_engine, rank) {
        (true, _) => format!("{agent}, its engine"),
        (false, 0) => agent.to_string(),
        (false, rank) => format!("{agent}, rank {rank} of its trainer"),
    }
}

/// Returns the memory of a device in bytes.
fn total(device: DeviceName) -> Option<u64> {
    match device {
        DeviceName::Cpu => host_memory(),
        DeviceName::Cuda(index) => gpus::memory(index),
    }
}

/// Returns the memory that this machine or its container has.
fn host_memory() -> Option<u64> {
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    let machine = meminfo("MemTotal:")?;
    Some(limit.map_or(machine, |limit| limit.min(machine)))
}

/// Returns the memory that Linux reports as available without swapping, in bytes.
pub(super) fn free_memory() -> Option<u64> {
    meminfo("MemAvailable:")
}

fn meminfo(key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(Path::new("/proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::CONFIG;

    fn signal(agent: &str) -> RunConfig {
        RunConfig::parse(&CONFIG.replace("[agents.a]", agent), Path::new("x.toml")).unwrap()
    }

    #[test]
    fn missing_gpu_is_a_problem_that_names_its_agents() {
        let config = signal("[agents.a]\ndevice = \"cuda:99\"");
        let reports = reports(&config, Processes::One);
        assert_eq!(reports.len(), 2, "{reports:?}");
        let problem = reports[0].problem().unwrap();
        assert!(problem.starts_with("device cuda:99 of a: "), "{problem}");
        assert_eq!(reports[1].problem(), None, "the CPU is there");
    }

    #[test]
    fn too_little_memory_is_a_problem_with_both_figures() {
        let mut report = reports(&signal("[agents.a]"), Processes::One).remove(0);
        assert_eq!(report.problem(), None);
        report.total = Some(1 << 10);
        let problem = report.problem().unwrap();
        assert!(
            problem.contains("of a, b cannot suffice: ") && problem.contains("and it has 1.0 KiB; try a smaller model"),
            "{problem}"
        );
        assert!(
            !problem.contains("train.offload"),
            "the host would hold it too: {problem}"
        );
        let table = report.memory();
        assert!(table.contains("optimizer") && table.contains("\nb: weights"), "{table}");
        report.device = DeviceName::Cuda(0);
        assert!(report.problem().unwrap().contains("train.offload"));
    }

    #[test]
    fn host_memory_that_offloaded_state_exceeds_is_a_problem() {
        let offloaded = "[agents.a]\ndevice = \"cuda:99\"\ntrain.offload = \"optimizer\"";
        let mut reports = reports(&signal(offloaded), Processes::One);
        assert!(reports[0].missing.is_some(), "{reports:?}");
        let host = &mut reports[1];
        let hosted: u64 = host.needs.hosted.iter().map(|hosted| hosted.bytes).sum();
        host.total = Some(host.needs.least() - 1);
        assert!(hosted > 0 && hosted == host.elsewhere, "{host:?}");
        assert_eq!(host.problem(), None, "the run is for another machine");
        host.elsewhere = 0;
        let problem = host.problem().unwrap();
        assert!(problem.starts_with("device cpu of b, a cannot suffice: "), "{problem}");
        assert!(
            host.memory().contains(" of host memory for cuda:99"),
            "{}",
            host.memory()
        );
        host.total = Some(host.needs.least());
        assert_eq!(host.problem(), None);
    }

    #[test]
    fn tight_gpu_gets_a_bound_for_its_caches() {
        let mut report = reports(&signal("[agents.a]"), Processes::One).remove(0);
        report.total = Some(64 << 30);
        let free = report.memory();
        report.device = DeviceName::Cuda(0);
        assert!(
            !free.contains("cache_mib") && !report.memory().contains("cache_mib"),
            "{free}"
        );
        let spared: u64 = report.needs.agents.iter().map(|(_, memory)| memory.rows).sum();
        report.total = Some(report.needs.least() + report.needs.passing() + spared - 1);
        let each = ((spared - 1) / 10 * 9 / 2) >> 20;
        let shown = report.memory();
        assert!(
            each > 0 && shown.contains(&format!("engine.cache_mib = {each} ")),
            "{shown}"
        );
        report.total = Some(1);
        assert!(report.memory().contains("nothing is left"));
        report
            .needs
            .agents
            .iter_mut()
            .for_each(|(_, memory)| (memory.rows, memory.engines) = (0, 0));
        assert!(!report.memory().contains("nothing is left"), "bounded already");
    }
}

//! The process itself: its release, its run, and what the operating system says of it.

use std::collections::BTreeSet;

use configs::RunConfig;

use crate::base::build_info;
use crate::observe::table::{Labelled, Level, SeriesTable, Total};

pub(crate) struct ProcessSeries {
    build: Labelled<Level, 4>,
    run: Labelled<Level, 3>,
    pub(crate) cpu: Labelled<Total, 0>,
    pub(crate) resident: Labelled<Level, 0>,
    pub(crate) started: Labelled<Level, 0>,
    pub(crate) descriptors: Labelled<Level, 0>,
    pub(crate) device_memory: Labelled<Level, 2>,
}

impl ProcessSeries {
    pub(super) fn register(table: &mut SeriesTable) -> Self {
        Self {
            build: table.gauge(
                "dyad_build_info",
                ["version", "commit", "libtorch", "device"],
                "what the program was built from and computes on; always 1",
            ),
            run: table.gauge("dyad_run_info", ["workflow", "mode", "lead"], "the run; always 1"),
            cpu: table.counter("process_cpu_seconds", [], "processor time"),
            resident: table.gauge("process_resident_memory_bytes", [], "memory in use"),
            started: table.gauge("process_start_time_seconds", [], "start, seconds since 1970"),
            descriptors: table.gauge("process_open_fds", [], "open files and sockets"),
            device_memory: table.gauge(
                "dyad_device_memory_bytes",
                ["device", "kind"],
                "a GPU's memory: `allocated` for tensors, `reserved` by this process, `total`",
            ),
        }
    }

    /// Sets what stays the same for the life of the process. `component` is its name in the run:
    /// an agent, `AGENT.engineN`, `AGENT.rankN`, `coordinator` or `run`.
    pub(crate) fn describe(&self, config: Option<&RunConfig>, component: &str) {
        let device = config.map(|config| devices(config, component));
        let built = [build_info::VERSION, build_info::COMMIT, build_info::LIBTORCH];
        let [version, commit, libtorch] = built;
        let device = device.unwrap_or_default();
        self.build.of([version, commit, libtorch, &device]).set(1.0);
        let Some(config) = config else { return };
        let mode = match config.run.mode {
            configs::Mode::Sync => "sync",
            configs::Mode::Async => "async",
        };
        let lead = config.lead().map_or("", |lead| lead.as_str());
        self.run.of([&config.workflow.kind, mode, lead]).set(1.0);
    }
}

/// Returns the device of an agent. Its engine and the ranks of its trainer have theirs in a
/// configuration of their own. For `run`, the process of all agents, returns the devices of all.
fn devices(config: &RunConfig, component: &str) -> String {
    let agent = component.split('.').next().unwrap_or_default();
    let here = config
        .agents
        .iter()
        .filter(|(name, _)| agent == "run" || agent == name.as_str());
    let devices: BTreeSet<String> = here.map(|(_, settings)| settings.device.to_string()).collect();
    devices.into_iter().collect::<Vec<_>>().join(",")
}

//! The process itself: its release, its run, and what the operating system says of it.

use crate::observe::table::{Labelled, Level, SeriesTable, Total};
use crate::run_folder::RunFolder;

pub(crate) struct ProcessSeries {
    build: Labelled<Level, 2>,
    run: Labelled<Level, 3>,
    pub(crate) cpu: Labelled<Total, 0>,
    pub(crate) resident: Labelled<Level, 0>,
    pub(crate) started: Labelled<Level, 0>,
    pub(crate) descriptors: Labelled<Level, 0>,
}

impl ProcessSeries {
    pub(super) fn register(table: &mut SeriesTable) -> Self {
        Self {
            build: table.gauge("dyad_build_info", ["version", "commit"], "release and commit; always 1"),
            run: table.gauge("dyad_run_info", ["workflow", "mode", "lead"], "the run; always 1"),
            cpu: table.counter("process_cpu_seconds", [], "processor time"),
            resident: table.gauge("process_resident_memory_bytes", [], "memory in use"),
            started: table.gauge("process_start_time_seconds", [], "start, seconds since 1970"),
            descriptors: table.gauge("process_open_fds", [], "open files and sockets"),
        }
    }

    /// Sets what stays the same for the life of the process.
    pub(crate) fn describe(&self, folder: &RunFolder) {
        let commit = folder.info().map(|info| info.git).unwrap_or_default();
        self.build.of([env!("CARGO_PKG_VERSION"), &commit]).set(1.0);
        let Ok(config) = folder.config() else { return };
        let mode = match config.run.mode {
            configs::Mode::Sync => "sync",
            configs::Mode::Async => "async",
        };
        let lead = config.lead().map_or("", |lead| lead.as_str());
        self.run.of([&config.workflow.kind, mode, lead]).set(1.0);
    }
}

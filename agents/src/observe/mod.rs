//! Metrics for Prometheus: one registry for each process, handed to its actors.
//!
//! [`Observer`] is the handle that actors get. Without an address to listen on it holds nothing, so
//! that nothing is counted. [`series`] declares every series, through [`table`], which makes
//! the list `observe/series.txt`. [`bus`] counts messages, [`process`] reads the operating system.
//! [`server`] answers requests and [`targets`] says where, in the run folder.

pub(crate) mod batched;
pub(crate) mod bus;
mod plan;
mod process;
pub(crate) mod series;
mod server;
pub(crate) mod table;
mod targets;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use broker::bus::{Bus, BusHealth};
use broker::ids::RunId;
use configs::RunConfig;

use crate::run_folder::RunFolder;
use bus::ObservedBus;
pub(crate) use plan::token as metrics_token;
pub use plan::{MetricsPlan, one_port_for_many};
use series::AllSeries;
pub use server::ServedMetrics;
use table::{SeriesTable, set_total};

/// The content type of the text format that every Prometheus reads.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A process's series, or nothing if the process shows none. Clones share them.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<Observed>>);

struct Observed {
    table: SeriesTable,
    series: AllSeries,
    /// The process's bus, once it is connected.
    bus: OnceLock<Arc<dyn Bus>>,
    /// True once the process does its work.
    ready: AtomicBool,
}

impl Observer {
    /// Returns an observer with all series of a run, none of which has a value yet.
    #[must_use]
    pub(crate) fn new(run: &RunId) -> Self {
        let mut table = SeriesTable::new(run.as_str());
        let series = AllSeries::register(&mut table);
        Self(Some(Arc::new(Observed {
            table,
            series,
            bus: OnceLock::new(),
            ready: AtomicBool::new(false),
        })))
    }

    /// Returns the series, unless the process shows none.
    pub(crate) fn series(&self) -> Option<&AllSeries> {
        self.0.as_deref().map(|observed| &observed.series)
    }

    /// Returns the bus with a count of its messages; the same bus if nothing is counted.
    #[must_use]
    pub fn watch_bus(&self, bus: Arc<dyn Bus>) -> Arc<dyn Bus> {
        let Some(observed) = self.0.as_deref() else { return bus };
        // A process has one bus; a second one is counted too and is not asked for its health.
        let _ = observed.bus.set(bus.clone());
        Arc::new(ObservedBus::new(bus, &observed.series.bus))
    }

    /// Says that the process does its work from now on.
    pub fn set_ready(&self) {
        if let Some(observed) = self.0.as_deref() {
            observed.ready.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if the process does its work and its broker is connected.
    pub(crate) fn is_ready(&self) -> bool {
        self.0.as_deref().is_some_and(|observed| {
            let is_down = |bus: &Arc<dyn Bus>| matches!(bus.health(), BusHealth::Down(_));
            observed.ready.load(Ordering::Relaxed) && !observed.bus.get().is_some_and(is_down)
        })
    }

    /// Returns all series in the text format, with values of this moment.
    pub(crate) fn page(&self) -> String {
        let Some(observed) = self.0.as_deref() else {
            return String::new();
        };
        process::read(&observed.series.process);
        if let Some(bus) = observed.bus.get() {
            let is_blocked = matches!(bus.health(), BusHealth::Blocked(_));
            observed.series.bus.blocked.of([]).set(f64::from(u8::from(is_blocked)));
            set_total(&observed.series.bus.reconnects.of([]), bus.reconnects() as f64);
        }
        observed.table.page()
    }
}

/// The metrics of a process, from its start to its end.
#[derive(Default)]
pub struct Metering {
    pub observer: Observer,
    served: Option<ServedMetrics>,
}

impl Metering {
    /// Begins to show the metrics of a process if the plan says so. `component` is its name in
    /// `prometheus.json`. Must be called in a runtime.
    ///
    /// # Errors
    /// The address cannot be listened on, or the run folder cannot be written.
    pub fn begin(plan: Option<MetricsPlan>, folder: &RunFolder, component: &str) -> anyhow::Result<Self> {
        let Some(plan) = plan else {
            return Ok(Self::default());
        };
        Self::of_run(
            plan,
            folder.run(),
            folder.config().ok().as_ref(),
            Some(folder),
            component,
        )
    }

    /// Begins like [`Self::begin`], also on a machine without the run's folder. There, no
    /// `prometheus.json` names the process.
    ///
    /// # Errors
    /// The address cannot be listened on, or the run folder cannot be written.
    pub(crate) fn of_run(
        plan: MetricsPlan,
        run: &RunId,
        config: Option<&RunConfig>,
        folder: Option<&RunFolder>,
        component: &str,
    ) -> anyhow::Result<Self> {
        let observer = Observer::new(run);
        if let Some(series) = observer.series() {
            series.process.describe(config, component);
        }
        let served = server::serve(plan, observer.clone(), folder, component)?;
        Ok(Self {
            observer,
            served: Some(served),
        })
    }

    /// Ends the server and removes it from `prometheus.json`.
    pub async fn close(self) {
        if let Some(served) = self.served {
            served.close().await;
        }
    }
}

#[cfg(test)]
mod tests;

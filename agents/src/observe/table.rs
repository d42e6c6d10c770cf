//! The table of a process's series: what is registered here is what `observe/series.txt` lists.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, prometheus_text};
#[cfg(test)]
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::batched::BatchedHistogram;

/// Bounds for the time of a turn, a generation or a request, in seconds.
pub(crate) const TURN_SECONDS: &[f64] = &[0.05, 0.2, 1.0, 5.0, 20.0, 60.0];
/// Bounds for a call of the broker, the store or a disk, in seconds.
pub(crate) const CALL_SECONDS: &[f64] = &[0.001, 0.005, 0.02, 0.1, 0.5, 2.0];

/// A number that only grows.
pub(crate) type Total = Counter<f64, AtomicU64>;
/// A number that rises and falls.
pub(crate) type Level = Gauge<f64, AtomicU64>;

/// One metric: a row of the list that a test compares.
#[cfg(test)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeriesRow {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) labels: Vec<&'static str>,
    pub(crate) meaning: &'static str,
}

/// Makes a series without a value; the bounds are those of a histogram's buckets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blank(&'static [f64]);

impl MetricConstructor<Total> for Blank {
    fn new_metric(&self) -> Total {
        Total::default()
    }
}

impl MetricConstructor<Level> for Blank {
    fn new_metric(&self) -> Level {
        Level::default()
    }
}

impl MetricConstructor<Histogram> for Blank {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl MetricConstructor<BatchedHistogram> for Blank {
    fn new_metric(&self) -> BatchedHistogram {
        BatchedHistogram::new(self.0)
    }
}

type LabelSet<const N: usize> = [(&'static str, String); N];

/// The series of one metric: one for each combination of its labels' values.
#[derive(Debug, Clone)]
pub(crate) struct Labelled<M, const N: usize> {
    labels: [&'static str; N],
    family: Family<LabelSet<N>, M, Blank>,
}

impl<M: Clone, const N: usize> Labelled<M, N>
where
    Blank: MetricConstructor<M>,
{
    /// Returns the series with these labels. On a hot path, keep it: the lookup hashes the labels.
    pub(crate) fn of(&self, values: [&str; N]) -> M {
        let mut labels = self.labels.map(|label| (label, String::new()));
        for ((_, label), value) in labels.iter_mut().zip(values) {
            value.clone_into(label);
        }
        self.family.get_or_create_owned(&labels)
    }
}

/// Sets a counter to a total that is counted elsewhere.
pub(crate) fn set_total(counter: &Total, total: f64) {
    counter.inner().store(total.to_bits(), Ordering::Relaxed);
}

/// The registry of a process.
pub(crate) struct SeriesTable {
    registry: Registry,
    #[cfg(test)]
    rows: Vec<SeriesRow>,
}

impl SeriesTable {
    /// Starts a table; every series has the label `run`.
    pub(crate) fn new(run: &str) -> Self {
        let labels = [(Cow::Borrowed("run"), Cow::Owned(run.to_owned()))];
        Self {
            registry: Registry::with_labels(labels.into_iter()),
            #[cfg(test)]
            rows: Vec::new(),
        }
    }

    /// Starts a table of a process that watches several runs: `run` is a label of each series.
    pub(crate) fn of_several_runs() -> Self {
        Self {
            registry: Registry::default(),
            #[cfg(test)]
            rows: Vec::new(),
        }
    }

    /// Returns all series in the text format.
    pub(crate) fn page(&self) -> String {
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_text::encode(&mut page, &self.registry);
        page
    }

    /// Registers a counter; its name is shown with `_total` behind it.
    pub(crate) fn counter<const N: usize>(
        &mut self,
        name: &'static str,
        labels: [&'static str; N],
        meaning: &'static str,
    ) -> Labelled<Total, N> {
        self.register(name, labels, &[], meaning)
    }

    pub(crate) fn gauge<const N: usize>(
        &mut self,
        name: &'static str,
        labels: [&'static str; N],
        meaning: &'static str,
    ) -> Labelled<Level, N> {
        self.register(name, labels, &[], meaning)
    }

    pub(crate) fn histogram<const N: usize>(
        &mut self,
        name: &'static str,
        labels: [&'static str; N],
        bounds: &'static [f64],
        meaning: &'static str,
    ) -> Labelled<Histogram, N> {
        self.register(name, labels, bounds, meaning)
    }

    /// Registers a histogram that shows many values at once.
    pub(crate) fn batched<const N: usize>(
        &mut self,
        name: &'static str,
        labels: [&'static str; N],
        bounds: &'static [f64],
        meaning: &'static str,
    ) -> Labelled<BatchedHistogram, N> {
        self.register(name, labels, bounds, meaning)
    }

    fn register<M, const N: usize>(
        &mut self,
        name: &'static str,
        labels: [&'static str; N],
        bounds: &'static [f64],
        meaning: &'static str,
    ) -> Labelled<M, N>
    where
        Blank: MetricConstructor<M>,
        M: EncodeMetric + TypedMetric + std::fmt::Debug + Send + Sync + 'static,
    {
        let family = Family::<LabelSet<N>, M, Blank>::new_with_constructor(Blank(bounds));
        #[cfg(test)]
        {
            let (kind, suffix) = kind(M::TYPE);
            self.rows.push(SeriesRow {
                name: format!("{name}{suffix}"),
                kind,
                labels: labels.to_vec(),
                meaning,
            });
        }
        self.registry.register(name, meaning, family.clone());
        Labelled { labels, family }
    }

    /// All metrics, in the order of registration.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> &[SeriesRow] {
        &self.rows
    }
}

/// Returns the word for a type, and what the text format adds to the names of such metrics.
#[cfg(test)]
fn kind(kind: MetricType) -> (&'static str, &'static str) {
    match kind {
        MetricType::Counter => ("counter", "_total"),
        MetricType::Histogram => ("histogram", ""),
        MetricType::Gauge | MetricType::Info | MetricType::Unknown => ("gauge", ""),
    }
}

//! A histogram that its owner counts in plain numbers, and shows once a heartbeat: no lock for each
//! observation.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The shown numbers of a histogram. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct BatchedHistogram {
    bounds: &'static [f64],
    shown: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    sum: f64,
    /// The number of values up to each bound and above the one before; the last is above all.
    buckets: Vec<u64>,
}

/// The observations of one owner that are not shown yet.
#[derive(Debug)]
pub(crate) struct Tally {
    new: Counts,
    is_empty: bool,
    histogram: BatchedHistogram,
}

impl BatchedHistogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let shown = Arc::new(Mutex::new(Counts::empty(bounds)));
        Self { bounds, shown }
    }

    /// Shows numbers that are counted elsewhere, by the bounds of this histogram.
    pub(crate) fn set(&self, counts: &[u64], sum: f64) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.sum = sum;
        for (all, count) in shown.buckets.iter_mut().zip(counts) {
            *all = *count;
        }
    }

    /// Returns an owner's own numbers, which begin at 0.
    pub(crate) fn tally(&self) -> Tally {
        Tally {
            new: Counts::empty(self.bounds),
            is_empty: true,
            histogram: self.clone(),
        }
    }
}

impl Counts {
    fn empty(bounds: &[f64]) -> Self {
        let buckets = vec![0; bounds.len() + 1];
        Self { sum: 0.0, buckets }
    }
}

impl Tally {
    /// Counts a value. The next [`Self::show`] adds it to the histogram.
    pub(crate) fn observe(&mut self, value: f64) {
        let bounds = self.histogram.bounds;
        let place = bounds.iter().position(|bound| *bound >= value);
        self.new.sum += value;
        self.new.buckets[place.unwrap_or(bounds.len())] += 1;
        self.is_empty = false;
    }

    /// Adds the new values to the histogram.
    pub(crate) fn show(&mut self) {
        if self.is_empty {
            return;
        }
        let mut shown = self.histogram.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.sum += std::mem::take(&mut self.new.sum);
        for (all, new) in shown.buckets.iter_mut().zip(&mut self.new.buckets) {
            *all += std::mem::take(new);
        }
        self.is_empty = true;
    }
}

impl TypedMetric for BatchedHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for BatchedHistogram {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(shown.buckets.iter().copied()).collect();
        let count = shown.buckets.iter().sum();
        encoder.encode_histogram::<NoLabelSet>(shown.sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use crate::observe::table::SeriesTable;

    const BOUNDS: &[f64] = &[1.0, 2.0];
    const VALUES: [f64; 5] = [0.5, 1.0, 1.5, 7.0, f64::NAN];

    #[test]
    fn page_is_that_of_a_histogram_which_counts_each_value() {
        let (mut each, mut batched) = (SeriesTable::new("r"), SeriesTable::new("r"));
        let one = each.histogram("dyad_x", ["agent"], BOUNDS, "x").of(["a"]);
        let two = batched.batched("dyad_x", ["agent"], BOUNDS, "x").of(["a"]);
        let mut tallies = [two.tally(), two.tally()];
        for (at, value) in VALUES.into_iter().enumerate() {
            one.observe(value);
            tallies[at % 2].observe(value);
        }
        let empty = batched.page();
        assert!(empty.contains("dyad_x_count{run=\"r\",agent=\"a\"} 0"), "{empty}");
        for tally in &mut tallies {
            tally.show();
            tally.show();
        }
        assert_eq!(batched.page(), each.page());
        two.set(&[4, 0, 1], 9.5);
        let page = batched.page();
        assert!(page.contains("dyad_x_sum{run=\"r\",agent=\"a\"} 9.5"), "{page}");
        assert!(page.contains("dyad_x_count{run=\"r\",agent=\"a\"} 5"), "{page}");
    }
}

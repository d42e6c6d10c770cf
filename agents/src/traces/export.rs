//! The queue of traces on their way to the collector, apart from the run: a collector that is slow
//! or away costs traces, never time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use broker::ids::RunId;
use prost::Message;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::collector::Collector;
use super::settings::TracesPlan;
use super::wire::Span;
use crate::base::log_scope;

/// The most bytes that wait for the collector; traces that come later are dropped.
pub(super) const WAITING: usize = 16 << 20;
/// The longest time that the end of a process waits for the last batches.
const LAST: Duration = Duration::from_secs(3);

/// The state that queue and task share.
#[derive(Default)]
pub(super) struct Shared {
    /// Bytes that were queued and are neither taken nor dropped yet.
    bytes: AtomicUsize,
    /// The traces of these bytes.
    traces: AtomicU64,
    dropped: AtomicU64,
}

impl Shared {
    /// Returns true if there is room for one more trace, which then waits.
    fn begin(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.traces.fetch_add(1, Ordering::Relaxed);
        before + bytes <= WAITING
    }

    /// Counts traces that wait no longer.
    pub(super) fn end(&self, bytes: usize, traces: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.traces.fetch_sub(traces, Ordering::Relaxed);
    }

    pub(super) fn drop_traces(&self, traces: u64) {
        self.dropped.fetch_add(traces, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// An item that the queue passes to its task.
pub(super) enum Item {
    Trace(Vec<Span>, usize),
    /// Everything before it is sent, then the task ends.
    End,
}

/// The queue of traces on their way to the collector.
pub(super) struct TraceQueue {
    sender: UnboundedSender<Item>,
    shared: Arc<Shared>,
}

impl TraceQueue {
    /// Queues the spans of one trace, or counts it as dropped if too much waits.
    pub(super) fn add(&self, spans: Vec<Span>) {
        let bytes: usize = spans.iter().map(Message::encoded_len).sum();
        let fits = self.shared.begin(bytes);
        if !fits || self.sender.send(Item::Trace(spans, bytes)).is_err() {
            self.shared.end(bytes, 1);
            self.shared.drop_traces(1);
        }
    }
}

/// The task that sends traces.
pub(super) struct Exporter {
    sender: UnboundedSender<Item>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Exporter {
    pub(super) fn start(plan: TracesPlan, run: &RunId) -> anyhow::Result<Self> {
        let (sender, items) = unbounded_channel();
        let shared = Arc::new(Shared::default());
        let collector = Collector::new(plan, run, shared.clone())?;
        let task = log_scope::spawn(collector.serve(items));
        Ok(Self { sender, shared, task })
    }

    pub(super) fn queue(&self) -> TraceQueue {
        TraceQueue {
            sender: self.sender.clone(),
            shared: self.shared.clone(),
        }
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Sends what waits, with repetitions if the collector refuses it. Takes at most [`LAST`]; then
    /// the rest is dropped.
    pub(super) async fn close(mut self) {
        // A task that panicked has ended already.
        let _ = self.sender.send(Item::End);
        if timeout(LAST, &mut self.task).await.is_ok() {
            return;
        }
        self.task.abort();
        // It is over then, and counts no more.
        let _ = self.task.await;
        let (lost, bytes) = (
            self.shared.traces.load(Ordering::Relaxed),
            self.shared.bytes.load(Ordering::Relaxed),
        );
        self.shared.end(bytes, lost);
        self.shared.drop_traces(lost);
        let dropped = self.shared.dropped();
        tracing::warn!(
            lost,
            dropped,
            "the last traces were dropped, because the collector does not take them: check OTEL_EXPORTER_OTLP_ENDPOINT"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use reqwest::header::HeaderMap;
    use tokio::sync::mpsc::UnboundedReceiver;

    use super::*;
    use crate::traces::ids::Sampler;

    fn queue() -> (TraceQueue, UnboundedReceiver<Item>) {
        let (sender, items) = unbounded_channel();
        let shared = Arc::default();
        (TraceQueue { sender, shared }, items)
    }

    fn trace(bytes: usize) -> Vec<Span> {
        vec![Span {
            name: "x".repeat(bytes),
            ..Span::default()
        }]
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (queue, mut items) = queue();
        for _ in 0..5 {
            queue.add(trace(WAITING / 4 - 64));
        }
        assert_eq!(queue.shared.dropped(), 1);
        assert!(queue.shared.bytes.load(Ordering::Relaxed) <= WAITING);
        let queued = std::iter::from_fn(|| items.try_recv().ok()).count();
        assert_eq!(queued, 4);
    }

    #[tokio::test]
    async fn traces_for_a_collector_that_is_away_are_counted_as_dropped() {
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let plan = TracesPlan {
            url: format!("http://{free}/v1/traces"),
            headers: HeaderMap::new(),
            service: "dyad".into(),
            sampler: Sampler { ratio: 1.0 },
            texts: false,
        };
        let exporter = Exporter::start(plan, &RunId::new("r").unwrap()).unwrap();
        let (queue, shared) = (exporter.queue(), exporter.shared.clone());
        (0..3).for_each(|_| queue.add(trace(10)));
        let began = Instant::now();
        exporter.close().await;
        assert!(began.elapsed() < LAST + Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(shared.dropped(), 3);
        let waiting = (
            shared.bytes.load(Ordering::Relaxed),
            shared.traces.load(Ordering::Relaxed),
        );
        assert_eq!(waiting, (0, 0));
        queue.add(trace(10));
        assert_eq!(shared.dropped(), 4, "no task takes it");
    }
}

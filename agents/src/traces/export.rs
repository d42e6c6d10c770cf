//! Sends traces to the collector in batches, apart from the run: a collector that is slow or away
//! costs traces, never time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use broker::ids::RunId;
use prost::Message;
use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::names;
use super::settings::TracesPlan;
use super::wire::{
    ExportTraceServiceRequest, InstrumentationScope, KeyValue, Resource, ResourceSpans, ScopeSpans, Span,
};
use crate::base::log_scope;
use crate::engine::process::link;

/// The most bytes that wait for the collector; traces that come later are dropped.
const WAITING: usize = 16 << 20;
/// The bytes from which a batch is sent. Collectors take several times as many.
const BATCH: usize = 1 << 20;
/// The longest time that a trace waits for more of its batch.
const EVERY: Duration = Duration::from_secs(1);
/// The longest time for one request.
const REQUEST: Duration = Duration::from_secs(10);
/// The longest time that the end of a process waits for the last batches.
const LAST: Duration = Duration::from_secs(3);

/// The state that queue and task share.
#[derive(Default)]
struct Shared {
    /// Bytes that were queued and not sent yet.
    waiting: AtomicUsize,
    dropped: AtomicU64,
    /// True since the collector failed to take a batch, until it takes one.
    is_out: AtomicBool,
}

enum Item {
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
        let before = self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= WAITING;
        if !fits || self.sender.send(Item::Trace(spans, bytes)).is_err() {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
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
        let resource = Resource {
            attributes: vec![
                KeyValue::new(names::SERVICE_NAME, plan.service),
                KeyValue::new(names::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
                KeyValue::new(names::RUN, run.as_str()),
            ],
        };
        let collector = Collector {
            client: link::outside(&plan.url)?,
            url: plan.url,
            headers: plan.headers,
            resource,
            shared: shared.clone(),
            sent: 0,
        };
        let task = log_scope::spawn(collector.serve(items));
        Ok(Self { sender, shared, task })
    }

    pub(super) fn queue(&self) -> TraceQueue {
        TraceQueue {
            sender: self.sender.clone(),
            shared: self.shared.clone(),
        }
    }

    /// Sends what waits, unless the collector is out. Takes at most [`LAST`].
    pub(super) async fn close(mut self) {
        let is_out = self.shared.is_out.load(Ordering::Relaxed);
        // A task that panicked has ended already.
        let _ = self.sender.send(Item::End);
        if is_out || timeout(LAST, &mut self.task).await.is_err() {
            self.task.abort();
            let dropped = self.shared.dropped.load(Ordering::Relaxed);
            tracing::warn!(dropped, "the last traces were not sent: the collector does not answer");
        }
    }
}

/// The collector, from the view of the task.
struct Collector {
    client: Client,
    url: String,
    headers: HeaderMap,
    resource: Resource,
    shared: Arc<Shared>,
    /// Traces that the collector took.
    sent: u64,
}

impl Collector {
    async fn serve(mut self, mut items: UnboundedReceiver<Item>) {
        while let Some(Item::Trace(spans, bytes)) = items.recv().await {
            let is_last = self.batch(&mut items, spans, bytes).await;
            if is_last {
                break;
            }
        }
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        tracing::info!(sent = self.sent, dropped, "no more traces");
    }

    /// Gathers a batch that begins with `spans`, and sends it. Returns true if it is the last one.
    async fn batch(&mut self, items: &mut UnboundedReceiver<Item>, mut spans: Vec<Span>, mut bytes: usize) -> bool {
        let (until, mut traces, mut is_last) = (Instant::now() + EVERY, 1, false);
        while bytes < BATCH && !is_last {
            match timeout_at(until, items.recv()).await {
                Ok(Some(Item::Trace(more, size))) => {
                    spans.extend(more);
                    bytes += size;
                    traces += 1;
                }
                Ok(Some(Item::End) | None) => is_last = true,
                Err(_) => break,
            }
        }
        self.send(spans, traces).await;
        self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
        is_last
    }

    /// Sends a batch once: what the collector does not take is dropped.
    async fn send(&mut self, spans: Vec<Span>, traces: u64) {
        let body = self.request(spans).encode_to_vec();
        let request = self
            .client
            .post(&self.url)
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .timeout(REQUEST)
            .body(body);
        let outcome = link::ask(request, "the collector of traces").await;
        let was_out = self.shared.is_out.swap(outcome.is_err(), Ordering::Relaxed);
        match outcome {
            Ok(_) => {
                self.sent += traces;
                if was_out {
                    let dropped = self.shared.dropped.load(Ordering::Relaxed);
                    tracing::info!(dropped, "the collector takes traces again");
                }
            }
            Err(error) => {
                self.shared.dropped.fetch_add(traces, Ordering::Relaxed);
                if !was_out {
                    tracing::warn!(
                        %error,
                        "traces are dropped until the collector takes them: check OTEL_EXPORTER_OTLP_ENDPOINT"
                    );
                }
            }
        }
    }

    fn request(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let scope = InstrumentationScope {
            name: names::SCOPE.into(),
            version: env!("CARGO_PKG_VERSION").into(),
        };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(scope),
                    spans,
                    schema_url: names::SCHEMA.into(),
                }],
                schema_url: names::SCHEMA.into(),
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(queue.shared.dropped.load(Ordering::Relaxed), 1);
        assert!(queue.shared.waiting.load(Ordering::Relaxed) <= WAITING);
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
            sampler: crate::traces::ids::Sampler { ratio: 1.0 },
            texts: false,
        };
        let exporter = Exporter::start(plan, &RunId::new("r").unwrap()).unwrap();
        let (queue, shared) = (exporter.queue(), exporter.shared.clone());
        (0..3).for_each(|_| queue.add(trace(10)));
        exporter.close().await;
        assert_eq!(shared.dropped.load(Ordering::Relaxed), 3);
        assert_eq!(shared.waiting.load(Ordering::Relaxed), 0);
    }
}

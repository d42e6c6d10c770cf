//! The task that posts traces to the collector in batches. It posts a batch again that the
//! collector refuses for now, while later traces wait in the queue.

use std::sync::Arc;
use std::time::Duration;

use broker::ids::RunId;
use bytes::Bytes;
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Client, StatusCode};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout_at};

use super::export::{Item, Shared};
use super::names;
use super::settings::TracesPlan;
use super::wire::{
    ExportTraceServiceRequest, InstrumentationScope, KeyValue, Resource, ResourceSpans, ScopeSpans, Span,
};
use crate::base::retry::Pauses;
use crate::engine::process::link::{self, LinkError};

/// The bytes from which a batch is sent. Collectors take several times as many.
const BATCH: usize = 1 << 20;
/// The longest time that a trace waits for more of its batch.
const EVERY: Duration = Duration::from_secs(1);
/// The longest time for one request.
const REQUEST: Duration = Duration::from_secs(10);
/// The longest pause that a collector may ask for.
const LONGEST: Duration = Duration::from_secs(60);
/// The collector, as errors name it: its URL may hold a key.
const NAME: &str = "the collector of traces";

/// The collector, from the view of the task.
pub(super) struct Collector {
    client: Client,
    url: String,
    headers: HeaderMap,
    resource: Resource,
    shared: Arc<Shared>,
    /// Traces that the collector took.
    sent: u64,
    state: State,
}

/// The collector's treatment of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Takes,
    Refuses,
    Rejects,
}

/// The collector's answer to one request.
enum Answer {
    Taken,
    /// The same request may be taken later, after the pause that the collector asks for.
    NotNow(LinkError, Option<Duration>),
    /// The same request would be rejected again.
    Never(LinkError),
}

impl Collector {
    pub(super) fn new(plan: TracesPlan, run: &RunId, shared: Arc<Shared>) -> anyhow::Result<Self> {
        let resource = Resource {
            attributes: vec![
                KeyValue::new(names::SERVICE_NAME, plan.service),
                KeyValue::new(names::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
                KeyValue::new(names::RUN, run.as_str()),
            ],
        };
        Ok(Self {
            client: link::outside(&plan.url)?,
            url: plan.url,
            headers: plan.headers,
            resource,
            shared,
            sent: 0,
            state: State::Takes,
        })
    }

    pub(super) async fn serve(mut self, mut items: UnboundedReceiver<Item>) {
        while let Some(Item::Trace(spans, bytes)) = items.recv().await {
            let is_last = self.batch(&mut items, spans, bytes).await;
            if is_last {
                break;
            }
        }
        tracing::info!(sent = self.sent, dropped = self.shared.dropped(), "no more traces");
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
        self.shared.end(bytes, traces);
        is_last
    }

    /// Sends a batch until the collector takes it or rejects it for good.
    async fn send(&mut self, spans: Vec<Span>, traces: u64) {
        let body = Bytes::from(self.request(spans).encode_to_vec());
        for backoff in Pauses::endless() {
            match self.post(body.clone()).await {
                Answer::Taken => {
                    self.sent += traces;
                    self.enter(State::Takes, None);
                    return;
                }
                Answer::Never(error) => {
                    self.shared.drop_traces(traces);
                    self.enter(State::Rejects, Some(&error));
                    return;
                }
                Answer::NotNow(error, wanted) => {
                    self.enter(State::Refuses, Some(&error));
                    sleep(wanted.unwrap_or_default().min(LONGEST).max(backoff)).await;
                }
            }
        }
    }

    /// Posts a batch once.
    async fn post(&self, body: Bytes) -> Answer {
        let request = self
            .client
            .post(&self.url)
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .timeout(REQUEST)
            .body(body);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Answer::NotNow(LinkError::of(NAME, error), None),
        };
        let (status, wanted) = (response.status(), link::wanted_pause(response.headers()));
        if status.is_success() {
            return Answer::Taken;
        }
        let error = link::refusal(response, NAME).await;
        if is_passing(status) {
            Answer::NotNow(error, wanted)
        } else {
            Answer::Never(error)
        }
    }

    /// Logs a change of what the collector does with batches.
    fn enter(&mut self, state: State, error: Option<&LinkError>) {
        if std::mem::replace(&mut self.state, state) == state {
            return;
        }
        let (dropped, error) = (self.shared.dropped(), error.map(tracing::field::display));
        match state {
            State::Takes => tracing::info!(dropped, "the collector takes traces again"),
            State::Refuses => tracing::warn!(
                error,
                "traces wait, 16 MiB at most, until the collector takes them: check OTEL_EXPORTER_OTLP_ENDPOINT"
            ),
            State::Rejects => tracing::warn!(
                error,
                "traces are dropped, because the collector rejects them: check OTEL_EXPORTER_OTLP_ENDPOINT and \
                 OTEL_EXPORTER_OTLP_HEADERS"
            ),
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

/// Returns true for the statuses after which OTLP lets a client send the same request again.
fn is_passing(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

#[cfg(test)]
mod tests;

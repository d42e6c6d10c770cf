//! Traces for OpenTelemetry: one for each conversation, made when it ends, and one for each batch,
//! made when it has been trained.
//!
//! The coordinator passes conversations that have ended ([`EndedConversation`]) to [`Traces`], the
//! handle of its process; an agent passes its batches ([`TrainedStep`]). [`ids`] derives the ids
//! and chooses which traces are sent, [`spans`] and [`batch`] make spans, and [`messages`] adds
//! texts. [`export`] queues them, [`collector`] posts them in the encoding of [`wire`].
//! [`settings`] reads the environment, and [`names`] has the attributes of the conventions.
//!
//! Messages carry no trace context: a trace follows from committed turns alone, whichever
//! coordinator closes the conversation.

mod batch;
mod collector;
mod export;
mod ids;
mod messages;
mod names;
mod settings;
mod spans;
mod wire;

use std::sync::Arc;

use broker::ids::{GroupId, RunId};

pub(crate) use self::batch::TrainedStep;
use self::export::{Exporter, TraceQueue};
use self::ids::{Sampler, TraceId};
pub use self::settings::TracesPlan;
pub(crate) use self::spans::{AgentRequest, AskedOf, EndedConversation};

/// Takes the conversations and batches of a process, or nothing if it sends no traces. Clones share
/// it.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Sending>>);

struct Sending {
    run: RunId,
    sampler: Sampler,
    texts: bool,
    queue: TraceQueue,
}

impl Traces {
    /// Returns true if batches are sent. Then some conversations may be sent too.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns true if the texts of turns are sent.
    pub(crate) fn sends_texts(&self) -> bool {
        self.0.as_deref().is_some_and(|sending| sending.texts)
    }

    /// Returns true if the trace of this conversation is sent.
    pub(crate) fn wants(&self, group: GroupId, member: u16) -> bool {
        let wants = |sending: &Sending| sending.sampler.takes(TraceId::new(&sending.run, group, member));
        self.0.as_deref().is_some_and(wants)
    }

    /// Queues the trace of a conversation. Never waits.
    pub(crate) fn send(&self, group: GroupId, member: u16, ended: &EndedConversation) {
        if let Some(sending) = self.0.as_deref() {
            let trace = TraceId::new(&sending.run, group, member);
            sending
                .queue
                .add(spans::spans(&sending.run, trace, ended, sending.texts));
        }
    }

    /// Queues the trace of a trained batch. Never waits.
    pub(crate) fn send_batch(&self, step: &TrainedStep) {
        if let Some(sending) = self.0.as_deref() {
            sending.queue.add(batch::spans(&sending.run, sending.sampler, step));
        }
    }
}

/// The traces of a process, from its start to its end.
pub struct TraceExport {
    pub traces: Traces,
    exporter: Option<Exporter>,
}

impl TraceExport {
    /// Begins to send traces if the plan says so. Must be called in a runtime.
    ///
    /// # Errors
    /// The TLS files that the environment names cannot be used.
    pub fn begin(plan: Option<TracesPlan>, run: &RunId) -> anyhow::Result<Self> {
        let Some(plan) = plan else {
            return Ok(Self {
                traces: Traces::default(),
                exporter: None,
            });
        };
        let (sampler, texts) = (plan.sampler, plan.texts);
        let exporter = Exporter::start(plan, run)?;
        let traces = Traces(Some(Arc::new(Sending {
            run: run.clone(),
            sampler,
            texts,
            queue: exporter.queue(),
        })));
        Ok(Self {
            traces,
            exporter: Some(exporter),
        })
    }

    /// Sends the traces that wait, as far as the collector takes them soon.
    pub async fn close(self) {
        if let Some(exporter) = self.exporter {
            exporter.close().await;
        }
    }
}

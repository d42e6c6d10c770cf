//! The agent's side of engine processes (`dyad engine`, [`super::server`]).
//!
//! [`start`] serves the agent's weights to engines ([`super::weight_server`]) and starts a driver
//! for each URL ([`driver`]). A driver keeps the unanswered requests ([`outstanding`]) and a
//! session with its engine ([`session`]). An engine that returns first loads the newest weights and
//! then receives the requests again. So an engine that dies costs time, but no generation. In a
//! synchronous run it costs no bit either, since a wave is repeated whole.

mod driver;
mod outstanding;
pub(crate) mod session;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use broker::AgentName;
use broker::codec;
use broker::ids::{RequestId, RunId, WeightVersion};
use broker::protocol::engine::{Hello, StateId};
use broker::protocol::failure::Failure;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use trainer::transfer::{Shelf, ShelfSink};
use trainer::weights::WeightSink;

use super::link::{self, Secret};
use super::model_match;
use super::weight_server;
use crate::base::log_scope;
use crate::engine::replicas::Replicas;
use crate::engine::{
    EngineClient, EngineFailure, EnginePresence, Finished, GenerationJob, Visit, WeightRefusal, without_scores,
};
use crate::observe::series::training::SentWeights;
use crate::policy::Prepared;
use driver::{EngineDriver, EngineInput, EngineStatus};
use session::Target;

/// Silence after which an engine counts as gone.
const SILENCE: Duration = Duration::from_secs(10);

/// An engine process, as the router sees it.
pub struct RemoteEngine {
    /// Its URL without credentials.
    shown: String,
    inputs: UnboundedSender<EngineInput>,
    version: watch::Receiver<WeightVersion>,
    refused: watch::Receiver<Option<WeightRefusal>>,
    there: watch::Receiver<bool>,
}

/// The work of an agent that concerns its engines.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    /// True if it does not train: its weights are published here.
    pub(crate) frozen: bool,
    /// True if it asks for waves, of which each engine computes a part.
    pub(crate) waves: bool,
    /// Counts the bytes of weights that they fetch.
    pub(crate) sent: Option<SentWeights>,
}

/// Starts to work with the engines at the agent's `engine.urls`. Returns them as one client, and
/// the sink for the trainer. Must be called in a runtime.
///
/// # Errors
/// A URL that is not allowed, a weak or missing token, or an address in use.
pub(crate) fn start(
    agent: &AgentName,
    run: &RunId,
    prepared: &Prepared,
    work: Work,
) -> anyhow::Result<(Arc<dyn EngineClient>, Box<dyn WeightSink>)> {
    start_on(Arc::default(), agent, run, prepared, work)
}

/// Starts with a given shelf, which tests inspect.
fn start_on(
    shelf: Arc<Shelf>,
    agent: &AgentName,
    run: &RunId,
    prepared: &Prepared,
    work: Work,
) -> anyhow::Result<(Arc<dyn EngineClient>, Box<dyn WeightSink>)> {
    let settings = &prepared.settings.engine;
    let secret = Secret::from_environment()?;
    let urls: Vec<String> = settings
        .urls
        .iter()
        .map(|url| link::judged(url))
        .collect::<Result<_, _>>()?;
    let client = link::client(Some(SILENCE))?;
    let weights = weight_server::serve(agent, settings, &secret, (shelf.clone(), work.sent.clone()))?;
    let (announce, announced) = watch::channel(None);
    let publish = Box::new(move |state| {
        announce.send_replace(Some(state));
    });
    let mut sink = ShelfSink::start(agent.as_str(), prepared.form()?, shelf.clone(), publish)
        .context("starting the weights' thread")?;
    if work.frozen {
        sink.publish(prepared.weights()?, WeightVersion::default())?;
    }
    let hello = Hello {
        schema: codec::SCHEMA,
        run: run.to_string(),
        agent: agent.to_string(),
        weights,
        model: model_match::facts(&prepared.shape, &prepared.text),
    };
    let engines = urls.into_iter().map(|url| {
        let target = Target {
            agent: agent.clone(),
            url,
            hello: hello.clone(),
            client: client.clone(),
            secret: secret.clone(),
        };
        RemoteEngine::start(target, shelf.clone(), announced.clone()) as Arc<dyn EngineClient>
    });
    let engines: Vec<_> = engines.collect();
    let engine = match engines.as_slice() {
        [alone] => alone.clone(),
        _ if work.waves => Replicas::start(engines),
        _ => Replicas::start_apart(engines),
    };
    Ok((engine, Box::new(sink)))
}

impl RemoteEngine {
    /// Starts to work with one engine. `announced` holds the newest available weights, sent each
    /// time they are published.
    fn start(target: Target, shelf: Arc<Shelf>, announced: watch::Receiver<Option<StateId>>) -> Arc<Self> {
        let (inputs, asked) = unbounded_channel();
        let status = EngineStatus::default();
        let engine = Self {
            shown: link::shown(&target.url),
            inputs,
            version: status.version.subscribe(),
            refused: status.refused.subscribe(),
            there: status.there.subscribe(),
        };
        log_scope::spawn(EngineDriver::new(target, shelf, status).run(asked, announced));
        Arc::new(engine)
    }
}

/// Returns the failure of a request to an absent engine.
fn away() -> EngineFailure {
    EngineFailure {
        cause: Failure::engine("the engine's process is away"),
        retry: true,
    }
}

impl EngineClient for RemoteEngine {
    fn submit(&self, jobs: Vec<GenerationJob>, wave: bool, done: UnboundedSender<Vec<Finished>>) {
        // Its driver ends with this handle, so the channel has a receiver.
        let _ = self.inputs.send(EngineInput::Jobs { jobs, wave, done });
    }

    fn visit(&self, visits: Vec<Visit>) {
        let _ = self.inputs.send(EngineInput::Visit(without_scores(visits)));
    }

    fn leave(&self, request: RequestId) {
        let _ = self.inputs.send(EngineInput::Leave(request));
    }

    fn pin(&self, pinned: bool) {
        let _ = self.inputs.send(EngineInput::Pin(pinned));
    }

    fn versions(&self) -> watch::Receiver<WeightVersion> {
        self.version.clone()
    }

    fn presence(&self) -> watch::Receiver<bool> {
        self.there.clone()
    }

    fn presences(&self) -> Vec<EnginePresence> {
        let there = self.there.clone();
        vec![EnginePresence::new(&self.shown, move || *there.borrow())]
    }

    fn refusals(&self) -> watch::Receiver<Option<WeightRefusal>> {
        self.refused.clone()
    }
}

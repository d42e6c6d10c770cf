//! The agent's side of engines that are processes of their own (`dyad engine`, [`super::serve`]).
//!
//! [`start`] puts the agent's weights where engines fetch them ([`super::shelf`]) and begins a driver for each URL ([`driver`]). A driver
//! keeps what was asked and not answered ([`open`]) and a session with its engine ([`session`]); when an engine comes back, it is brought
//! to the newest weights first and then asked again. So an engine that dies costs time: no generation, and in a synchronous run no bit,
//! since a wave is asked again whole.

mod driver;
mod open;
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
use super::shelf;
use crate::engine::replicas::Replicas;
use crate::engine::{EngineClient, EngineFailure, Finished, Job, Refusal, Visit, without_scores};
use crate::policy::Prepared;
use driver::{Driver, Input, Said};
use session::Target;

/// An engine that says nothing for so long is taken for gone.
const SILENCE: Duration = Duration::from_secs(10);

/// An engine process, as the router sees it.
pub struct RemoteEngine {
    inputs: UnboundedSender<Input>,
    version: watch::Receiver<WeightVersion>,
    refused: watch::Receiver<Option<Refusal>>,
    there: watch::Receiver<bool>,
}

/// What an agent is to its engines.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// It does not train: its weights are published here.
    pub frozen: bool,
    /// It asks for waves, of which each engine has its part.
    pub waves: bool,
}

/// Begins to work with the engines at the agent's `engine.urls`: they as one client, and where the trainer publishes to. Must be called in a
/// runtime.
///
/// # Errors
/// A URL that may not be asked, a token that is weak or missing, an address that cannot be listened on.
pub fn start(
    agent: &AgentName,
    run: &RunId,
    prepared: &Prepared,
    work: Work,
) -> anyhow::Result<(Arc<dyn EngineClient>, Box<dyn WeightSink>)> {
    start_on(Arc::default(), agent, run, prepared, work)
}

/// With a shelf that others look at too.
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
    let weights = shelf::serve(agent, settings, &secret, shelf.clone())?;
    let (announce, announced) = watch::channel(None);
    let tell = Box::new(move |state| {
        announce.send_replace(Some(state));
    });
    let mut sink = ShelfSink::start(agent.as_str(), prepared.form()?, shelf.clone(), tell)
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
    /// Begins to work with one engine. `announced` has the newest weights that are there to be fetched, told each time they are published.
    fn start(target: Target, shelf: Arc<Shelf>, announced: watch::Receiver<Option<StateId>>) -> Arc<Self> {
        let (inputs, asked) = unbounded_channel();
        let said = Said::default();
        let engine = Self {
            inputs,
            version: said.version.subscribe(),
            refused: said.refused.subscribe(),
            there: said.there.subscribe(),
        };
        tokio::spawn(Driver::new(target, shelf, said).run(asked, announced));
        Arc::new(engine)
    }
}

/// Said of what was asked of an engine that is not there.
fn away() -> EngineFailure {
    EngineFailure {
        cause: Failure::engine("the engine's process is away"),
        retry: true,
    }
}

impl EngineClient for RemoteEngine {
    fn submit(&self, jobs: Vec<Job>, wave: bool, done: UnboundedSender<Vec<Finished>>) {
        // Its driver ends with this handle, so somebody is there.
        let _ = self.inputs.send(Input::Jobs { jobs, wave, done });
    }

    fn visit(&self, visits: Vec<Visit>) {
        let _ = self.inputs.send(Input::Visit(without_scores(visits)));
    }

    fn leave(&self, request: RequestId) {
        let _ = self.inputs.send(Input::Leave(request));
    }

    fn pin(&self, pinned: bool) {
        let _ = self.inputs.send(Input::Pin(pinned));
    }

    fn versions(&self) -> watch::Receiver<WeightVersion> {
        self.version.clone()
    }

    fn presence(&self) -> watch::Receiver<bool> {
        self.there.clone()
    }

    fn refusals(&self) -> watch::Receiver<Option<Refusal>> {
        self.refused.clone()
    }
}

//! Fetches announced weights, verifies them and hands them to the engine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use broker::protocol::engine::{EngineEvent, StateId};
use reqwest::{Client, StatusCode};
use tokio::sync::watch;
use tokio::time::Instant;
use trainer::transfer::{self, Form, State};
use trainer::weights::WeightSink;

use super::host::Floor;
use super::model::Parts;
use crate::engine::process::link;
use crate::engine::process::link::LinkError;
use crate::engine::process::weight_server::written;
use crate::engine::{EngineClient, Refusal};

/// A trainer that packs a large model says nothing for long.
const SILENCE: Duration = Duration::from_secs(300);
/// Tries before it is told that weights cannot be had. Then they are fetched when they are announced again.
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Weights that were announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) state: StateId,
    /// Of the trainer's endpoint.
    pub(crate) url: String,
}

struct Puller {
    floor: Arc<Floor>,
    parts: Arc<Parts>,
    client: Client,
    /// What the engine serves or is about to: the base of the next delta.
    held: Option<Arc<State>>,
    /// Shared with the thread that publishes, which may panic: without it no weights would ever be taken again.
    sink: Option<Arc<Mutex<Box<dyn WeightSink>>>>,
    /// What the engine was given last: it takes nothing that is no later.
    given: Option<StateId>,
    /// What the engine itself did not take.
    refusals: Option<watch::Receiver<Option<Refusal>>>,
}

/// Fetches whatever is wanted and not held; late and repeated announcements lead to nothing new.
pub(crate) fn run(
    floor: Arc<Floor>,
    parts: Arc<Parts>,
    mut wants: watch::Receiver<Option<Wanted>>,
) -> anyhow::Result<impl Future<Output = ()>> {
    let mut puller = Puller {
        floor,
        parts,
        client: link::client(Some(SILENCE))?,
        held: None,
        sink: None,
        given: None,
        refusals: None,
    };
    Ok(async move {
        while wants.changed().await.is_ok() {
            let wanted = wants.borrow_and_update().clone();
            puller.forget_refused();
            // Later ones that are held may be of an agent that was here before: its shelf knows.
            if let Some(wanted) = wanted.filter(|wanted| puller.held() != Some(wanted.state)) {
                puller.fetch(&wanted).await;
            }
        }
    })
}

impl Puller {
    fn held(&self) -> Option<StateId> {
        self.held.as_ref().map(|held| held.id())
    }

    /// What was handed over and refused is not held: announced again, it is fetched again.
    fn forget_refused(&mut self) {
        let Some(refusals) = self
            .refusals
            .as_mut()
            .filter(|refusals| refusals.has_changed().unwrap_or(false))
        else {
            return;
        };
        let refused = refusals.borrow_and_update().as_ref().map(|refusal| refusal.version);
        self.held.take_if(|held| Some(held.version()) == refused);
    }

    /// Fetches by delta if that is possible and whole otherwise, a few times; then says that it cannot.
    async fn fetch(&mut self, wanted: &Wanted) {
        let mut whole = false;
        for attempt in 0..TRIES {
            let error = match self.once(wanted, whole).await {
                Ok(()) => return,
                Err(error) => format!("{error:#}"),
            };
            let version = wanted.state.version;
            tracing::warn!(%version, error, "weights could not be taken; they are fetched again, whole");
            whole = true;
            if attempt + 1 == TRIES {
                return self.floor.say(EngineEvent::Refused { version, reason: error });
            }
            tokio::time::sleep(FIRST_PAUSE * 2u32.pow(attempt)).await;
        }
    }

    async fn once(&mut self, wanted: &Wanted, whole: bool) -> anyhow::Result<()> {
        let began = Instant::now();
        let held = self.held.clone().filter(|_| !whole);
        let from = held.as_ref().map(|held| held.id());
        let bytes = download(&self.client, &self.floor, wanted, from, self.parts.form).await?;
        let Some(bytes) = bytes else {
            let newest = from.map(|from| from.version);
            anyhow::ensure!(
                newest >= Some(wanted.state.version),
                "its agent has none but those that are held"
            );
            return Ok(());
        };
        let (fetched, length) = (began.elapsed(), bytes.len());
        let (form, delta) = (self.parts.form, held.is_some());
        let applied = tokio::task::spawn_blocking(move || transfer::apply(&form, held.as_deref(), &bytes));
        let state = applied.await.context("applying weights")??;
        let (version, announced) = (state.version(), wanted.state);
        // A trainer that was restored serves earlier weights than it announced, or others under their name.
        anyhow::ensure!(
            version > announced.version || state.id() == announced,
            "weights {announced} were announced, and {version} were fetched, which are earlier or others",
            announced = announced.version
        );
        if self.held() != Some(state.id()) {
            self.hand_over(state).await?;
        }
        tracing::info!(
            %version,
            bytes = length,
            held = delta,
            fetch_ms = fetched.as_millis() as u64,
            all_ms = began.elapsed().as_millis() as u64,
            "new weights"
        );
        Ok(())
    }

    /// Gives the engine its weights; makes it with the first. On a thread that may be busy for long.
    async fn hand_over(&mut self, state: State) -> anyhow::Result<()> {
        let id = state.id();
        if let Some(given) = self.given.filter(|given| is_foreign(*given, id)) {
            tracing::warn!(held = %given.version, announced = %id.version, "the weights held are not its agent's: the engine is made anew");
            self.floor.retire();
            (self.sink, self.refusals, self.held, self.given) = (None, None, None, None);
        }
        match self.sink.clone() {
            None => self.make(&state).await?,
            Some(sink) => {
                self.floor.expect(id);
                let (parts, state) = (self.parts.clone(), state.clone());
                let publish = move || {
                    let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                    anyhow::Ok(sink.publish(&parts.weights(&state)?, state.version())?)
                };
                tokio::task::spawn_blocking(publish)
                    .await
                    .context("handing weights over")??;
            }
        }
        (self.held, self.given) = (Some(Arc::new(state)), Some(id));
        Ok(())
    }

    async fn make(&mut self, state: &State) -> anyhow::Result<()> {
        let (parts, agent, first) = (self.parts.clone(), self.floor.agent.clone(), state.clone());
        let made = tokio::task::spawn_blocking(move || parts.engine(&agent, &first));
        let engine = made.await.context("making the engine")??;
        let sink = engine.sink(self.parts.device, self.parts.settings.dtype);
        self.sink = Some(Arc::new(Mutex::new(sink)));
        self.refusals = Some(engine.refusals());
        self.floor.serve(engine, state.id());
        Ok(())
    }
}

/// Whether what an engine was given comes from elsewhere than `new`: versions of one agent only rise, and each is of one state.
fn is_foreign(given: StateId, new: StateId) -> bool {
    given.version > new.version || (given.version == new.version && given.digest != new.digest)
}

/// What leads from `held` to the newest weights of `form`; `None` if those are held.
async fn download(
    client: &Client,
    floor: &Floor,
    wanted: &Wanted,
    held: Option<StateId>,
    form: Form,
) -> Result<Option<Vec<u8>>, LinkError> {
    let url = &wanted.url;
    let query = held.map_or_else(String::new, |held| format!("?held={}", written(held)));
    let request = client.get(format!("{url}/v1/weights{query}"));
    let mut response = link::ask(floor.secret.show(request), url).await?;
    if response.status() == StatusCode::NOT_MODIFIED {
        return Ok(None);
    }
    let most = transfer::largest(&form);
    let mut bytes = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| LinkError::of(url, error))? {
        if bytes.len() + part.len() > most {
            let reason = format!("it sends more than {most} bytes, which no weights of this model have");
            return Err(LinkError::answer(url, reason));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(Some(bytes))
}

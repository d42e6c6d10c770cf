//! Fetches announced weights, verifies them and gives them to the engine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use broker::protocol::engine::{EngineEvent, StateId};
use reqwest::{Client, StatusCode};
use tokio::sync::watch;
use tokio::time::Instant;
use trainer::transfer::{self, Form, State};
use trainer::weights::WeightSink;

use super::host::SessionHost;
use super::model::Parts;
use crate::engine::process::link;
use crate::engine::process::link::LinkError;
use crate::engine::process::weight_server::written;
use crate::engine::{EngineClient, WeightRefusal};

/// A trainer that packs a large model is silent for long.
const SILENCE: Duration = Duration::from_secs(300);
/// Tries before the failure is reported. The next announcement starts a new fetch.
const TRIES: u32 = 4;
/// The longest that an ended engine is waited for.
const STUCK: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Announced weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnnouncedWeights {
    pub(crate) state: StateId,
    /// The URL of the trainer's endpoint.
    pub(crate) url: String,
}

struct Puller {
    host: Arc<SessionHost>,
    parts: Arc<Parts>,
    client: Client,
    /// The weights that the engine serves or is about to serve.
    held: Option<StateId>,
    /// Their bytes: the base of the next delta. `None` after a failed delta.
    base: Option<State>,
    /// Shared with the thread that publishes: it may panic, and the sink must survive that.
    sink: Option<Arc<Mutex<Box<dyn WeightSink>>>>,
    /// The last weights given to the engine: it accepts only later ones.
    given: Option<StateId>,
    /// The weights that the engine itself could not load.
    refusals: Option<watch::Receiver<Option<WeightRefusal>>>,
}

/// Fetches the announced weights that are not held; late and repeated announcements are ignored.
pub(crate) fn run(
    host: Arc<SessionHost>,
    parts: Arc<Parts>,
    mut wants: watch::Receiver<Option<AnnouncedWeights>>,
) -> anyhow::Result<impl Future<Output = ()>> {
    let mut puller = Puller {
        host,
        parts,
        client: link::client(Some(SILENCE))?,
        held: None,
        base: None,
        sink: None,
        given: None,
        refusals: None,
    };
    Ok(async move {
        while wants.changed().await.is_ok() {
            let wanted = wants.borrow_and_update().clone();
            puller.forget_refused();
            // Held weights that are later may come from an earlier agent: its trainer's endpoint
            // decides.
            if let Some(wanted) = wanted.filter(|wanted| puller.held != Some(wanted.state)) {
                puller.fetch(&wanted).await;
            }
        }
    })
}

impl Puller {
    /// Forgets weights that were handed over and rejected, so that a new announcement fetches them.
    fn forget_refused(&mut self) {
        let Some(refusals) = self
            .refusals
            .as_mut()
            .filter(|refusals| refusals.has_changed().unwrap_or(false))
        else {
            return;
        };
        let refused = refusals.borrow_and_update().as_ref().map(|refusal| refusal.version);
        if self.held.is_some_and(|held| Some(held.version) == refused) {
            (self.held, self.base) = (None, None);
        }
    }

    /// Fetches by delta if possible and whole otherwise, a few times; then reports the failure.
    async fn fetch(&mut self, wanted: &AnnouncedWeights) {
        let mut whole = false;
        for attempt in 0..TRIES {
            let error = match self.once(wanted, whole).await {
                Ok(()) => return,
                Err(error) => format!("{error:#}"),
            };
            let version = wanted.state.version;
            tracing::warn!(%version, error, "weights could not be loaded; fetching them again as a whole");
            whole = true;
            if attempt + 1 == TRIES {
                return self.host.say(EngineEvent::Refused { version, reason: error });
            }
            tokio::time::sleep(FIRST_PAUSE * 2u32.pow(attempt)).await;
        }
    }

    async fn once(&mut self, wanted: &AnnouncedWeights, whole: bool) -> anyhow::Result<()> {
        let began = Instant::now();
        let from = self.base.as_ref().filter(|_| !whole).map(State::id);
        let bytes = download(&self.client, &self.host, wanted, from, self.parts.form).await?;
        let Some(bytes) = bytes else {
            let newest = from.map(|from| from.version);
            anyhow::ensure!(
                newest >= Some(wanted.state.version),
                "its agent has only the weights already held"
            );
            return Ok(());
        };
        let (fetched, length) = (began.elapsed(), bytes.len());
        // Host memory has no room for old and new weights: a delta changes the held ones. If it
        // fails, the next ones are fetched whole.
        let (form, base) = (self.parts.form, self.base.take());
        let applied = tokio::task::spawn_blocking(move || transfer::apply(&form, base, bytes));
        let state = applied.await.context("applying weights")??;
        let (version, announced) = (state.version(), wanted.state);
        // A restored trainer may serve earlier weights than announced, or others under their
        // version.
        anyhow::ensure!(
            version > announced.version || state.id() == announced,
            "weights {announced} were announced, but {version} were fetched, which are earlier or different",
            announced = announced.version
        );
        match self.held == Some(state.id()) {
            true => self.base = Some(state),
            false => self.hand_over(state).await?,
        }
        tracing::info!(
            %version,
            bytes = length,
            held = from.is_some(),
            fetch_ms = fetched.as_millis() as u64,
            all_ms = began.elapsed().as_millis() as u64,
            "new weights"
        );
        Ok(())
    }

    /// Gives the engine its weights; makes it with the first. Runs on a thread that may block for
    /// long.
    async fn hand_over(&mut self, state: State) -> anyhow::Result<()> {
        let id = state.id();
        if let Some(given) = self.given.filter(|given| is_foreign(*given, id)) {
            tracing::warn!(held = %given.version, announced = %id.version, "the held weights are not its agent's: the engine is made again");
            self.host.retire();
            (self.sink, self.held, self.given) = (None, None, None);
            if let Some(refusals) = self.refusals.take() {
                ended(refusals).await;
            }
        }
        match self.sink.clone() {
            None => self.make(&state).await?,
            Some(sink) => {
                self.host.expect(id);
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
        (self.held, self.base, self.given) = (Some(id), Some(state), Some(id));
        Ok(())
    }

    async fn make(&mut self, state: &State) -> anyhow::Result<()> {
        let (parts, agent, first) = (self.parts.clone(), self.host.agent.clone(), state.clone());
        let made = tokio::task::spawn_blocking(move || parts.engine(&agent, &first));
        let engine = made.await.context("making the engine")??;
        let sink = engine.sink(self.parts.device, self.parts.settings.dtype);
        self.sink = Some(Arc::new(Mutex::new(sink)));
        self.refusals = Some(engine.refusals());
        self.host.serve(engine, state.id());
        Ok(())
    }
}

/// Returns when an engine's thread has ended and its memory is free, or is stuck.
async fn ended(mut refusals: watch::Receiver<Option<WeightRefusal>>) {
    let senders_are_gone = async { while refusals.changed().await.is_ok() {} };
    if tokio::time::timeout(STUCK, senders_are_gone).await.is_err() {
        tracing::warn!("the old engine's step does not end; both engines hold memory");
    }
}

/// Returns true if the given weights do not come from the same agent as `new`. Versions of one
/// agent only rise, and each has one state.
fn is_foreign(given: StateId, new: StateId) -> bool {
    given.version > new.version || (given.version == new.version && given.digest != new.digest)
}

/// Returns the bytes that lead from `held` to the newest weights of `form`; `None` if those are
/// held.
async fn download(
    client: &Client,
    host: &SessionHost,
    wanted: &AnnouncedWeights,
    held: Option<StateId>,
    form: Form,
) -> Result<Option<Vec<u8>>, LinkError> {
    let url = &wanted.url;
    let query = held.map_or_else(String::new, |held| format!("?held={}", written(held)));
    let request = client.get(format!("{url}/v1/weights{query}"));
    let mut response = link::ask(&host.secret, request, url).await?;
    if response.status() == StatusCode::NOT_MODIFIED {
        return Ok(None);
    }
    let most = transfer::largest(&form);
    let length = response
        .content_length()
        .and_then(|length| usize::try_from(length).ok());
    let mut bytes = Vec::with_capacity(length.unwrap_or(0).min(most));
    while let Some(part) = response.chunk().await.map_err(|error| LinkError::of(url, error))? {
        if bytes.len() + part.len() > most {
            let reason = format!("it sends more than {most} bytes, the largest size of this model's weights");
            return Err(LinkError::answer(url, reason));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(Some(bytes))
}

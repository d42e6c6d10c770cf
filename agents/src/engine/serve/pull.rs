//! Fetches announced weights, verifies them and hands them to the engine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use broker::ids::WeightVersion;
use broker::protocol::engine::EngineEvent;
use reqwest::Client;
use tokio::sync::watch;
use tokio::time::Instant;
use trainer::transfer::{self, Form, State};
use trainer::weights::WeightSink;

use super::Parts;
use super::floor::Floor;
use crate::engine::link::{self, LinkError};
use crate::engine::{EngineClient, Refusal};

/// A trainer that packs a large model says nothing for long.
const SILENCE: Duration = Duration::from_secs(300);
/// Tries before it is told that weights cannot be had. Then they are fetched when they are announced again.
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Weights that were announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) version: WeightVersion,
    /// Of the trainer's endpoint.
    pub(super) url: String,
}

struct Puller {
    floor: Arc<Floor>,
    parts: Parts,
    client: Client,
    /// What the engine serves or is about to: the base of the next delta.
    held: Option<Arc<State>>,
    sink: Option<Box<dyn WeightSink>>,
    /// What the engine itself did not take.
    refusals: Option<watch::Receiver<Option<Refusal>>>,
}

/// Fetches whatever is wanted and not held; late and repeated announcements lead to nothing.
pub(super) fn run(
    floor: Arc<Floor>,
    parts: Parts,
    mut wants: watch::Receiver<Option<Wanted>>,
) -> anyhow::Result<impl Future<Output = ()>> {
    let mut puller = Puller {
        floor,
        parts,
        client: link::client(Some(SILENCE))?,
        held: None,
        sink: None,
        refusals: None,
    };
    Ok(async move {
        while wants.changed().await.is_ok() {
            let wanted = wants.borrow_and_update().clone();
            puller.forget_refused();
            if let Some(wanted) = wanted.filter(|wanted| puller.lacks(wanted.version)) {
                puller.fetch(&wanted).await;
            }
        }
    })
}

impl Puller {
    fn version(&self) -> Option<WeightVersion> {
        self.held.as_ref().map(|held| held.version())
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

    fn lacks(&self, version: WeightVersion) -> bool {
        self.version().is_none_or(|held| held < version)
    }

    /// Fetches by delta if that is possible and whole otherwise, a few times; then says that it cannot.
    async fn fetch(&mut self, wanted: &Wanted) {
        let mut whole = false;
        for attempt in 0..TRIES {
            let error = match self.once(wanted, whole).await {
                Ok(()) => return,
                Err(error) => format!("{error:#}"),
            };
            let version = wanted.version;
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
        let from = held.as_ref().map(|held| held.version());
        let bytes = download(&self.client, &self.floor, wanted, from, self.parts.form).await?;
        let (fetched, length) = (began.elapsed(), bytes.len());
        let (form, delta) = (self.parts.form, held.is_some());
        let applied = tokio::task::spawn_blocking(move || transfer::apply(&form, held.as_deref(), &bytes));
        let state = applied.await.context("applying weights")??;
        let version = state.version();
        // A trainer that was restored serves earlier weights than it announced: they are not taken for later ones.
        anyhow::ensure!(
            self.lacks(version),
            "weights {version} were fetched and are no later than those held"
        );
        self.hand_over(state).await?;
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
        let (parts, agent, sink) = (self.parts.clone(), self.floor.agent.clone(), self.sink.take());
        let handed = tokio::task::spawn_blocking(move || match sink {
            None => parts.engine(&agent, &state).map(|engine| (state, None, Some(engine))),
            Some(mut sink) => {
                let published = parts
                    .weights(&state)
                    .and_then(|weights| Ok(sink.publish(&weights, state.version())?));
                // The sink is needed again whatever came of it.
                Ok((state, Some((sink, published)), None))
            }
        });
        let (state, published, engine) = handed.await.context("handing weights over")??;
        if let Some(engine) = engine {
            self.sink = Some(engine.sink(self.parts.device, self.parts.settings.dtype));
            self.refusals = Some(engine.refusals());
            self.floor.serve(engine);
        }
        if let Some((sink, published)) = published {
            self.sink = Some(sink);
            published?;
        }
        self.held = Some(Arc::new(state));
        Ok(())
    }
}

/// What leads from `held` to the newest weights of `form`.
async fn download(
    client: &Client,
    floor: &Floor,
    wanted: &Wanted,
    held: Option<WeightVersion>,
    form: Form,
) -> Result<Vec<u8>, LinkError> {
    let url = &wanted.url;
    let query = held.map_or_else(String::new, |held| format!("?held={held}"));
    let request = client.get(format!("{url}/v1/weights{query}"));
    let mut response = link::ask(floor.secret.show(request), url).await?;
    let most = transfer::largest(&form);
    let mut bytes = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| LinkError::of(url, error))? {
        if bytes.len() + part.len() > most {
            let reason = format!("it sends more than {most} bytes, which no weights of this model have");
            return Err(LinkError::answer(url, reason));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

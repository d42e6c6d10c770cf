//! An agent's HTTP front: OpenAI's interface to the engine that training uses.
//!
//! It lives in the process of its agent and asks the agent's own engine (`EngineClient::visit`), beside training: the answers come
//! from the weights of the moment, and say from which. Nothing that it does is trained on, and no wave waits for it.
//!
//! [`ask`] understands a body ([`fields`], [`completions`], [`chat`]), [`fits`] judges how much it would tell in one piece, [`open`] has it generated, [`choice`] puts text together
//! ([`stops`]), [`answers`] and [`sse`] write it down, with the prompt ([`echo`]) and [`logprobs`] where they are asked for; [`routes`] is the way through. [`token`] says who may ask, [`gate`] how much at
//! once, [`rates`] how much in a minute, [`refusal`] what is told to the others.

pub mod answers;
pub mod ask;
pub(crate) mod chat;
pub mod choice;
pub(crate) mod completions;
pub mod echo;
pub mod fields;
mod fits;
pub mod gate;
mod logprobs;
pub mod open;
pub mod rates;
pub mod refusal;
pub mod routes;
pub mod sse;
pub mod stops;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use actix_web::dev::ServerHandle;
use actix_web::web::Data;
use actix_web::{App, HttpServer};
use anyhow::Context;
use broker::AgentName;
use broker::ids::RunId;
use configs::{AgentConfig, HttpConfig, SamplingConfig};
use rollout::text::TextCodec;

use crate::base::fault::Usage;
use crate::base::secret::Token;
use crate::engine::EngineClient;
use gate::{Gate, Phase};
use rates::Rates;

/// What is under way when the run ends may go on for so long.
const LAST_WORDS: Duration = Duration::from_secs(4);
/// Then it is told so, and has this long to be sent.
const SENDING: u64 = 1;
/// Connections beyond the requests that are answered: they are refused, kept alive, or ask which models there are.
const SPARE_CONNECTIONS: usize = 64;
/// A request's head must have arrived after so long.
const HEAD: Duration = Duration::from_secs(5);

/// A front that may be served, decided before anything heavy is loaded.
#[derive(Debug)]
pub struct Plan {
    config: HttpConfig,
    address: SocketAddr,
    token: Option<Token>,
}

impl Plan {
    /// The plan of an agent that is to have a front.
    ///
    /// # Errors
    /// [`Usage`]: an address that is none, a token that is missing or weak.
    pub fn of(agent: &AgentName, settings: &AgentConfig) -> Result<Option<Self>, Usage> {
        let Some(config) = settings.http.clone() else {
            return Ok(None);
        };
        let Some(address) = config.address() else {
            let message = format!("agents.{agent}.http.listen is {:?}, which is no address", config.listen);
            return Err(Usage::new(message).hint("write an IP address and a port, such as \"127.0.0.1:8001\""));
        };
        let token = Token::from_environment()?;
        crate::base::secret::may_listen(agent.as_str(), address, token.as_ref())?;
        Ok(Some(Self { config, address, token }))
    }
}

/// What answers are made of.
pub struct Front {
    agent: AgentName,
    run: RunId,
    engine: Arc<dyn EngineClient>,
    text: Arc<TextCodec>,
    /// Ids that the model has: often more than its tokenizer, and any of them may be sampled.
    vocab: usize,
    /// How the agent samples when it is not told otherwise.
    sampling: SamplingConfig,
    token: Option<Token>,
    body: u64,
    /// Tokens of a prompt and its answer together, at most.
    context: usize,
    gate: Gate,
    rates: Rates,
    /// When it began to serve, in seconds since 1970.
    since: u64,
}

impl Front {
    /// Seconds since 1970.
    fn now(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.map_or(self.since, |now| now.as_secs())
    }
}

/// A front that is being served.
pub struct Serving {
    pub address: SocketAddr,
    front: Data<Front>,
    server: ServerHandle,
}

/// Begins to serve an agent that speaks with this tokenizer and a model of so many ids. Must be called in a runtime.
///
/// # Errors
/// The address cannot be listened on.
pub fn serve(
    plan: Plan,
    agent: &AgentName,
    run: &RunId,
    engine: Arc<dyn EngineClient>,
    (text, vocab): (Arc<TextCodec>, usize),
    sampling: SamplingConfig,
) -> anyhow::Result<Arc<Serving>> {
    let Plan { config, address, token } = plan;
    let mut front = Front {
        agent: agent.clone(),
        run: run.clone(),
        engine,
        text,
        vocab,
        sampling,
        token,
        body: config.body.0,
        context: config.context,
        gate: Gate::new(config.requests, config.generations),
        rates: Rates::new(config.requests_per_minute, config.tokens_per_minute),
        since: 0,
    };
    front.since = front.now();
    let front = Data::new(front);
    let app_data = front.clone();
    let server = HttpServer::new(move || App::new().app_data(app_data.clone()).configure(routes::routes))
        .workers(1)
        .max_connections(config.requests.saturating_add(SPARE_CONNECTIONS))
        .client_request_timeout(HEAD)
        // A client that is gone is noticed, and what it asked for is cancelled.
        .h1_allow_half_closed(false)
        .tcp_nodelay(true)
        .disable_signals()
        .shutdown_timeout(LAST_WORDS.as_secs() + SENDING)
        .bind(address)
        .with_context(|| {
            format!("agent {agent} cannot listen on {address}: is the port taken? agents.{agent}.http.listen names another")
        })?;
    let address = server.addrs().first().copied().unwrap_or(address);
    let server = server.run();
    let serving = Serving {
        address,
        front,
        server: server.handle(),
    };
    tokio::spawn(server);
    let token = if serving.front.token.is_some() {
        "required"
    } else {
        "none"
    };
    tracing::info!(%agent, %address, token, "the agent answers over HTTP");
    Ok(Arc::new(serving))
}

impl Serving {
    /// Takes nothing more, lets what is under way end for a few seconds, and tells the rest that it is over.
    pub async fn close(&self) {
        self.front.gate.set(Phase::Closing);
        let busy = self.front.gate.busy();
        tracing::info!(agent = %self.front.agent, requests = busy, "the agent stops answering over HTTP");
        let stop = self.server.stop(true);
        let end = async {
            tokio::time::sleep(LAST_WORDS).await;
            self.front.gate.set(Phase::Closed);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = stop => {}
            () = end => {}
        }
    }
}

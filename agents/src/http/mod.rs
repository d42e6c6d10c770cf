//! An agent's HTTP front: OpenAI's interface to the engine that training uses.
//!
//! It runs in the agent's process and uses the agent's own engine (`EngineClient::visit`), in
//! parallel with training. Answers come from the weights of the moment, and name them. Nothing it
//! generates is trained on, and no wave waits for it.
//!
//! [`client_request`] reads a body with [`json_fields`], [`completions`] and [`chat`].
//! [`size_limits`] limits the size of an answer. [`generations`] has it generated. [`choice`]
//! assembles its text with [`stops`]. [`answers`] and [`sse`] write it, with the prompt ([`echo`])
//! and [`logprobs`] where the client asks for them. [`routes`] connects these steps. [`gate`]
//! limits concurrent work, [`rates`] limits work per minute, and [`request_error`] is the answer to
//! rejected requests.

pub mod answers;
pub(crate) mod chat;
pub mod choice;
pub mod client_request;
pub(crate) mod completions;
pub mod echo;
pub mod gate;
pub mod generations;
pub mod json_fields;
mod logprobs;
mod observed;
pub mod rates;
pub mod request_error;
pub mod routes;
mod size_limits;
pub mod sse;
pub mod stopping;
pub mod stops;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use actix_web::dev::ServerHandle;
use actix_web::middleware::from_fn;
use actix_web::web::Data;
use actix_web::{App, HttpServer};
use anyhow::Context;
use broker::AgentName;
use broker::ids::RunId;
use configs::{AgentConfig, HttpConfig, SamplingConfig};
use rollout::text::TextCodec;

use crate::base::fault::Usage;
use crate::base::log_scope;
use crate::base::secret::Token;
use crate::engine::EngineClient;
use crate::observe::Observer;
use gate::{FrontPhase, RequestGate};
use observed::FrontRequests;
use rates::FrontRates;

/// The time that running requests may take to finish when the run ends.
const GRACE: Duration = Duration::from_secs(4);
/// The time to send them the final error, in seconds.
const SENDING: u64 = 1;
/// Connections in addition to those of running requests: for rejected requests, keep-alive and
/// model lists.
const SPARE_CONNECTIONS: usize = 64;
/// The time within which a request's head must arrive.
const HEAD: Duration = Duration::from_secs(5);

/// The settings of a front, checked before anything heavy is loaded.
#[derive(Debug)]
pub struct Plan {
    config: HttpConfig,
    address: SocketAddr,
    token: Option<Token>,
}

impl Plan {
    /// Returns the plan of an agent that has a front.
    ///
    /// # Errors
    /// [`Usage`]: the address is invalid, or the token is missing or weak.
    pub fn of(agent: &AgentName, settings: &AgentConfig) -> Result<Option<Self>, Usage> {
        let Some(config) = settings.http.clone() else {
            return Ok(None);
        };
        let Some(address) = config.address() else {
            let message = format!(
                "agents.{agent}.http.listen is {:?}, which is not an address",
                config.listen
            );
            return Err(Usage::new(message).hint("write an IP address and a port, for example \"127.0.0.1:8001\""));
        };
        let token = Token::from_environment()?;
        crate::base::secret::may_listen(agent.as_str(), address, token.as_ref())?;
        Ok(Some(Self { config, address, token }))
    }
}

/// The state that answers need.
pub struct Front {
    agent: AgentName,
    run: RunId,
    engine: Arc<dyn EngineClient>,
    text: Arc<TextCodec>,
    /// The number of the model's ids: often more than its tokenizer's, and any of them may be
    /// sampled.
    vocab: usize,
    /// The agent's sampling, for values that a request leaves out.
    sampling: SamplingConfig,
    token: Option<Token>,
    /// True if control tokens that a text prompt spells become these tokens.
    control_tokens: bool,
    /// Set when the log has warned about a prompt with control tokens that stay text.
    warned: AtomicBool,
    body: u64,
    /// The maximum number of tokens of a prompt and its answer together.
    context: usize,
    gate: RequestGate,
    rates: FrontRates,
    /// The time at which it began to serve, in seconds since 1970.
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
pub struct ServedFront {
    pub address: SocketAddr,
    front: Data<Front>,
    server: ServerHandle,
}

/// Begins to serve an agent with this tokenizer and a model with `vocab` ids. Must be called in a
/// runtime.
///
/// # Errors
/// Fails if the address cannot be listened on.
pub fn serve(
    plan: Plan,
    agent: &AgentName,
    run: &RunId,
    engine: Arc<dyn EngineClient>,
    (text, vocab): (Arc<TextCodec>, usize),
    sampling: SamplingConfig,
    observer: Observer,
) -> anyhow::Result<Arc<ServedFront>> {
    let Plan { config, address, token } = plan;
    let mut front = Front {
        agent: agent.clone(),
        run: run.clone(),
        engine,
        text,
        vocab,
        sampling,
        token,
        control_tokens: config.control_tokens,
        warned: AtomicBool::new(false),
        body: config.body.0,
        context: config.context,
        gate: RequestGate::new(config.requests, config.generations),
        rates: FrontRates::new(config.requests_per_minute, config.tokens_per_minute),
        since: 0,
    };
    front.since = front.now();
    let front = Data::new(front);
    let app_data = front.clone();
    let requests = Data::new(FrontRequests::new(observer, agent));
    let app = move || {
        App::new()
            .app_data(app_data.clone())
            .app_data(requests.clone())
            .wrap(from_fn(observed::count))
            .configure(routes::routes)
    };
    let server = HttpServer::new(app)
        .workers(1)
        .max_connections(config.requests.saturating_add(SPARE_CONNECTIONS))
        .client_request_timeout(HEAD)
        // A client that disconnects is noticed, and its generations are cancelled.
        .h1_allow_half_closed(false)
        .tcp_nodelay(true)
        .disable_signals()
        .shutdown_timeout(GRACE.as_secs() + SENDING)
        .bind(address)
        .with_context(|| {
            format!("agent {agent} cannot listen on {address}: is the port taken? agents.{agent}.http.listen names another")
        })?;
    let address = server.addrs().first().copied().unwrap_or(address);
    let server = server.run();
    let serving = ServedFront {
        address,
        front,
        server: server.handle(),
    };
    log_scope::spawn(server);
    let token = if serving.front.token.is_some() {
        "required"
    } else {
        "none"
    };
    tracing::info!(%agent, %address, token, "the agent answers over HTTP");
    Ok(Arc::new(serving))
}

impl ServedFront {
    /// Rejects new requests, lets running ones finish for a few seconds, and then ends the rest
    /// with an error.
    pub async fn close(&self) {
        self.front.gate.set(FrontPhase::Closing);
        let busy = self.front.gate.busy();
        tracing::info!(agent = %self.front.agent, requests = busy, "the agent stops answering over HTTP");
        let stop = self.server.stop(true);
        let end = async {
            tokio::time::sleep(GRACE).await;
            self.front.gate.set(FrontPhase::Closed);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = stop => {}
            () = end => {}
        }
    }
}

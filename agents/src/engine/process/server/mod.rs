//! `dyad engine`: an agent's engine as a process of its own, and the same engine that the agent would embed.
//!
//! It has no weights but those that it fetches of its agent's trainer: [`pull`] fetches and verifies them and makes the engine with the
//! first ([`model`] has everything else that an engine is made of). [`floor`] holds the engine and the agent's session, [`routes`] is the
//! way in. It serves one agent of one run, and one session at a time: a new one takes the place of the one before, and gets the answers
//! to what that had asked.

mod host;
mod model;
mod pull;
mod routes;

use std::net::SocketAddr;

use actix_web::dev::ServerHandle;
use actix_web::web::Data;
use actix_web::{App, HttpServer};
use anyhow::Context;
use broker::AgentName;
use configs::{EngineKind, RunConfig};

use super::link::{KEEP, Secret};
use crate::base::fault::no_such_agent;
use host::Floor;

/// An engine process at work.
pub struct Serving {
    pub address: SocketAddr,
    server: ServerHandle,
}

/// Prepares the agent's model and begins to serve. Must be called in a runtime.
///
/// # Errors
/// An agent that there is not, a model that cannot be opened, a token that is missing, an address that cannot be listened on.
pub async fn start(config: &RunConfig, agent: &AgentName, address: SocketAddr) -> anyhow::Result<Serving> {
    start_with(config, agent, address, Secret::from_environment()?).await
}

/// With a token of its own.
pub(crate) async fn start_with(
    config: &RunConfig,
    agent: &AgentName,
    address: SocketAddr,
    secret: Secret,
) -> anyhow::Result<Serving> {
    let settings = config
        .agents
        .get(agent)
        .ok_or_else(|| no_such_agent(agent, config))?
        .clone();
    anyhow::ensure!(
        settings.engine.kind == EngineKind::Dyad,
        "agent {agent} has its engine in its own process: write engine.kind = \"dyad\" and this engine's address in engine.urls"
    );
    secret.may_listen("--listen", address)?;
    let (name, seed, folder) = (agent.clone(), config.run.seed, config.run.folder.clone());
    let parts = tokio::task::spawn_blocking(move || model::open(&name, settings, seed, &folder)).await??;
    let floor = Data::from(Floor::start(agent.clone(), secret, parts)?);
    let app = move || App::new().app_data(floor.clone()).configure(routes::routes);
    let server = HttpServer::new(app)
        .workers(1)
        .keep_alive(KEEP)
        // A session whose agent is gone is noticed.
        .h1_allow_half_closed(false)
        .tcp_nodelay(true)
        .disable_signals()
        .shutdown_timeout(1)
        .bind(address)
        .with_context(|| format!("the engine of agent {agent} cannot listen on {address}: is the port taken?"))?;
    let address = server.addrs().first().copied().unwrap_or(address);
    let server = server.run();
    let handle = server.handle();
    tokio::spawn(server);
    tracing::info!(%agent, %address, "an engine process waits for its agent");
    Ok(Serving {
        address,
        server: handle,
    })
}

impl Serving {
    /// Ends at once: what is under way is asked again elsewhere.
    pub async fn close(&self) {
        self.server.stop(false).await;
    }
}

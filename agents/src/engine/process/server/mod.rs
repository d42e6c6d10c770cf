//! `dyad engine`: an agent's engine as a separate process, with the same engine that the agent
//! would embed.
//!
//! It has only the weights that it fetches from its agent's trainer. [`pull`] fetches and verifies
//! them and makes the engine with the first ones ([`model`] has all other parts of an engine).
//! [`host`] holds the engine and the agent's session; [`routes`] is the HTTP interface. It serves
//! one agent of one run, one session at a time. A new session replaces the previous one, and
//! receives the answers to its requests.

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
use broker::ids::RunId;
use configs::{EngineKind, RunConfig};

use super::link::{KEEP, Secret};
use crate::base::fault::{Usage, no_such_agent};
use crate::base::{log_scope, startup};
use crate::engine::EngineProgress;
use host::SessionHost;

/// A running engine process.
pub struct ServingEngine {
    pub address: SocketAddr,
    host: Data<SessionHost>,
    server: ServerHandle,
}

/// Prepares the agent's model and starts to serve. Must be called in a runtime.
///
/// # Errors
/// An unknown agent, a model that cannot be opened, a missing token, or an address in use.
pub async fn start(config: &RunConfig, agent: &AgentName, address: SocketAddr) -> anyhow::Result<ServingEngine> {
    start_with(config, agent, address, Secret::from_environment()?).await
}

/// Starts with the given token.
pub(crate) async fn start_with(
    config: &RunConfig,
    agent: &AgentName,
    address: SocketAddr,
    secret: Secret,
) -> anyhow::Result<ServingEngine> {
    let settings = config
        .agents
        .get(agent)
        .ok_or_else(|| no_such_agent(agent, config))?
        .clone();
    if settings.engine.kind != EngineKind::Dyad {
        return Err(Usage::new(format!("agent {agent} does not use engine processes"))
            .hint("write engine.kind = \"dyad\" and this engine's address in engine.urls")
            .into());
    }
    secret.may_listen("--listen", address)?;
    let (name, seed, folder) = (agent.clone(), config.run.seed, config.run.folder.clone());
    let starting = log_scope::agent(agent).in_scope(|| startup::begin(agent));
    let parts = tokio::task::spawn_blocking(move || model::open(&name, settings, seed, &folder)).await??;
    drop(starting);
    let host = Data::from(SessionHost::start(agent.clone(), secret, parts)?);
    let served = host.clone();
    let app = move || App::new().app_data(served.clone()).configure(routes::routes);
    let server = HttpServer::new(app)
        .workers(1)
        .keep_alive(KEEP)
        // Detects a session without its agent.
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
    Ok(ServingEngine {
        address,
        host,
        server: handle,
    })
}

impl ServingEngine {
    /// Returns the run that it serves, once the first session has named it.
    pub(crate) fn run(&self) -> Option<RunId> {
        self.host.run()
    }

    /// Returns the progress of its engine, once it has weights.
    pub(crate) fn progress(&self) -> Option<EngineProgress> {
        self.host.progress()
    }

    /// Stops at once: other engines repeat the work in progress.
    pub async fn close(&self) {
        self.server.stop(false).await;
    }
}

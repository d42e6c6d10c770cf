//! Starts an agent's consumers. From then on the agent takes messages from its queues.

use std::sync::Arc;

use actix::{Actor, Addr};
use anyhow::Context;
use broker::protocol::control::RunPhase;
use configs::AgentConfig;

use super::{Agent, inbox, reclaim, router};
use crate::engine::EngineClient;
use crate::http;
use crate::run_folder::crash_marks::Strikes;

/// A started agent.
pub struct Started {
    pub agent: Arc<Agent>,
    pub router: Addr<router::Router>,
    pub engine: Arc<dyn EngineClient>,
    /// The HTTP front, if the agent has one. It is closed when the run is closed or the agent
    /// fails.
    pub front: Option<Arc<http::ServedFront>>,
    /// Resolves when the run is closed and this agent has written its last checkpoint.
    pub end: tokio::task::JoinHandle<anyhow::Result<()>>,
}

/// Begins to take messages from the agent's queues. Returns the router of its turns.
pub(crate) async fn listen(
    agent: &Arc<Agent>,
    settings: &AgentConfig,
    engine: Arc<dyn EngineClient>,
) -> anyhow::Result<Addr<router::Router>> {
    let observed = agent.observer.series();
    let observed = observed.map(|series| series.engine.of_agent(agent.name.as_str()));
    let router = router::Router::new(
        agent.name.clone(),
        agent.topology.clone(),
        agent.bus.clone(),
        engine,
        agent.text.clone(),
        agent.broken.clone(),
        Strikes::open(&agent.folder, agent.name.as_str()).context("opening the crash marks of groups in the engine")?,
    )
    .observed_by(observed)
    .recording(agent.records.clone())
    .start();
    inbox::control(agent.clone()).await?;
    if settings.train.enabled {
        inbox::reservations(agent.clone()).await?;
        inbox::samples(agent.clone()).await?;
        reclaim::start(agent.clone());
    }
    inbox::turns(agent.clone(), router.clone(), settings.history).await?;
    agent.status.send_modify(|status| {
        status.serving = true;
        status.phase = RunPhase::Running;
    });
    Ok(router)
}

//! An agent with a model on an external server: it plays its roles with messages, is never trained,
//! and may receive images.

use std::sync::Arc;

use broker::ids::WeightVersion;
use broker::protocol::control::RunPhase;
use configs::AgentConfig;
use rollout::text::ChatLog;

use super::{Agent, AgentEnv, Started, heartbeat, listen};
use crate::base::log_scope;
use crate::engine::foreign::openai::Openai;
use crate::ledger::LedgerHandle;

/// Starts the agent: ledger, servers, then its queues. Its weight version never changes.
pub(super) async fn start(env: AgentEnv, settings: &AgentConfig, model: &str) -> anyhow::Result<Started> {
    let ledger = LedgerHandle::open_observed(&env.folder.ledger(&env.name), &env.run, &env.name, &env.observer)?;
    let agent = Agent::new(env, settings, Arc::new(ChatLog), ledger).await?;
    agent
        .bus
        .declare(&agent.topology, std::slice::from_ref(&agent.name))
        .await?;
    let version = WeightVersion::default();
    let engine = Openai::start(&settings.engine, model, version)?;
    heartbeat::start(agent.clone(), engine.clone());
    let router = listen(&agent, settings, engine.clone()).await?;
    let here = agent.clone();
    let end = log_scope::spawn(async move {
        if here.ledger.state().await?.phase != RunPhase::Closed {
            here.closing.notified().await;
        }
        here.close(version).await
    });
    Ok(Started {
        agent,
        router,
        engine,
        front: None,
        end,
    })
}

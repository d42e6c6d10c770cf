//! An agent: one policy with its own ledger, router, engine and trainer.
//!
//! [`inbox`] receives turn requests, reservations, samples and control messages. [`router`] has
//! each turn request generated once. [`training`] turns closed groups into batches and batches into
//! weights; [`training::ranks`] are its further processes if it has several devices, which a
//! launcher may start ([`launched`]). [`heartbeat`] reports the agent's state. [`past_opponent`]
//! serves another agent's past weights. No code here depends on a role's name: roles are data.

pub mod alarms;
pub(crate) mod broken;
pub(crate) mod due;
pub mod figures;
pub mod heartbeat;
pub(crate) mod holds;
pub mod inbox;
mod job_queue;
pub mod launched;
mod listen;
mod observed;
pub mod orders;
mod past_opponent;
pub mod reclaim;
pub mod router;
mod served;
mod state;
pub mod trainer_thread;
pub mod training;

use configs::ModelConfig;
use tracing::Instrument;

pub use listen::Started;
pub(crate) use listen::listen;
pub use state::{Agent, AgentEnv, AgentStatus};

use crate::base::fault::no_such_agent;
use crate::base::{log_scope, startup};
use crate::http;
use crate::ledger::LedgerHandle;

/// Starts an agent: loads its policy, opens its ledger, starts its engine and trainer. It consumes
/// from its queues only then, and opens its HTTP front last. Its log lines are in the agent's
/// scope.
pub async fn start(env: AgentEnv) -> anyhow::Result<Started> {
    let scope = log_scope::agent(&env.name);
    let started = async {
        let _starting = startup::begin(&env.name);
        let started = start_parts(env).await;
        match &started {
            Ok(_) => tracing::info!(pid = std::process::id(), "agent is serving"),
            Err(error) => tracing::error!(error = format!("{error:#}"), "the agent did not start"),
        }
        started
    };
    started.instrument(scope).await
}

async fn start_parts(env: AgentEnv) -> anyhow::Result<Started> {
    let settings = env
        .config
        .agents
        .get(&env.name)
        .ok_or_else(|| no_such_agent(&env.name, &env.config))?
        .clone();
    if let ModelConfig::Served(model) = &settings.model {
        return served::start(env, &settings, model).await;
    }
    let plan = http::Plan::of(&env.name, &settings)?;
    let prepared = crate::policy::prepare(&env.folder, &env.name, &settings, env.config.run.seed).await?;
    let (text, vocab) = (prepared.text.clone(), prepared.shape.vocab);
    let ledger = LedgerHandle::open_observed(&env.folder.ledger(&env.name), &env.run, &env.name, &env.observer)?;
    let agent = Agent::new(env, &settings, text.clone(), ledger).await?;
    // Declares its own queues only: its broker user has no access to the other agents' queues. The
    // coordinator declares all.
    let own = std::slice::from_ref(&agent.name);
    agent.bus.declare(&agent.topology, own).await?;
    let (mut training, engine) = training::Training::start(agent.clone(), prepared).await?;
    heartbeat::start(agent.clone(), engine.clone());
    // Must come before `listen`. A crash loses the newest weights, but requests for those weights
    // come again. Training the recorded batches again makes equal weights to answer with.
    if training.replays() {
        startup::enter(&agent.name, "training recorded batches again");
        training.catch_up().await?;
    }
    let lost_rank = agent.lost_rank.subscribe();
    let router = listen(&agent, &settings, engine.clone()).await?;
    let speech = (text, vocab);
    let observer = agent.observer.clone();
    let serve = |plan| {
        http::serve(
            plan,
            &agent.name,
            &agent.run,
            engine.clone(),
            speech,
            settings.sampling,
            observer,
        )
    };
    let front = plan.map(serve).transpose()?;
    let front_to_close = front.clone();
    let (broken, router_to_stop) = (agent.broken.subscribe(), router.clone());
    let end = log_scope::spawn(async move {
        // The trainer may see the loss of a rank first: the watch then waits for this end too.
        let _watched = lost_rank.clone();
        let ended = tokio::select! {
            ended = training.run() => ended,
            error = broken::given_up(broken) => Err(error),
            error = training::ranks::lost(lost_rank) => Err(error),
        };
        if ended.is_err() {
            // The groups in the engine did not cause this error. The router clears their crash
            // marks, so that they get no strike after the restart.
            let _ = router_to_stop.send(router::RouterMessage::Stop).await;
        }
        if let Some(front) = front_to_close {
            front.close().await;
        }
        ended
    });
    Ok(Started {
        agent,
        router,
        engine,
        front,
        end,
    })
}

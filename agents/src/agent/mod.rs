//! An agent: one policy with its own ledger, router, engine and trainer.
//!
//! [`inbox`] listens (turn requests, reservations, samples, control), [`turns`] is the router, [`training`] turns closed
//! groups into batches and batches into weights, [`heart`] tells the others how it stands, [`policy`] prepares the model, [`renewing`]
//! plays with another's past.
//! Nothing here knows what a role means: a role is data.

pub mod alarms;
pub(crate) mod answers;
pub(crate) mod broken;
mod desk;
pub(crate) mod due;
pub mod figures;
pub mod heart;
pub(crate) mod holds;
pub mod inbox;
mod listen;
pub mod orders;
mod past_opponent;
pub mod reclaim;
pub mod replies;
pub mod router;
mod served;
mod state;
pub mod training;
pub mod worker;

use configs::ModelConfig;

pub use listen::Started;
pub(crate) use listen::listen;
pub use state::{Agent, Env, Status};

use crate::base::fault::no_such_agent;
use crate::http;
use crate::ledger::LedgerHandle;

/// Starts an agent: policy, ledger, engine, trainer, then its queues, then its HTTP front.
pub async fn start(env: Env) -> anyhow::Result<Started> {
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
    let ledger = LedgerHandle::open(&env.folder.ledger(&env.name), &env.run, &env.name)?;
    let agent = Agent::new(env, &settings, text.clone(), ledger).await?;
    // What the others receive is the coordinator's to make: an agent's user may not touch it.
    let own = std::slice::from_ref(&agent.name);
    agent.bus.declare(&agent.topology, own).await?;
    let (mut training, engine) = training::Training::start(agent.clone(), prepared).await?;
    heart::start(agent.clone(), engine.clone());
    // Before anything is generated: what was asked of the weights that are gone must be answered by their equals.
    training.catch_up().await?;
    let router = listen(&agent, &settings, engine.clone()).await?;
    let speech = (text, vocab);
    let serve = |plan| http::serve(plan, &agent.name, &agent.run, engine.clone(), speech, settings.sampling);
    let front = plan.map(serve).transpose()?;
    let serving = front.clone();
    let (broken, at_work) = (agent.broken.subscribe(), router.clone());
    let end = tokio::spawn(async move {
        let ended = tokio::select! {
            ended = training.run() => ended,
            error = broken::given_up(broken) => Err(error),
        };
        if ended.is_err() {
            // What the engine is asked for is not to blame: its groups have no strike when it comes again.
            let _ = at_work.send(router::Input::Stop).await;
        }
        if let Some(front) = serving {
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

//! The coordinator: takes tasks, plays their conversations, and sends what they earned.
//!
//! One actor ([`actor`]) receives the closed list of inputs ([`input`]), passes each to the parts
//! that it concerns, and starts what they ask for. The parts have private fields and never wait:
//!
//! - [`admission`]: tasks on their way into the agents' ledgers, and claims in the store;
//! - [`play`]: the open groups, the wave under way, and what each group needs next;
//! - [`closing`]: a finished group's outcome, bundles and journal; [`rounds`]: groups that are sent
//!   together;
//! - [`peers`]: agents and other coordinators, and the gate that says how much may be admitted;
//! - [`evaluation`]: greedy conversations while the run trains; [`specs`]: how groups are played;
//! - [`figures`]: counters and statistics; [`transcripts`]: conversations as people read them;
//! - [`lifecycle`]: the run's phase; [`snapshot`]: joint checkpoints; [`clock`]: what is due when.
//!
//! Other modules use [`Env`], [`start`], [`stop`], [`End`], [`Mailbox`], [`transcripts`], and the
//! pure type [`closing::outcome::Ended`].

mod actor;
mod admission;
mod clock;
pub mod closing;
mod env;
mod evaluation;
mod figures;
mod input;
mod lifecycle;
mod peers;
mod play;
mod rounds;
mod snapshot;
mod specs;
pub mod transcripts;

use std::sync::Arc;
use std::time::Duration;

use actix::Actor;
use rollout::workflow::Workflow;
use tokio::sync::oneshot;
use tracing::Instrument;

use crate::base::log_scope;
use crate::participant::RemoteConnection;

pub use env::Env;
pub use input::Mailbox;

/// Resolves when the run has ended, or when this coordinator cannot go on.
pub type End = oneshot::Receiver<anyhow::Result<()>>;

/// Stops a coordinator. It gives its groups up, so that another one need not wait for the lease.
/// Returns when that is done, or after `patience`.
pub async fn stop(mailbox: &Mailbox, patience: Duration) {
    let (done, stopped) = oneshot::channel();
    let asked = async {
        // A coordinator that is gone has nothing to give up.
        if mailbox.send(input::Input::Stop(done)).await.is_ok() {
            let _ = stopped.await;
        }
    };
    if tokio::time::timeout(patience, asked).await.is_err() {
        tracing::warn!("the store did not answer; what is open is taken over after its lease");
    }
}

/// Starts a coordinator: declares its queues, listens, and begins. Its log lines are in the
/// coordinator's scope.
pub async fn start(env: Env) -> anyhow::Result<(Mailbox, End)> {
    let started = async {
        let started = start_parts(env).await?;
        tracing::info!(pid = std::process::id(), "coordinator is running");
        Ok::<_, anyhow::Error>(started)
    };
    started.instrument(log_scope::coordinator()).await
}

async fn start_parts(env: Env) -> anyhow::Result<(Mailbox, End)> {
    let env = Arc::new(env);
    env.bus.declare(&env.topology, &env.participants()).await?;
    let results = env.topology.results(&env.incarnation);
    let control = env.topology.control(&env.incarnation);
    env.bus.declare_queue(&results).await?;
    env.bus.declare_queue(&control).await?;
    let (ended, end) = oneshot::channel();
    let mut workflows = vec![env.workflow.clone()];
    for suite in env.config.eval.suites.values().filter(|suite| suite.every.is_some()) {
        workflows.push(crate::eval::suites::workflow(&env.config, suite)?);
    }
    let workflows: Vec<&dyn Workflow> = workflows.iter().map(AsRef::as_ref).collect();
    let line = RemoteConnection::open(&env.bus, &env.topology, &env.incarnation, &workflows).await?;
    let mut coordinator = actor::Coordinator::new(env.clone(), line, ended)?;
    if env.alone {
        coordinator.resend_last_round().await?;
    }
    let mailbox = coordinator.start().recipient();
    admission::intake::listen(&env, &mailbox, &results, &control).await?;
    Ok((mailbox, end))
}

//! `dyad audit`: nothing lost, nothing counted twice.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use broker::AgentName;
use broker::bus::Bus;
use broker::protocol::Kind;
use broker::topology::Topology;
use clap::Args;

use super::select::{self, RunArg};
use super::tasks;
use crate::base::fault::{Usage, no_such_agent};
use crate::report::task_accounts::BrokerCounts;
use crate::report::{audit, repair};
use crate::run_folder::RunFolder;

/// The longest time of a look at all dead letters.
pub(super) const COUNTING: Duration = Duration::from_secs(30);

/// Check the ledgers: no task lost, none counted twice
///
/// Counts tasks, conversations and samples. The sources are the publisher's manifest, every agent's
/// ledger and newest checkpoint, and the dead letters. The exit code is 1 if the counts differ; the
/// differing ids are printed. While the run goes on, tasks in progress may differ.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Broker URL for counting dead letters, instead of the run's own
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    /// Rebuild this agent's lost ledger from the others; the run must be stopped
    #[arg(long, value_name = "AGENT")]
    pub repair: Option<AgentName>,
    #[command(flatten)]
    pub run: RunArg,
}

pub fn run(args: &AuditArgs) -> anyhow::Result<()> {
    let folder = args.run.of_broker(None, args.broker.as_deref())?;
    if let Some(agent) = &args.repair {
        let config = folder.config()?;
        let settings = config.agents.get(agent);
        let settings = settings.ok_or_else(|| no_such_agent(agent, &config))?;
        if !settings.train.enabled {
            return Err(Usage::new(format!("agent {agent} does not train, so it has no ledger"))
                .hint("name an agent that trains")
                .into());
        }
        let made = repair::repair(&folder, agent)?;
        println!("{made}");
    }
    let asked = select::block_on(async { Ok(ask(args.broker.as_deref(), &folder).await) })?;
    let audit = audit::audit(&folder, asked.as_ref())?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&audit)?);
    } else {
        print!("{}", crate::run_folder::logs::printable(&audit.render()));
    }
    let broken = audit.violations();
    anyhow::ensure!(broken.is_empty(), "the ledgers break a promise: {}", broken.join("; "));
    Ok(())
}

/// Asks the broker for dead letters and waiting tasks. Returns `None` if no broker answers, for
/// example after a run with private servers has ended.
pub(super) async fn ask(broker: Option<&str>, folder: &RunFolder) -> Option<BrokerCounts> {
    let url = select::broker_url(broker, Some(folder)).ok()?;
    let asked = async {
        let bus = select::connect_within(&url, "audit", Duration::from_secs(2)).await?;
        // The queues of a broker that answers may not.
        let counts = tokio::time::timeout(COUNTING, counts(&bus, folder)).await;
        bus.close().await;
        counts.context("the broker did not count its letters in time")?
    };
    asked
        .await
        .inspect_err(|error| tracing::debug!(%error, "the dead letters were not counted"))
        .ok()
}

/// Counts dead letters and waiting tasks. The letters stay where they are.
pub(super) async fn counts(bus: &Arc<dyn Bus>, folder: &RunFolder) -> anyhow::Result<BrokerCounts> {
    let topology = Topology::new(folder.run().clone());
    let mut dead = Vec::new();
    tasks::look(bus, &topology, |letter| {
        if is_task(letter) {
            dead.push(letter.facts.id.clone());
        }
    })
    .await?;
    let queued = bus.depth(&topology.tasks()).await;
    Ok(BrokerCounts {
        dead,
        queued: queued.context("the tasks queue was not counted")?,
    })
}

/// Returns true if the letter is a task. A letter without a type came from a foreign publisher,
/// which publishes only tasks.
fn is_task(letter: &tasks::Letter) -> bool {
    letter.facts.kind.is_empty() || letter.facts.kind == Kind::Task.as_str()
}

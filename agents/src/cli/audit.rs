//! `dyad audit`: nothing lost, nothing counted twice.

use std::time::Duration;

use anyhow::Context;
use broker::AgentName;
use broker::protocol::Kind;
use broker::topology::Topology;
use clap::Args;

use super::select::{self, RunArg};
use super::tasks;
use crate::report::task_accounts::BrokerCounts;
use crate::report::{audit, repair};
use crate::run_folder::RunFolder;

/// Count what the ledgers hold: nothing lost, nothing counted twice
///
/// Counts tasks, conversations and samples from the publisher's manifest, every agent's ledger and newest checkpoint, and the
/// dead letters. Exit code 1, with the ids that differ, if they do not add up; while the run goes on, what is under way may
/// differ.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
    /// Broker URL, to ask for dead letters, instead of the run's own
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    /// Make the lost ledger of this agent anew from the others'; the run must not be up
    #[arg(long, value_name = "AGENT")]
    pub repair: Option<AgentName>,
    #[command(flatten)]
    pub run: RunArg,
}

pub fn run(args: &AuditArgs) -> anyhow::Result<()> {
    let folder = args.run.folder()?;
    if let Some(agent) = &args.repair {
        let made = repair::repair(&folder, agent)?;
        println!("{made}");
    }
    let audit = audit::audit(&folder, ask(args, &folder).as_ref())?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&audit)?);
    } else {
        print!("{}", crate::run_folder::logs::printable(&audit.render()));
    }
    let broken = audit.violations();
    anyhow::ensure!(broken.is_empty(), "the ledgers break a promise: {}", broken.join("; "));
    Ok(())
}

/// Dead letters and waiting tasks; `None` when no broker answers, as after the end of a run with servers of its own.
fn ask(args: &AuditArgs, folder: &RunFolder) -> Option<BrokerCounts> {
    let url = select::broker_url(args.broker.as_deref(), Some(folder)).ok()?;
    let topology = Topology::new(folder.run().clone());
    let asked = select::block_on(async {
        let bus = select::connect_within(&url, "audit", Duration::from_secs(2)).await?;
        let letters = tasks::handle(&bus, &topology, &tasks::Order::List(Vec::new())).await;
        let queued = bus.depth(&topology.tasks()).await;
        bus.close().await;
        anyhow::Ok((letters?, queued.context("the tasks queue was not counted")?))
    });
    match asked {
        Ok((letters, queued)) => Some(BrokerCounts {
            dead: letters.into_iter().filter(is_task).map(|letter| letter.id).collect(),
            queued,
        }),
        Err(error) => {
            tracing::debug!(%error, "the dead letters were not asked for");
            None
        }
    }
}

/// A letter without a type came from someone else's publisher, who only publishes tasks.
fn is_task(letter: &tasks::Letter) -> bool {
    letter.kind.is_empty() || letter.kind == Kind::Task.as_str()
}

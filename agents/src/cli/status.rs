//! `dyad status`: the state of a run, from its processes' heartbeats, its queues and its metrics.

pub(super) mod listener;
mod waits;

use std::time::Duration;

use clap::Args;
use configs::RunConfig;

use super::ended::{self, Over};
use super::last_metrics::{LastMetrics, MetricsReader};
use super::render;
use super::select::{self, RunArg};
use crate::run_folder::RunFolder;
use crate::run_folder::logs::printable;
use listener::{Listener, LiveState, Status};
use waits::waits;

/// Time between two views of `--watch`, besides the time to receive heartbeats.
const REFRESH: Duration = Duration::from_millis(1500);

/// Show agents, weights, rewards, rates and queues
///
/// Also says what each process does or waits for. Columns: `phase` of the run; `step`, batches
/// trained; `weights`, the version that the engine serves (lineage.step); `reward` and `staleness`
/// (age of its tokens in steps), means of the last batch; `ready`, closed groups to train on;
/// `reserved`, groups in play; `capacity`, further groups that the agent would accept.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Refresh every two seconds
    #[arg(long, short, conflicts_with = "json")]
    pub watch: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Broker URL, instead of the run's own
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    #[command(flatten)]
    pub run: RunArg,
}

pub fn run(args: &StatusArgs) -> anyhow::Result<()> {
    let folder = args.run.of_broker(None, args.broker.as_deref())?;
    let config = folder.config()?;
    let over = ended::over_with(&folder, &config)?.filter(|over| over.is_final() || args.broker.is_none());
    select::block_on(async {
        let url = match &over {
            // Its processes are gone: a broker would only be silent.
            Some(over) => Err(anyhow::anyhow!("{}", over.text())),
            None => select::broker_url(args.broker.as_deref(), Some(&folder)),
        };
        let bus = match url {
            Ok(url) => select::connect_small(&url, "status", true).await,
            Err(error) => Err(error),
        };
        let (mut live, offline) = match bus {
            Ok(bus) => (Some(Listener::open(bus, &folder, &config).await?), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let mut reader = MetricsReader::default();
        loop {
            let beats = match &mut live {
                Some(live) => Some(live.listen().await),
                None => None,
            };
            let metrics = reader.last(&folder)?;
            let status = assemble(&folder, &config, over.as_ref(), beats, offline.clone(), metrics);
            if args.json {
                println!("{}", serde_json::to_string_pretty(&status)?);
                return Ok(());
            }
            if args.watch {
                // Moves the cursor home and clears from there, which avoids flicker.
                print!("\x1b[H\x1b[J");
            }
            print!(
                "{}",
                printable(&render::status::render(&status, config.run.train_steps))
            );
            if !args.watch || over.is_some() {
                return Ok(());
            }
            tokio::time::sleep(REFRESH).await;
        }
    })
}

/// Returns the state of a run: what was received, and what its files say.
pub(super) fn assemble(
    folder: &RunFolder,
    config: &RunConfig,
    over: Option<&Over>,
    mut received: Option<LiveState>,
    offline: Option<String>,
    metrics: LastMetrics,
) -> Status {
    if let Some(received) = &mut received {
        received.take_rates(&metrics.rates);
    }
    Status {
        run: folder.run().to_string(),
        waits: received.as_ref().map_or_else(Vec::new, |live| waits(live, config)),
        live: received,
        over: over.map(|over| over.text().to_owned()),
        offline,
        metrics,
    }
}

#[cfg(test)]
mod tests;

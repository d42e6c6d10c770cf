//! `dyad status`: the state of a run, from its processes' heartbeats, its queues and its metrics.

pub(super) mod listener;

use std::time::Duration;

use clap::Args;

use super::ended::{self, Over};
use super::last_metrics::last_metrics;
use super::render;
use super::select::{self, RunArg};
use crate::run_folder::logs::printable;
use listener::{Listener, Status};

/// Show agents, weights, rewards, rates and queues
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
    let folder = args.run.folder()?;
    let config = folder.config()?;
    let over = ended::over(&folder)?.filter(|over| matches!(over, Over::Ended(_)) || args.broker.is_none());
    select::block_on(async {
        let url = match &over {
            // Its processes are gone: a broker would only be silent.
            Some(over) => Err(anyhow::anyhow!("{}", over.text())),
            None => select::broker_url(args.broker.as_deref(), Some(&folder)),
        };
        let bus = match url {
            Ok(url) => select::connect(&url, "status").await,
            Err(error) => Err(error),
        };
        let (mut live, offline) = match bus {
            Ok(bus) => (Some(Listener::open(bus, &folder).await?), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        loop {
            let status = Status {
                run: folder.run().to_string(),
                live: match &mut live {
                    Some(live) => Some(live.hear(&config).await),
                    None => None,
                },
                over: over.as_ref().map(|over| over.text().to_owned()),
                offline: offline.clone(),
                metrics: last_metrics(&folder)?,
            };
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
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
}

#[cfg(test)]
mod tests {
    use broker::bus::memory::MemoryBus;
    use broker::bus::{Bus, Outgoing, heard};
    use broker::codec;
    use broker::ids::WeightVersion;
    use broker::protocol::Kind;
    use broker::protocol::control::{Beat, CoordinatorBeat, Heartbeat, RunPhase, RunState};
    use broker::topology::Topology;

    use super::*;
    use crate::run_folder::RunFolder;
    use crate::run_folder::metrics::{Metrics, MetricsWriter};
    use crate::run_folder::tests::config_in;

    fn beat(agent: &str) -> Heartbeat {
        Heartbeat {
            agent: broker::AgentName::new(agent).unwrap(),
            incarnation: "x".into(),
            seq: 1,
            phase: RunPhase::Running,
            version: WeightVersion { lineage: 2, step: 40 },
            step: 40,
            capacity: 16,
            ready: 3,
            reserved: 13,
            closed: 100,
            serving: true,
            next_order: 0,
            run: RunState::default(),
            saved: None,
            holding: Vec::new(),
            reward: Some(0.5),
            pid: 1,
        }
    }

    #[tokio::test]
    async fn live_run_is_shown() {
        let base = tempfile::tempdir().unwrap();
        let config = config_in(base.path());
        let folder = RunFolder::create(base.path(), &config, None).unwrap();
        let agent = broker::AgentName::new("b").unwrap();
        let writer = MetricsWriter::open(&folder.metrics("b"), None).unwrap();
        writer.write(
            Metrics::train(&agent, 39)
                .with("reward/mean", 0.25)
                .with("staleness/mean", 0.5),
        );
        writer.write(Metrics::eval(20).with("success", 0.75));
        writer.flush();

        let bus = MemoryBus::new();
        let topology = Topology::new(folder.run().clone());
        bus.declare(&topology, &config.participants()).await.unwrap();
        let mut live = Listener::open(bus.clone(), &folder).await.unwrap();
        let coordinator = |turns: u64| {
            Beat::Coordinator(CoordinatorBeat {
                incarnation: "c1".into(),
                seq: turns,
                phase: RunPhase::Running,
                open_groups: 4,
                finished_groups: 5,
                finished_conversations: turns / 2,
                dead_tasks: 1,
                turns,
                run: RunState::default(),
                drained: false,
                snapshot: None,
                snapshot_done: None,
                hold: None,
                evaluates_at: None,
                evaluating: false,
                evaluated: None,
                stalled: None,
                pid: 2,
            })
        };
        for said in [Beat::Agent(beat("a")), coordinator(1000), coordinator(4000)] {
            let message = Outgoing {
                to: topology.to_control(heard::speaker(&said)),
                kind: Kind::Heartbeat,
                message_id: "h".into(),
                correlation_id: None,
                headers: vec![],
                body: codec::encode_json(&said).into(),
                durable: false,
            };
            bus.publish(message).await.unwrap();
        }
        let status = Status {
            run: folder.run().to_string(),
            live: Some(live.hear(&config).await),
            over: None,
            offline: None,
            metrics: last_metrics(&folder).unwrap(),
        };
        let text = render::status::render(&status, 400);
        let line = |start: &str| {
            text.lines()
                .find(|line| line.starts_with(start))
                .unwrap_or_default()
                .to_owned()
        };
        let words = |start: &str| line(start).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            words("a "),
            ["a", "running", "40/400", "2.40", "0.500", "-", "3", "13", "16"],
            "{text}"
        );
        assert_eq!(
            words("b "),
            ["b", "silent", "39/400", "-", "0.250", "0.500", "-", "-", "-"],
            "{text}"
        );
        assert!(line("coordinator c1").contains("4000 turns, 1 tasks dead"), "{text}");
        assert!(status.live.as_ref().unwrap().turns_per_s.unwrap() > 0.0);
        assert!(
            text.ends_with("queues: all empty\nevaluated at step 20: success 0.750\n"),
            "{text}"
        );
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["live"]["agents"]["a"]["ready"], 3);
    }

    #[test]
    fn ended_run_is_shown_without_blame() {
        let status = Status {
            run: "r-1".into(),
            over: Some("run r-1 ended at T: run.train_steps reached at step 3".into()),
            offline: Some("run r-1 ended at T: run.train_steps reached at step 3".into()),
            ..Status::default()
        };
        let text = render::status::render(&status, 3);
        assert!(text.contains("run.train_steps reached at step 3"), "{text}");
        assert!(!text.contains("no live state"), "{text}");
    }
}

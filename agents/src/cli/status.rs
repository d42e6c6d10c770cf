//! `dyad status`: how a run stands, from its processes' heartbeats, its queues and its metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::bus::{Bus, Consumer, heard};
use broker::protocol::control::{Beat, CoordinatorBeat, Heartbeat};
use broker::topology::Topology;
use clap::Args;
use configs::RunConfig;
use serde::Serialize;
use serde_json::{Map, Value};

use super::select::{self, RunArg};
use crate::run_folder::RunFolder;
use crate::run_folder::logs::{printable, read_json_lines};

/// Heartbeats come at least each second: after this, who was not heard is silent.
const LISTEN: Duration = Duration::from_millis(2200);

/// Show agents, weights, rewards, rates and queues
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Again every two seconds
    #[arg(long, short, conflicts_with = "json")]
    pub watch: bool,
    /// As one JSON object
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
    select::block_on(async {
        let bus = match select::broker_url(args.broker.as_deref(), Some(&folder)) {
            Ok(url) => select::connect(&url, "status").await,
            Err(error) => Err(error),
        };
        let (mut live, offline) = match bus {
            Ok(bus) => (Some(Live::open(bus, &folder).await?), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        loop {
            let status = Status {
                run: folder.run().to_string(),
                live: match &mut live {
                    Some(live) => Some(live.hear(&config).await),
                    None => None,
                },
                offline: offline.clone(),
                metrics: last_metrics(&folder)?,
            };
            if args.json {
                println!("{}", serde_json::to_string_pretty(&status)?);
                return Ok(());
            }
            if args.watch {
                // Home, and clear from there: no flicker.
                print!("\x1b[H\x1b[J");
            }
            print!("{}", printable(&status.render(config.run.train_steps)));
            if !args.watch {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
}

/// What `dyad status` knows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Status {
    pub run: String,
    /// What was heard from the run itself; none if its broker cannot be reached.
    pub live: Option<Heard>,
    /// Why nothing was heard.
    pub offline: Option<String>,
    pub metrics: LastMetrics,
}

/// What the processes say of themselves.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Heard {
    pub agents: BTreeMap<String, Heartbeat>,
    pub coordinators: BTreeMap<String, CoordinatorBeat>,
    /// Turns and conversations of all coordinators in each second.
    pub turns_per_s: Option<f64>,
    pub conversations_per_s: Option<f64>,
    /// Messages ready, by queue.
    pub queues: BTreeMap<String, u64>,
}

/// The newest lines of the metrics files.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LastMetrics {
    pub train: BTreeMap<String, Map<String, Value>>,
    pub eval: Option<Map<String, Value>>,
}

/// What a coordinator had done when it was heard.
#[derive(Debug, Clone, Copy)]
struct Totals {
    at: Instant,
    turns: u64,
    conversations: u64,
}

/// A listener to a run.
struct Live {
    bus: Arc<dyn Bus>,
    topology: Topology,
    beats: Box<dyn Consumer>,
    heard: Heard,
    /// By coordinator: its totals when it was first heard since rates were shown last, and now.
    totals: BTreeMap<String, (Totals, Totals)>,
}

impl Live {
    async fn open(bus: Arc<dyn Bus>, folder: &RunFolder) -> anyhow::Result<Self> {
        let topology = Topology::new(folder.run().clone());
        let queue = topology.control(&format!("status-{}", std::process::id()));
        bus.declare_queue(&queue).await?;
        let beats = bus.consume(&queue, 256).await?;
        Ok(Self {
            bus,
            topology,
            beats,
            heard: Heard::default(),
            totals: BTreeMap::new(),
        })
    }

    async fn hear(&mut self, config: &RunConfig) -> Heard {
        self.heard.agents.clear();
        self.heard.coordinators.clear();
        let until = tokio::time::Instant::now() + LISTEN;
        while let Ok(Some(delivery)) = tokio::time::timeout_at(until, self.beats.next()).await {
            delivery.ack().await;
            match heard::beat(&self.topology, &delivery) {
                Ok(Beat::Agent(beat)) => {
                    self.heard.agents.insert(beat.agent.to_string(), beat);
                }
                Ok(Beat::Coordinator(beat)) => {
                    self.count(&beat);
                    self.heard.coordinators.insert(beat.incarnation.clone(), beat);
                }
                Err(_) => {}
            }
        }
        self.rates();
        let agents: Vec<_> = config.agents.keys().cloned().collect();
        for queue in self.topology.durable_queues(&agents) {
            if let Some(depth) = self.bus.depth(&queue).await {
                self.heard.queues.insert(queue.name, depth);
            }
        }
        self.heard.clone()
    }

    fn count(&mut self, beat: &CoordinatorBeat) {
        let now = Totals {
            at: Instant::now(),
            turns: beat.turns,
            conversations: beat.finished_conversations,
        };
        let seen = self.totals.entry(beat.incarnation.clone()).or_insert((now, now));
        seen.1 = now;
    }

    /// Rates between the first and the last beat of each coordinator; none while each was heard once.
    fn rates(&mut self) {
        let (mut turns, mut conversations) = (None, None);
        for (first, last) in self.totals.values_mut() {
            let seconds = (last.at - first.at).as_secs_f64();
            if seconds > 0.0 {
                *turns.get_or_insert(0.0) += last.turns.saturating_sub(first.turns) as f64 / seconds;
                let ended = last.conversations.saturating_sub(first.conversations);
                *conversations.get_or_insert(0.0) += ended as f64 / seconds;
                *first = *last;
            }
        }
        (self.heard.turns_per_s, self.heard.conversations_per_s) = (turns, conversations);
    }
}

/// The newest `train` line of each agent and the newest `eval` line.
pub fn last_metrics(folder: &RunFolder) -> anyhow::Result<LastMetrics> {
    let mut last = LastMetrics::default();
    for path in folder.files("metrics")? {
        for line in read_json_lines::<Map<String, Value>>(&path)? {
            let step = |line: &Map<String, Value>| line.get("step").and_then(Value::as_u64);
            match line.get("kind").and_then(Value::as_str) {
                Some("train") => {
                    let agent = line.get("agent").and_then(Value::as_str).unwrap_or_default().to_owned();
                    last.train.insert(agent, line);
                }
                Some("eval") if last.eval.as_ref().is_none_or(|eval| step(eval) <= step(&line)) => {
                    last.eval = Some(line)
                }
                _ => {}
            }
        }
    }
    Ok(last)
}

impl Status {
    /// A page of text; `steps` is where the run ends.
    #[must_use]
    pub fn render(&self, steps: u64) -> String {
        use std::fmt::Write;
        let mut text = format!("{}\n", self.run);
        if let Some(reason) = &self.offline {
            let _ = writeln!(text, "not heard: {reason}\nwhat follows is from its folder");
        }
        text.push_str(&self.agents(steps));
        if let Some(heard) = &self.live {
            text.push_str(&heard.render());
        }
        if let Some(eval) = &self.metrics.eval {
            let shown: Vec<String> = eval
                .iter()
                .filter(|(name, _)| !["kind", "step"].contains(&name.as_str()) && !name.starts_with("time/"))
                .filter_map(|(name, value)| Some(format!("{name} {:.3}", value.as_f64()?)))
                .collect();
            let step = eval.get("step").and_then(Value::as_u64).unwrap_or(0);
            let _ = writeln!(text, "evaluated at step {step}: {}", shown.join("  "));
        }
        text
    }

    fn agents(&self, steps: u64) -> String {
        use std::fmt::Write;
        let empty = BTreeMap::new();
        let beats = self.live.as_ref().map_or(&empty, |heard| &heard.agents);
        let mut names: Vec<&String> = beats.keys().chain(self.metrics.train.keys()).collect();
        names.sort();
        names.dedup();
        let mut text = format!(
            "\n{:<14}{:<10}{:>12}{:>10}{:>9}{:>11}{:>7}{:>10}{:>10}\n",
            "agent", "phase", "step", "weights", "reward", "staleness", "ready", "reserved", "capacity"
        );
        for name in names {
            let metric = |key: &str| {
                self.metrics
                    .train
                    .get(name)
                    .and_then(|line| line.get(key))
                    .and_then(Value::as_f64)
            };
            let beat = beats.get(name);
            let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
            let step = beat
                .map(|beat| beat.step)
                .or(metric("step").map(|step| step as u64))
                .unwrap_or(0);
            let of_beat = |value: fn(&Heartbeat) -> String| beat.map_or_else(|| "-".to_owned(), value);
            let phase = match beat {
                Some(beat) if !beat.holding.is_empty() => "holding".into(),
                Some(beat) => format!("{:?}", beat.phase).to_lowercase(),
                None if self.live.is_some() => "silent".into(),
                None => "-".into(),
            };
            let _ = writeln!(
                text,
                "{name:<14}{phase:<10}{:>12}{:>10}{:>9}{:>11}{:>7}{:>10}{:>10}",
                format!("{step}/{steps}"),
                of_beat(|beat| beat.version.to_string()),
                shown(beat.and_then(|beat| beat.reward).or(metric("reward/mean"))),
                shown(metric("staleness/mean")),
                of_beat(|beat| beat.ready.to_string()),
                of_beat(|beat| beat.reserved.to_string()),
                of_beat(|beat| beat.capacity.to_string()),
            );
        }
        text.push('\n');
        text
    }
}

impl Heard {
    fn render(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for (name, beat) in &self.coordinators {
            let _ = writeln!(
                text,
                "coordinator {name}  {:?}  {} groups open, {} done, {} conversations, {} turns, {} tasks dead",
                beat.phase,
                beat.open_groups,
                beat.finished_groups,
                beat.finished_conversations,
                beat.turns,
                beat.dead_tasks
            );
        }
        if self.coordinators.is_empty() {
            text.push_str("no coordinator was heard\n");
        }
        if let (Some(turns), Some(conversations)) = (self.turns_per_s, self.conversations_per_s) {
            let _ = writeln!(text, "{turns:.0} turns/s, {conversations:.0} conversations/s");
        }
        let waiting: Vec<String> = self
            .queues
            .iter()
            .filter(|(_, depth)| **depth > 0)
            .map(|(queue, depth)| format!("{queue} {depth}"))
            .collect();
        let waiting = if waiting.is_empty() {
            "all empty".into()
        } else {
            waiting.join(", ")
        };
        let _ = writeln!(text, "queues: {waiting}");
        text
    }
}

#[cfg(test)]
mod tests {
    use broker::bus::Outgoing;
    use broker::bus::memory::MemoryBus;
    use broker::codec;
    use broker::ids::WeightVersion;
    use broker::protocol::Kind;
    use broker::protocol::control::{RunPhase, RunState};

    use super::*;
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
    async fn a_live_run_is_heard() {
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
        let mut live = Live::open(bus.clone(), &folder).await.unwrap();
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
            offline: None,
            metrics: last_metrics(&folder).unwrap(),
        };
        let text = status.render(400);
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
}

//! What the processes of a simulated run share: configuration, folder, broker and store.

use std::path::Path;
use std::sync::Arc;

use broker::bus::Outgoing;
use broker::bus::letter::HEADER_REASON;
use broker::bus::memory::MemoryBus;
use broker::bus::{Bus, Delivery};
use broker::ids::RunId;
use broker::protocol::Kind;
use broker::topology::{Queue, Topology};
use bytes::Bytes;
use configs::RunConfig;
use futures_util::FutureExt;
use rollout::text::TextCodec;
use rollout::workflow::Workflow;

use super::chance::Chance;
use super::store::SimStore;
use crate::run_folder::RunFolder;

/// Conversations of a group.
pub(super) const GROUP: u64 = 3;

const CONFIG: &str = r#"
    [run]
    name = "sim"
    mode = "async"
    train_steps = 1000000
    lease = "2s"
    message_cap = "16 KiB"
    transcripts = "none"
    [tasks]
    source = "queue"
    [workflow]
    kind = "signal"
    group_size = 3
    roles = { speaker = "a", listener = "b" }
    [defaults.agent.model.random]
    layers = 1
    hidden = 16
    heads = 2
    tokenizer = "bytes"
    [defaults.agent.train]
    batch_groups = 4
    [agents.a]
    [agents.b]
"#;

/// What is dear to make and the same for every schedule.
pub(super) struct Base {
    config: Arc<RunConfig>,
    workflow: Arc<dyn Workflow>,
    text: Arc<TextCodec>,
    folder: RunFolder,
}

impl Base {
    pub(super) fn new(home: &Path) -> Self {
        Self::with_group(home, GROUP as u16)
    }

    /// With so many conversations in a group.
    pub(super) fn with_group(home: &Path, size: u16) -> Self {
        let mut config = RunConfig::parse(CONFIG, Path::new("sim.toml")).unwrap();
        config.run.folder = home.into();
        config.workflow.group_size = size;
        // Less than a checked configuration may have: bundles of three samples then travel in several parts.
        config.run.message_cap.0 = (4 << 10) + 400;
        rollout::text::make::write_tokenizer(home, &configs::TokenizerConfig::Bytes).unwrap();
        let run = RunId::new("sim").unwrap();
        Self {
            workflow: rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap(),
            text: Arc::new(TextCodec::open(home).unwrap()),
            folder: RunFolder::open_or_create(home, &config, run).unwrap(),
            config: Arc::new(config),
        }
    }

    /// A run of which nothing is on disk yet.
    pub(super) fn run(&self, seed: u64) -> Run {
        for part in ["buffer", "strikes", "metrics", "refused"] {
            let part = self.folder.path().join(part);
            let _ = std::fs::remove_dir_all(&part);
            std::fs::create_dir_all(&part).unwrap();
        }
        let chance = Chance::new(seed);
        let topology = Topology::new(self.folder.run().clone());
        let server = MemoryBus::new();
        server
            .declare(&topology, &self.config.participants())
            .now_or_never()
            .expect("the bus in memory declares at once")
            .unwrap();
        Run {
            store: SimStore::new(chance.clone()),
            config: self.config.clone(),
            workflow: self.workflow.clone(),
            text: self.text.clone(),
            folder: self.folder.clone(),
            topology,
            server,
            chance,
        }
    }
}

#[derive(Clone)]
pub(super) struct Run {
    pub config: Arc<RunConfig>,
    pub workflow: Arc<dyn Workflow>,
    pub text: Arc<TextCodec>,
    pub folder: RunFolder,
    pub topology: Topology,
    /// The broker, which outlives every connection.
    pub server: Arc<MemoryBus>,
    pub store: Arc<SimStore>,
    pub chance: Chance,
}

pub(super) fn task(n: u64) -> String {
    format!("task-{n}")
}

impl Run {
    /// As a publisher does, who is told that it is in the queue.
    pub(super) fn publish(&self, n: u64) {
        let id = task(n);
        let message = Outgoing {
            to: self.topology.to(&self.topology.tasks()),
            kind: Kind::Task,
            message_id: id.clone(),
            correlation_id: None,
            headers: Vec::new(),
            body: format!(r#"{{"id": "{id}", "prompt": "o{n}", "label": "o{n}"}}"#).into(),
            durable: true,
        };
        let published = self.server.publish(message).now_or_never();
        published.expect("the bus in memory takes it at once").unwrap();
    }

    /// Message ids in a queue that nobody listens to, each with its reason if it is a dead letter.
    pub(super) fn look_into(&self, queue: &Queue) -> Vec<(String, String)> {
        let named = |delivery: Delivery| {
            let reason = delivery.header(HEADER_REASON).unwrap_or_default().to_owned();
            (delivery.message_id.unwrap_or_default(), reason)
        };
        self.lying_in(queue).into_iter().map(named).collect()
    }

    /// What the messages of such a queue say.
    pub(super) fn bodies(&self, queue: &Queue) -> Vec<Bytes> {
        self.lying_in(queue).into_iter().map(|delivery| delivery.body).collect()
    }

    /// The messages stay where they are.
    fn lying_in(&self, queue: &Queue) -> Vec<Delivery> {
        let consumer = self.server.consume(queue, u16::MAX).now_or_never();
        let mut consumer = consumer.expect("the bus in memory answers at once").unwrap();
        std::iter::from_fn(|| consumer.next().now_or_never().flatten()).collect()
    }

    /// Messages that wait in a queue and are not taken.
    pub(super) fn sent(&self, queue: &Queue) -> u64 {
        self.server.depth(queue).now_or_never().flatten().unwrap_or_default()
    }
}

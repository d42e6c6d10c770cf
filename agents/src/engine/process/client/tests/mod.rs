//! An engine process and its agent, both in this process.

mod requests;
mod sessions;
mod weights;

use std::net::SocketAddr;
use std::path::Path;

use broker::ids::GroupId;
use configs::{EngineKind, RunConfig};
use tokio::sync::mpsc::UnboundedReceiver;
use trainer::engine::{Engine, EngineOptions};
use trainer::weights::Published;

use super::*;
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::process::server;
use crate::engine::process::server::ServingEngine;
use crate::policy;
use crate::run_folder::tests::config_in;
use crate::testing::{self, version};

/// An agent with an engine process, both in this process, over real connections.
struct Scene {
    config: RunConfig,
    agent: AgentName,
    prepared: Prepared,
    sent: Option<SentWeights>,
    _folder: tempfile::TempDir,
}

fn scene() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config_in(folder.path());
    let agent = config.agents.keys().next().unwrap().clone();
    let settings = config.agents.get_mut(&agent).unwrap();
    settings.engine.kind = EngineKind::Dyad;
    let prepared = open(&config, &agent, folder.path());
    Scene {
        config,
        agent,
        prepared,
        sent: None,
        _folder: folder,
    }
}

fn open(config: &RunConfig, agent: &AgentName, folder: &Path) -> Prepared {
    let settings = config.agents[agent].clone();
    let configs::ModelConfig::Random(random) = &settings.model else {
        panic!("the test's model is random");
    };
    let path = folder.join("model");
    policy::make(random, &path, agent, 1, agent).unwrap();
    policy::open(path, settings, 1).unwrap()
}

impl Scene {
    async fn engine(&self, address: &str) -> ServingEngine {
        let address: SocketAddr = address.parse().unwrap();
        server::start(&self.config, &self.agent, address).await.unwrap()
    }

    fn agent(&mut self, run: &str, at: &[SocketAddr]) -> (Arc<dyn EngineClient>, Box<dyn WeightSink>) {
        self.agent_with(run, at, false, Arc::default())
    }

    fn agent_with(
        &mut self,
        run: &str,
        at: &[SocketAddr],
        frozen: bool,
        shelf: Arc<Shelf>,
    ) -> (Arc<dyn EngineClient>, Box<dyn WeightSink>) {
        if frozen {
            self.prepared.renew(self.prepared.served().unwrap());
        }
        self.prepared.settings.engine.urls = at.iter().map(|address| format!("http://{address}")).collect();
        let work = Work {
            frozen,
            waves: false,
            sent: self.sent.clone(),
        };
        start_on(shelf, &self.agent, &RunId::new(run).unwrap(), &self.prepared, work).unwrap()
    }

    /// Returns a trainer's copy of the weights.
    fn trained(&self) -> trainer::model::Weights {
        let weights = self.prepared.served().unwrap();
        weights.copied_to(self.prepared.device, configs::Dtype::F32).unwrap()
    }

    fn embedded(&self) -> Arc<EmbeddedEngine> {
        let options = EngineOptions::from(&self.prepared.settings);
        let weights = self.prepared.served().unwrap();
        let engine = Engine::new(&self.prepared.shape, Published::new(weights, version(1)), options).unwrap();
        EmbeddedEngine::start("test", engine, version(1), self.prepared.text.clone()).unwrap()
    }
}

fn job(id: u8, tokens: u32) -> GenerationJob {
    GenerationJob {
        group: GroupId([id / 4; 16]),
        ..testing::job(id, &[u32::from(id / 4) + 40; 3], tokens)
    }
}

type Said = (u8, Vec<u32>, Vec<u32>, Vec<WeightVersion>);

/// Returns `count` answers: ids, the bits of log-probs, versions.
async fn answers(finished: &mut UnboundedReceiver<Vec<Finished>>, count: usize) -> Vec<Said> {
    let mut said = Vec::new();
    while said.len() < count {
        for one in finished.recv().await.unwrap() {
            let made = one.result.unwrap();
            assert!(
                made.times.is_some_and(|times| !times.prompt.is_zero()),
                "{:?}",
                made.times
            );
            let bits = made.logprobs.iter().map(|value| value.to_bits()).collect();
            let versions = made.spans.iter().map(|span| span.version).collect();
            said.push((one.job.request.0[0], made.output_ids, bits, versions));
        }
    }
    said.sort();
    said
}

async fn play(engine: &dyn EngineClient, jobs: Vec<GenerationJob>, wave: bool) -> Vec<Said> {
    let (done, mut finished) = unbounded_channel();
    let count = jobs.len();
    engine.submit(jobs, wave, done);
    answers(&mut finished, count).await
}

async fn serves(engine: &dyn EngineClient, wanted: WeightVersion) {
    let mut versions = engine.versions();
    versions.wait_for(|version| *version == wanted).await.unwrap();
}

fn wave() -> Vec<GenerationJob> {
    (0..12).map(|id| job(id, 5)).collect()
}

async fn health(serving: &ServingEngine) -> serde_json::Value {
    let url = format!("http://{}/health", serving.address);
    let answer = link::ask(&Secret::default(), link::client(Some(SILENCE)).unwrap().get(&url), &url)
        .await
        .unwrap();
    serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
}

async fn until(so: impl AsyncFn() -> bool) {
    while !so().await {
        tokio::task::yield_now().await;
    }
}

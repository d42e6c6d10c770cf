//! Tests of both drivers against fake servers with the documented interfaces.

mod answers;
mod front;
mod run;
mod swaps;
mod troubles;
mod visits;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use broker::ids::GroupId;
use broker::protocol::turn::Sampling;
use configs::{EngineKind, RandomModel, TokenizerConfig};
use rollout::text::TextCodec;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use trainer::model::{Init, LoraShape, ModelShape, Module, Weights, peft};
use trainer::weights::disk::Written;

use super::driver::Settings;
use super::fake::{Fake, Model};
use super::fleet::Fleet;
use super::http::Http;
use super::server::{Server, ServerCall};
use super::{Pace, sglang, vllm};
use crate::engine::process::link::Secret;
use crate::engine::{EngineClient, EngineFailure, Finished, GenerationJob, GenerationOutput};
use crate::testing::{self, sampling, version};

const KINDS: [EngineKind; 2] = [EngineKind::Sglang, EngineKind::Vllm];
/// Tokens of a prompt and its answer.
const CONTEXT: usize = 48;

pub(in crate::engine::foreign) fn ask() -> ServerCall {
    ServerCall {
        id: "x".into(),
        prompt: vec![1, 2],
        sampling: Arc::new(Sampling {
            stop: vec!["END".into()],
            ..sampling(3)
        }),
        max_new_tokens: 3,
        seed: u64::MAX,
        stop_ids: [9].into(),
        adapter: None,
        top: 0,
    }
}

/// Folders of models that differ only in their weights: servers are started with version 0.
struct Home {
    home: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let this = Self { home };
        for step in 0..4 {
            this.make(step);
        }
        this
    }

    fn folder(&self, step: u64) -> PathBuf {
        self.home.path().join(format!("1-{step}"))
    }

    fn make(&self, step: u64) {
        let folder = self.folder(step);
        std::fs::create_dir(&folder).unwrap();
        rollout::text::make::write_tokenizer(&folder, &TokenizerConfig::Bytes).unwrap();
        let shape = self.shape(&folder);
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.3,
        };
        Weights::random(&shape, init, step + 1)
            .unwrap()
            .save(&shape, &folder)
            .unwrap();
    }

    fn shape(&self, folder: &Path) -> ModelShape {
        let random = RandomModel {
            layers: 1,
            hidden: 16,
            heads: 2,
            kv_heads: None,
            head_dim: None,
            intermediate: None,
            tied: false,
            max_context: CONTEXT,
            tokenizer: TokenizerConfig::Bytes,
            embedding_std: 1.0,
            matrix_std: 0.3,
            rope_theta: None,
        };
        let text = TextCodec::open(folder).unwrap();
        ModelShape::from_random(&random, text.vocab_size(), &text.stop_ids()).unwrap()
    }

    fn text(&self) -> Arc<TextCodec> {
        Arc::new(TextCodec::open(&self.folder(0)).unwrap())
    }

    /// Returns the weights in [`Self::folder`].
    fn weights(&self, step: u64) -> Weights {
        let folder = self.folder(step);
        Weights::load(&self.shape(&folder), &folder).unwrap()
    }

    fn written(&self, step: u64) -> Written {
        Written {
            version: version(step),
            folder: self.folder(step),
            adapter: false,
            digest: self.weights(step).digest().unwrap(),
        }
    }

    fn adapter(&self, step: u64) -> Written {
        let folder = self.home.path().join(format!("adapter-{step}"));
        let adapter = self.adapter_weights(step);
        peft::save(&folder, &adapter, "base").unwrap();
        Written {
            version: version(step),
            folder,
            adapter: true,
            digest: adapter.digest().unwrap(),
        }
    }

    /// Returns an adapter that changes version 0's model.
    fn adapter_weights(&self, step: u64) -> Weights {
        let lora = LoraShape {
            rank: 2,
            alpha: 8.0,
            targets: [Module::Query, Module::Value, Module::Up].into_iter().collect(),
        };
        let adapter = Weights::adapter(&self.shape(&self.folder(0)), &lora, step).unwrap();
        for spec in adapter
            .params()
            .iter()
            .filter(|spec| spec.name.ends_with("lora_B.weight"))
        {
            let _ = adapter.view(&spec.name).unwrap().fill_(0.1 * (step + 1) as f64);
        }
        adapter
    }

    fn settings(&self) -> Settings {
        let text = self.text();
        Settings {
            vocab: text.vocab_size(),
            max_context: CONTEXT,
            max_new_tokens: 8,
            trained_temperature: Some(1.0),
            stop_ids: text.stop_ids().into(),
            ends: text.stop_ids().into(),
            probes: vec![vec![65, 66], vec![67], vec![68, 69]],
            drains: false,
            slots: 8,
            stuck_after: Duration::ZERO,
            pace: Pace {
                look: Duration::from_millis(20),
                patience: Duration::from_secs(20),
                pause: Duration::from_millis(1),
            },
        }
    }
}

fn client(fake: &Fake, kind: EngineKind, key: Option<&str>) -> Arc<dyn Server> {
    let secret = key.map_or_else(Secret::default, |key| Secret::new(key).unwrap());
    let http = Http::new(&fake.url(), secret).unwrap();
    match kind {
        EngineKind::Vllm => Arc::new(vllm::Vllm::new(http)),
        _ => Arc::new(sglang::Sglang::new(http)),
    }
}

/// Fake servers with their fleet.
struct Bench {
    home: Home,
    fakes: Vec<Arc<Fake>>,
    fleet: Arc<Fleet>,
}

impl Bench {
    async fn new(kind: EngineKind) -> Self {
        Self::with(kind, 1, |_| {}).await
    }

    async fn with(kind: EngineKind, servers: usize, change: impl FnOnce(&mut Settings)) -> Self {
        let home = Home::new();
        let fakes: Vec<_> = (0..servers).map(|_| Fake::start(kind, &home.folder(0))).collect();
        let clients = fakes.iter().map(|fake| client(fake, kind, None)).collect();
        let mut settings = home.settings();
        change(&mut settings);
        let fleet = Fleet::start(clients, settings, home.text(), None).await.unwrap();
        Self { home, fakes, fleet }
    }

    fn fake(&self) -> &Fake {
        &self.fakes[0]
    }

    fn announce(&self, step: u64) {
        self.fleet.announce(self.home.written(step), format!("label-1.{step}"));
    }

    /// Announces weights and waits until they are served.
    async fn serve(&self, step: u64) {
        self.announce(step);
        self.until_serving(step).await;
    }

    async fn until_serving(&self, step: u64) {
        let mut versions = self.fleet.versions();
        versions.wait_for(|serving| *serving == version(step)).await.unwrap();
        // This was true before any weights were served.
        let mut news = self.fleet.news();
        while self.fleet.serving() != Some(version(step)) {
            news.changed().await.unwrap();
        }
    }

    fn submit(&self, jobs: Vec<GenerationJob>) -> UnboundedReceiver<Vec<Finished>> {
        let (done, finished) = unbounded_channel();
        self.fleet.submit(jobs, false, done);
        finished
    }

    async fn make(&self, job: GenerationJob) -> Result<GenerationOutput, EngineFailure> {
        self.submit(vec![job]).recv().await.unwrap().remove(0).result
    }

    /// Compares each log-prob with the weights of its token's version.
    fn check(&self, job: &GenerationJob, made: &GenerationOutput) {
        let mut at = 0;
        for span in &made.spans {
            assert_eq!(span.start, at, "{:?}", made.spans);
            at = span.end;
            let model = Model::open(&self.home.folder(span.version.step)).unwrap();
            self.check_span(&model, job, made, span.start as usize..span.end as usize);
        }
        assert_eq!(
            (at as usize, made.logprobs.len()),
            (made.output_ids.len(), made.output_ids.len())
        );
    }

    fn check_span(&self, model: &Model, job: &GenerationJob, made: &GenerationOutput, places: std::ops::Range<usize>) {
        for place in places {
            let context: Vec<u32> = job
                .prompt_ids
                .iter()
                .chain(&made.output_ids[..place])
                .copied()
                .collect();
            let expected = model.logprobs(&context, job.sampling.temperature)[made.output_ids[place] as usize];
            let gap = (made.logprobs[place] - expected).abs();
            assert!(gap < 1e-4, "token {place}: {} and {expected}", made.logprobs[place]);
        }
    }
}

fn job(id: u8, max_new_tokens: u32) -> GenerationJob {
    GenerationJob {
        group: GroupId([id / 4; 16]),
        member: id.into(),
        seed: 1_000_003 * u64::from(id + 1),
        ..testing::job(id, &[72, 101, 108, 108, 111], max_new_tokens)
    }
}

/// Returns spans as (step, start, end).
fn spans(made: &GenerationOutput) -> Vec<(u64, u32, u32)> {
    made.spans
        .iter()
        .map(|span| (span.version.step, span.start, span.end))
        .collect()
}

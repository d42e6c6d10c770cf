use std::net::SocketAddr;
use std::path::Path;

use broker::ids::GroupId;
use broker::protocol::turn::Sampling;
use configs::{EngineKind, RunConfig};
use tokio::sync::mpsc::UnboundedReceiver;
use trainer::engine::{Engine, EngineOptions};
use trainer::transfer::OfferCounts;
use trainer::weights::Published;

use super::*;
use crate::base::ports::HeldPort;
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::process::server;
use crate::engine::process::server::ServingEngine;
use crate::policy;
use crate::run_folder::tests::config_in;

/// An agent with an engine process, both in this process, over real connections.
struct Scene {
    config: RunConfig,
    agent: AgentName,
    prepared: Prepared,
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
        self.prepared.settings.engine.urls = at.iter().map(|address| format!("http://{address}")).collect();
        let work = Work { frozen, waves: false };
        start_on(shelf, &self.agent, &RunId::new(run).unwrap(), &self.prepared, work).unwrap()
    }

    /// Returns a trainer's copy of the weights.
    fn trained(&self) -> trainer::model::Weights {
        let weights = self.prepared.weights().unwrap();
        weights.copied_to(self.prepared.device, configs::Dtype::F32).unwrap()
    }

    fn embedded(&self) -> Arc<EmbeddedEngine> {
        let options = EngineOptions::from(&self.prepared.settings.engine);
        let weights = self
            .prepared
            .weights()
            .unwrap()
            .copied_to(self.prepared.device, self.prepared.settings.dtype)
            .unwrap();
        let engine = Engine::new(&self.prepared.shape, Published::new(weights, version(1)), options).unwrap();
        EmbeddedEngine::start("test", engine, version(1), self.prepared.text.clone()).unwrap()
    }
}

fn version(step: u64) -> WeightVersion {
    WeightVersion { lineage: 1, step }
}

fn job(id: u8, tokens: u32) -> GenerationJob {
    GenerationJob {
        request: RequestId([id; 16]),
        group: GroupId([id / 4; 16]),
        member: 0,
        prompt_ids: vec![u32::from(id / 4) + 40; 3].into(),
        sampling: Arc::new(Sampling {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_new_tokens: tokens,
            max_context: None,
            stop: Vec::new(),
        }),
        seed: id.into(),
        keep: false,
    }
}

type Said = (u8, Vec<u32>, Vec<u32>, Vec<WeightVersion>);

/// Returns `count` answers: ids, the bits of log-probs, versions.
async fn answers(finished: &mut UnboundedReceiver<Vec<Finished>>, count: usize) -> Vec<Said> {
    let mut said = Vec::new();
    while said.len() < count {
        for one in finished.recv().await.unwrap() {
            let made = one.result.unwrap();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wave_has_the_same_bits_in_another_or_restarted_process() {
    let mut scene = scene();
    let expected = play(&*scene.embedded(), wave(), true).await;
    let held = HeldPort::new();
    let address = held.address().to_string();
    let serving = scene.engine(&address).await;
    let (engine, mut sink) = scene.agent("r-1", &[serving.address]);
    // Asked before there are any weights: it waits.
    let (done, mut finished) = unbounded_channel();
    engine.submit(wave(), true, done.clone());
    sink.publish(scene.prepared.weights().unwrap(), version(1)).unwrap();
    assert_eq!(answers(&mut finished, 12).await, expected);
    serves(&*engine, version(1)).await;
    serving.close().await;
    drop(serving);
    engine.submit(wave(), true, done);
    let again = scene.engine(&address).await;
    assert_eq!(
        answers(&mut finished, 12).await,
        expected,
        "the new engine has only the fetched weights"
    );
    again.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_weights_arrive_by_delta_and_late_ones_are_ignored() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let shelf: Arc<Shelf> = Arc::default();
    let (engine, mut sink) = scene.agent_with("r-1", &[serving.address], false, shelf.clone());
    let trained = scene.trained();
    for step in 1..4 {
        let _ = trained.flat().narrow(0, 5, 1).fill_(step as f64);
        sink.publish(&trained, version(step)).unwrap();
        serves(&*engine, version(step)).await;
        let said = play(&*engine, vec![job(1, 3)], false).await;
        assert!(said[0].3.iter().all(|made| *made == version(step)));
    }
    sink.publish(&trained, version(3)).unwrap();
    assert!(sink.publish(&trained, version(2)).is_err());
    assert_eq!(play(&*engine, vec![job(1, 3)], false).await[0].3[0], version(3));
    assert_eq!(shelf.offer_counts(), OfferCounts { whole: 1, deltas: 2 });
    serving.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pinned_engine_process_reuses_nothing_of_earlier_weights() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let (engine, mut sink) = scene.agent("r-1", &[serving.address]);
    // The oldest weights in its cache, and true if it started from kept values.
    let made = async |id: u8| {
        let (done, mut finished) = unbounded_channel();
        let long = GenerationJob {
            prompt_ids: vec![65; 60].into(),
            keep: true,
            ..job(id, 2)
        };
        engine.submit(vec![long], false, done);
        let made = finished.recv().await.unwrap().remove(0).result.unwrap();
        (made.oldest_kv, made.reused > 0)
    };
    let trained = scene.trained();
    let mut publish = async |step: u64| {
        let _ = trained.flat().narrow(0, 5, 1).fill_(step as f64);
        sink.publish(&trained, version(step)).unwrap();
        serves(&*engine, version(step)).await;
    };
    publish(1).await;
    assert_eq!(made(1).await, (version(1), false));
    assert_eq!(made(2).await, (version(1), true));
    publish(2).await;
    assert_eq!(made(3).await, (version(1), true), "as training has it");
    engine.pin(true);
    assert_eq!(made(4).await, (version(2), false));
    assert_eq!(
        made(5).await,
        (version(2), true),
        "values of the same weights are reused"
    );
    publish(3).await;
    assert_eq!(made(6).await, (version(3), false), "weights that arrive in between");
    engine.pin(false);
    // Weights and requests take different ways: an answer proves that the engine has the weights.
    assert_eq!(made(7).await, (version(3), true));
    publish(4).await;
    assert_eq!(made(8).await, (version(3), true));
    serving.close().await;
}

/// Happens for a restarted frozen agent, or after a repair of the ledger: the engine lives, and
/// holds the same version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_with_the_announced_weights_is_asked_at_once() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let (first, mut sink) = scene.agent("r-1", &[serving.address]);
    sink.publish(scene.prepared.weights().unwrap(), version(4)).unwrap();
    serves(&*first, version(4)).await;
    drop((first, sink));
    until(async || health(&serving).await["session"] == false).await;
    let shelf: Arc<Shelf> = Arc::default();
    let (again, mut sink) = scene.agent_with("r-1", &[serving.address], false, shelf.clone());
    // The session opens before the weights are there.
    until(async || health(&serving).await["session"] == true).await;
    sink.publish(scene.prepared.weights().unwrap(), version(4)).unwrap();
    assert_eq!(play(&*again, vec![job(1, 3)], false).await[0].3[0], version(4));
    assert_eq!(
        shelf.offer_counts(),
        OfferCounts { whole: 0, deltas: 0 },
        "nothing was fetched"
    );
    serving.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_with_later_or_other_weights_loads_its_agents() {
    for held in [version(9), version(4), WeightVersion { lineage: 7, step: 1 }] {
        let mut scene = scene();
        let serving = scene.engine("127.0.0.1:0").await;
        let (first, mut sink) = scene.agent("r-1", &[serving.address]);
        let other = scene.trained();
        let _ = other.flat().shallow_clone().fill_(0.01);
        sink.publish(&other, held).unwrap();
        serves(&*first, held).await;
        drop((first, sink));
        let (again, mut sink) = scene.agent("r-1", &[serving.address]);
        sink.publish(scene.prepared.weights().unwrap(), version(4)).unwrap();
        let said = play(&*again, wave(), true).await;
        assert!(said.iter().all(|one| one.3.iter().all(|made| *made == version(4))));
        let bits = |said: Vec<Said>| said.into_iter().map(|one| (one.1, one.2)).collect::<Vec<_>>();
        assert_eq!(bits(said), bits(play(&*scene.embedded(), wave(), true).await));
        serves(&*again, version(4)).await;
        // And continues from there.
        sink.publish(scene.prepared.weights().unwrap(), version(5)).unwrap();
        serves(&*again, version(5)).await;
        serving.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_agents_engine_gets_its_weights_after_failed_fetches() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let held = HeldPort::new();
    let weights = held.address();
    let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", door.local_addr().unwrap());
    // More failures than the engine's own retries.
    tokio::spawn(async move {
        for turn in 0.. {
            let (mut near, _) = door.accept().await.unwrap();
            if turn >= 6 {
                let mut far = tokio::net::TcpStream::connect(weights).await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
            }
        }
    });
    let settings = &mut scene.prepared.settings.engine;
    settings.weights_listen = weights.to_string();
    settings.weights_url = Some(url);
    let (engine, _sink) = scene.agent_with("r-1", &[serving.address], true, Arc::default());
    let mut refused = engine.refusals();
    let said = play(&*engine, vec![job(1, 3)], false).await;
    assert_eq!(said[0].3[0], WeightVersion::default());
    assert!(refused.borrow_and_update().is_some(), "the rejection was reported");
    serving.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_too_large_fails_and_the_session_continues() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let (engine, mut sink) = scene.agent("r-1", &[serving.address]);
    sink.publish(scene.prepared.weights().unwrap(), version(1)).unwrap();
    serves(&*engine, version(1)).await;
    let huge = GenerationJob {
        prompt_ids: vec![40; (broker::protocol::engine::LARGEST >> 2) + 1].into(),
        ..job(1, 3)
    };
    for wave in [false, true] {
        let (done, mut finished) = unbounded_channel();
        engine.submit(vec![job(2, 3), huge.clone(), job(3, 3)], wave, done);
        let failed = loop {
            let list = finished.recv().await.unwrap();
            if let Some(one) = list.into_iter().find(|one| one.job.request == huge.request) {
                break one.result.unwrap_err();
            }
        };
        assert!(!failed.retry && failed.cause.reason.contains("too large"), "{failed}");
    }
    assert_eq!(play(&*engine, vec![job(5, 3)], false).await.len(), 1);
    assert_eq!(
        play(&*engine, wave(), true).await.len(),
        12,
        "and the next wave is whole"
    );
    assert_eq!(health(&serving).await["session"], true);
    assert!(*engine.presence().borrow());
    serving.close().await;
}

async fn health(serving: &ServingEngine) -> serde_json::Value {
    let url = format!("http://{}/health", serving.address);
    let answer = link::ask(link::client(Some(SILENCE)).unwrap().get(&url), &url)
        .await
        .unwrap();
    serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
}

async fn until(so: impl AsyncFn() -> bool) {
    while !so().await {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn visits_stream_their_tokens_and_end_with_the_engine() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let (engine, mut sink) = scene.agent("r-1", &[serving.address]);
    let visit = |id: u8, tokens: u32| {
        let (updates, updated) = unbounded_channel();
        let visit = Visit {
            job: job(id, tokens),
            watched: true,
            top: 2,
            prompt_top: None,
            updates,
        };
        engine.visit(vec![visit]);
        updated
    };
    let mut early = visit(1, 3);
    let end = early.recv().await.unwrap().end.unwrap();
    assert!(end.unwrap_err().retry, "there are no weights yet");
    sink.publish(scene.prepared.weights().unwrap(), version(1)).unwrap();
    serves(&*engine, version(1)).await;
    let mut updated = visit(2, 4);
    let (mut ids, mut end) = (Vec::new(), None);
    while end.is_none() {
        let news = updated.recv().await.unwrap();
        assert_eq!(news.top.len(), news.ids.len());
        assert!(
            news.top
                .iter()
                .all(|place| place.len() == 2 && place[0].logprob >= place[1].logprob)
        );
        ids.extend(news.ids);
        end = news.end;
    }
    let alone = play(&*scene.embedded(), vec![job(2, 4)], false).await;
    assert_eq!(ids, alone[0].1);
    // Requests that its frames cannot carry fail instead of losing a part.
    assert!(!engine.scores_prompts());
    let (updates, mut updated) = unbounded_channel();
    engine.visit(vec![Visit {
        job: job(4, 1),
        watched: false,
        top: 0,
        prompt_top: Some(0),
        updates,
    }]);
    let end = updated.recv().await.unwrap().end.unwrap();
    assert!(end.is_err_and(|failure| !failure.retry));
    serving.close().await;
    let mut late = visit(3, 4);
    let end = loop {
        if let Some(end) = late.recv().await.unwrap().end {
            break end;
        }
    };
    assert!(end.is_err_and(|failure| failure.retry));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_serves_one_run_and_says_so() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let (first, mut sink) = scene.agent("r-1", &[serving.address]);
    sink.publish(scene.prepared.weights().unwrap(), version(9)).unwrap();
    serves(&*first, version(9)).await;
    let facts = model_match::facts(&scene.prepared.shape, &scene.prepared.text);
    let hello = |run: &str, agent: &str| Hello {
        schema: codec::SCHEMA,
        run: run.into(),
        agent: agent.into(),
        weights: "http://127.0.0.1:1".into(),
        model: facts.clone(),
    };
    let client = link::client(Some(SILENCE)).unwrap();
    let ask = async |hello: Hello| {
        let url = format!("http://{}/v1/session", serving.address);
        let request = client.post(&url).header("content-type", "application/json");
        let answer = link::ask(request.body(codec::encode_json(&hello)), &url).await;
        answer.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let agent = scene.agent.as_str();
    assert!(ask(hello("r-2", agent)).await.contains("r-1"));
    assert!(ask(hello("r-1", "other")).await.contains("engine of agent"));
    for theirs in [codec::SCHEMA - 1, codec::SCHEMA + 1] {
        let strange = Hello {
            schema: theirs,
            ..hello("r-1", agent)
        };
        let reason = ask(strange).await;
        let both = format!("schema {} and its agent {theirs}: run the same release", codec::SCHEMA);
        assert!(reason.contains(&both), "{reason}");
    }
    let outside = Hello {
        weights: "http://weights.example.org".into(),
        ..hello("r-1", agent)
    };
    assert!(ask(outside).await.contains("plaintext"));
    // With another rotary base or other tokens, names, shapes and values of the weights are the
    // same.
    for (name, value) in [
        ("rope_theta", "77.0"),
        ("stop ids", "[1]"),
        ("tokens", "others"),
        ("the beginning of an answer", "<think>"),
    ] {
        assert!(facts.contains_key(name), "{name} is compared");
        let mut other = hello("r-1", agent);
        other.model.insert(name.into(), value.into());
        let reason = ask(other).await;
        assert!(reason.contains(name) && reason.contains("model folder"), "{reason}");
    }
    // No rejected agent took the session.
    assert_eq!(play(&*first, vec![job(1, 3)], false).await.len(), 1);
    serving.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_token_gets_neither_weights_nor_work() {
    let scene = scene();
    let secret = Secret::new("0123456789abcdef").unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let serving = server::start_with(&scene.config, &scene.agent, address, secret.clone()).await;
    let serving = serving.unwrap();
    let weights = weight_server::serve(&scene.agent, &scene.prepared.settings.engine, &secret, Arc::default()).unwrap();
    let (engine, client) = (
        format!("http://{}", serving.address),
        link::client(Some(SILENCE)).unwrap(),
    );
    for request in [
        client.get(format!("{weights}/v1/weights")),
        client.get(format!("{engine}/health")),
        client.post(format!("{engine}/v1/session")),
        client.post(format!("{engine}/v1/commands")),
    ] {
        let other = Secret::new("0123456789abcdeX").unwrap();
        for wrong in [Secret::default(), other] {
            let answer = wrong.show(request.try_clone().unwrap()).send().await.unwrap();
            assert_eq!(answer.status(), 401);
        }
        let answer = secret.show(request).send().await.unwrap();
        assert_ne!(answer.status(), 401, "{answer:?}");
    }
    serving.close().await;
}

//! The router over a bus in memory and the scripted engine.

use broker::bus::memory::MemoryBus;
use broker::bus::{Acker, BusError, BusHealth, Consumer, Outgoing, PublishError};
use broker::codec;
use broker::ids::{Attempt, GroupId, RunId, WeightVersion};
use broker::protocol::Kind;
use broker::protocol::failure::FailureCode;
use broker::protocol::turn::{Finish, ResultFrame, Sampling, TurnOutcome, TurnPrompt};
use broker::topology::Queue;
use configs::ModelConfig;
use tokio::sync::watch;
use trainer::engine::{Engine, EngineOptions};
use trainer::model::{Init, ModelShape, Weights};
use trainer::weights::Published;

use super::*;
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::scripted::ScriptedEngine;
use crate::run_folder::RunFolder;
use crate::run_folder::tests::{config_in, thinking_in};
use rollout::text::TextCodec;

struct Bench {
    bus: Arc<MemoryBus>,
    topology: Topology,
    router: actix::Addr<Router>,
    asked: Box<dyn Consumer>,
    /// The rendered prompt of its requests: 1000 tokens by default.
    prompt: Arc<[u32]>,
    gave_up: watch::Receiver<Option<String>>,
    /// Deliveries taken, and those acked so far.
    taken: usize,
    acked: watch::Sender<usize>,
    /// The file with the crash marks.
    marks: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

fn agent() -> AgentName {
    AgentName::new("a").unwrap()
}

impl Bench {
    async fn new(limit: usize) -> Self {
        let engine = ScriptedEngine::new(vec![65, 66], WeightVersion { lineage: 1, step: 0 });
        Self::over(engine, limit).await
    }

    async fn over(engine: Arc<dyn EngineClient>, limit: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        rollout::text::make::write_tokenizer(folder.path(), &configs::TokenizerConfig::Bytes).unwrap();
        Self::of(folder, engine, limit).await
    }

    /// Uses the tokenizer in `folder`.
    async fn of(folder: tempfile::TempDir, engine: Arc<dyn EngineClient>, limit: usize) -> Self {
        let run = RunFolder::create(folder.path(), &config_in(folder.path()), None).unwrap();
        let strikes = Strikes::open(&run, "a").unwrap();
        let text = Arc::new(TextCodec::open(folder.path()).unwrap());
        let bus = MemoryBus::new();
        let topology = Topology::new(RunId::new("r").unwrap());
        bus.declare(&topology, &[agent()]).await.unwrap();
        for coordinator in ["old", "new"] {
            bus.declare_queue(&topology.results(coordinator)).await.unwrap();
        }
        let narrow = Arc::new(Narrow {
            bus: bus.clone(),
            limit,
        });
        let asked = bus.consume(&topology.turns(&agent()), 100).await.unwrap();
        let (report, gave_up) = watch::channel(None);
        Self {
            router: Router::new(agent(), topology.clone(), narrow, engine, text, report, strikes).start(),
            gave_up,
            bus,
            topology,
            asked,
            prompt: Arc::from([1; 1000]),
            taken: 0,
            acked: watch::Sender::new(0),
            marks: run.path().join("strikes/a.marks"),
            _folder: folder,
        }
    }

    async fn ask(&mut self, reply_to: &str, wave: Option<Wave>, members: &[u16]) {
        self.ask_by(sampling(), reply_to, wave, members).await;
    }

    /// Sends a frame like a coordinator, and takes it like the inbox.
    async fn ask_by(&mut self, sampling: Sampling, reply_to: &str, wave: Option<Wave>, members: &[u16]) {
        let frame = TurnFrame {
            reply_to: reply_to.into(),
            wave,
            prompts: vec![TurnPrompt {
                held: vec![1, 2, 3],
                sampled: 1,
                messages: Vec::new(),
            }],
            samplings: vec![sampling],
            requests: members.iter().map(|member| request(*member)).collect(),
        };
        let message = Outgoing {
            to: self.topology.to(&self.topology.turns(&agent())),
            kind: Kind::TurnRequest,
            message_id: reply_to.into(),
            correlation_id: None,
            headers: Vec::new(),
            body: codec::encode(&frame).into(),
            durable: true,
        };
        self.bus.publish(message).await.unwrap();
        let mut delivery = self.asked.next().await.unwrap();
        self.taken += 1;
        delivery.acker = Arc::new(Counted(delivery.acker, self.acked.clone()));
        let rendered = Rendered {
            ids: self.prompt.clone(),
            kept: 0,
        };
        let (frame, prompts) = (Box::new(frame), vec![Ok(rendered)]);
        let input = RouterMessage::Frame {
            frame,
            prompts,
            delivery,
        };
        self.router.send(input).await.unwrap();
    }

    /// The next results in a coordinator's queue.
    async fn answer(&self, coordinator: &str) -> ResultFrame {
        let mut results = self.bus.consume(&self.topology.results(coordinator), 1).await.unwrap();
        let delivery = results.next().await.unwrap();
        delivery.ack().await;
        codec::decode(&delivery.body).unwrap()
    }

    /// Checks that no request comes again when the agent is gone: each was acked.
    async fn nothing_comes_again(self) {
        let mut acked = self.acked.subscribe();
        let all = acked.wait_for(|acked| *acked == self.taken);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(20), all).await;
        assert!(waited.is_ok(), "{} of {} acked", *self.acked.borrow(), self.taken);
        drop(self.asked);
        assert_eq!(self.bus.depth(&self.topology.turns(&agent())).await, Some(0));
    }
}

/// Counts acks.
#[derive(Debug)]
struct Counted(Arc<dyn Acker>, watch::Sender<usize>);

#[async_trait::async_trait]
impl Acker for Counted {
    async fn ack(&self) -> bool {
        let acked = self.0.ack().await;
        self.1.send_modify(|count| *count += usize::from(acked));
        acked
    }

    async fn reject(&self, requeue: bool) -> bool {
        self.0.reject(requeue).await
    }
}

fn sampling() -> Sampling {
    Sampling {
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        max_new_tokens: 1,
        max_context: None,
        stop: Vec::new(),
    }
}

fn request(member: u16) -> TurnRequest {
    TurnRequest {
        request: RequestId([member as u8; 16]),
        group: GroupId([1; 16]),
        attempt: Attempt([1; 16]),
        member,
        role: "speaker".into(),
        seat: 0,
        turn: 0,
        prompt: 0,
        sampling: 0,
        seed: member.into(),
        order: member.into(),
    }
}

/// A bus that accepts small messages only.
struct Narrow {
    bus: Arc<MemoryBus>,
    limit: usize,
}

#[async_trait::async_trait]
impl Bus for Narrow {
    async fn declare(&self, topology: &Topology, agents: &[AgentName]) -> Result<(), BusError> {
        self.bus.declare(topology, agents).await
    }
    async fn declare_queue(&self, queue: &Queue) -> Result<(), BusError> {
        self.bus.declare_queue(queue).await
    }
    async fn publish(&self, message: Outgoing) -> Result<(), PublishError> {
        let (size, limit) = (message.body.len(), self.limit);
        if size > limit {
            return Err(PublishError::TooLarge { size, limit });
        }
        self.bus.publish(message).await
    }
    async fn consume(&self, queue: &Queue, prefetch: u16) -> Result<Box<dyn Consumer>, BusError> {
        self.bus.consume(queue, prefetch).await
    }
    async fn depth(&self, queue: &Queue) -> Option<u64> {
        self.bus.depth(queue).await
    }
    fn health(&self) -> BusHealth {
        self.bus.health()
    }
    async fn close(&self) {
        self.bus.close().await;
    }
}

fn members(frame: &ResultFrame) -> Vec<u16> {
    let mut members: Vec<u16> = frame.results.iter().map(|result| result.member).collect();
    members.sort_unstable();
    // A member that was asked for twice is answered twice.
    members.dedup();
    members
}

/// The first coordinator died before its wave was complete. The second coordinator repeats the
/// requests that it took over. No coordinator waits for the request that it gave up (here member
/// 2).
#[test]
fn a_gone_coordinator_s_wave_is_taken_over_and_rest_dropped() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::new(usize::MAX).await;
        bench.ask("old", Some(Wave { id: 9, total: 3 }), &[1, 2]).await;
        bench.ask("new", Some(Wave { id: 1, total: 1 }), &[1]).await;
        assert_eq!(members(&bench.answer("new").await), [1]);
        assert_eq!(
            members(&bench.answer("old").await),
            [1],
            "the first asker is answered too"
        );
        bench.nothing_comes_again().await;
    });
}

#[test]
fn a_wave_waits_for_all_requests_despite_repeats() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::new(usize::MAX).await;
        let wave = Some(Wave { id: 1, total: 2 });
        bench.ask("new", wave, &[1]).await;
        bench.ask("new", wave, &[1]).await;
        let mut results = bench.bus.consume(&bench.topology.results("new"), 9).await.unwrap();
        let early = tokio::time::timeout(std::time::Duration::from_millis(50), results.next()).await;
        assert!(early.is_err(), "a request that came twice is not a wave of two");
        drop(results);
        bench.ask("new", wave, &[2]).await;
        assert_eq!(members(&bench.answer("new").await), [1, 2]);
        bench.nothing_comes_again().await;
    });
}

/// Without an answer the request would come again, and its result would be too large again, for
/// ever.
#[test]
fn a_result_above_the_bus_limit_is_answered_as_failed() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::new(600).await;
        bench.ask("new", None, &[1]).await;
        let frame = bench.answer("new").await;
        let TurnOutcome::Failed { failure, retry: false } = &frame.results[0].outcome else {
            panic!("{frame:?}");
        };
        assert_eq!(failure.code, FailureCode::TooLarge);
        bench.nothing_comes_again().await;
    });
}

/// Output that continues a reasoning from the prompt, and does not end it, is reasoning even
/// without a sampled `<think>`.
#[test]
fn a_reasoning_that_the_prompt_began_is_hidden_from_partners() {
    crate::cli::embedded::system().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        thinking_in(folder.path());
        let text = TextCodec::open(folder.path()).unwrap();
        let engine = ScriptedEngine::new(vec![65, 66], WeightVersion { lineage: 1, step: 0 });
        let mut bench = Bench::of(folder, engine, usize::MAX).await;
        for (member, begins) in [(1, true), (2, false)] {
            let question = [broker::protocol::turn::Message::user("q")];
            bench.prompt = text.chat(&question, begins).unwrap().into();
            bench.ask("new", None, &[member]).await;
            let frame = bench.answer("new").await;
            let TurnOutcome::Done(made) = &frame.results[0].outcome else {
                panic!("{frame:?}");
            };
            assert_eq!((made.finish, made.output_ids.len()), (Finish::Length, 1));
            assert_eq!(made.text.is_empty(), begins, "{made:?}");
        }
        bench.nothing_comes_again().await;
    });
}

/// A prompt that leaves no room for a token is a failed turn. A wave goes on without it.
#[test]
fn a_prompt_above_the_capped_context_is_answered_as_failed() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::new(usize::MAX).await;
        let capped = |cap| Sampling {
            max_new_tokens: 50,
            max_context: Some(cap),
            ..sampling()
        };
        let wave = Some(Wave { id: 1, total: 2 });
        bench.ask_by(capped(1000), "new", wave, &[1]).await;
        let frame = bench.answer("new").await;
        let TurnOutcome::Failed { failure, retry: false } = &frame.results[0].outcome else {
            panic!("{frame:?}");
        };
        assert_eq!(failure.code, FailureCode::Context);
        bench.ask_by(capped(1001), "new", wave, &[2]).await;
        let frame = bench.answer("new").await;
        assert!(matches!(frame.results[0].outcome, TurnOutcome::Done(_)), "{frame:?}");
        bench.nothing_comes_again().await;
    });
}

/// A tiny model with room for the prompt, on its own thread.
fn tiny() -> Arc<dyn EngineClient> {
    let folder = tempfile::tempdir().unwrap();
    let config = config_in(folder.path());
    let (_, settings) = config.agents.first_key_value().unwrap();
    let ModelConfig::Random(mut random) = settings.model.clone() else {
        panic!("the test's model is random");
    };
    random.max_context = 1024;
    rollout::text::make::write_tokenizer(folder.path(), &configs::TokenizerConfig::Bytes).unwrap();
    let text = Arc::new(TextCodec::open(folder.path()).unwrap());
    let shape = ModelShape::from_random(&random, text.vocab_size(), &text.stop_ids()).unwrap();
    let weights = Weights::random(&shape, Init::from(&random), 1).unwrap();
    let version = WeightVersion { lineage: 1, step: 7 };
    let options = EngineOptions::from(&settings.engine);
    let engine = Engine::new(&shape, Published::new(weights, version), options).unwrap();
    EmbeddedEngine::start("test", engine, version, text).unwrap()
}

/// A job that began after a stop would be blamed for the death that follows.
#[test]
fn a_stopped_agent_begins_no_more_jobs() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::new(usize::MAX).await;
        bench.ask("new", None, &[1]).await;
        assert_eq!(members(&bench.answer("new").await), [1]);
        let mut acked = bench.acked.subscribe();
        acked.wait_for(|acked| *acked == 1).await.unwrap();
        bench.router.send(RouterMessage::Stop).await.unwrap();
        let marked = std::fs::read(&bench.marks).unwrap();
        bench.ask("new", None, &[2]).await;
        bench.ask("new", Some(Wave { id: 1, total: 1 }), &[3]).await;
        drop(bench.asked);
        let left = async |queue| bench.bus.depth(&queue).await;
        assert_eq!(left(bench.topology.turns(&agent())).await, Some(2), "they come again");
        assert_eq!(
            left(bench.topology.results("new")).await,
            Some(0),
            "no request is answered"
        );
        assert_eq!(std::fs::read(&bench.marks).unwrap(), marked, "no group is begun");
    });
}

/// Reported to the coordinator, each failure would use up one of its conversation's few tries.
#[test]
fn weights_with_infinite_logits_end_the_agent_unanswered() {
    crate::cli::embedded::system().block_on(async {
        let mut bench = Bench::over(tiny(), usize::MAX).await;
        // Finite logits divided by this temperature are infinite.
        let cold = || Sampling {
            temperature: 1e-44,
            ..sampling()
        };
        for _ in 0..2 {
            bench.ask_by(cold(), "new", None, &[1, 2]).await;
            let mut answered = 0;
            while answered < 2 {
                for result in bench.answer("new").await.results {
                    let TurnOutcome::Failed { failure, retry: true } = &result.outcome else {
                        panic!("{result:?}");
                    };
                    let version = WeightVersion { lineage: 1, step: 7 };
                    assert_eq!(failure.code, FailureCode::NotFinite { version });
                    answered += 1;
                }
            }
        }
        assert!(
            bench.gave_up.borrow().is_none(),
            "two requests may be at fault themselves"
        );
        bench.ask_by(cold(), "new", None, &[3]).await;
        let why = bench.gave_up.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        assert!(why.contains("agent a") && why.contains("weights 1.7"), "{why}");
        bench.ask("new", None, &[4]).await;

        let mut acked = bench.acked.subscribe();
        acked.wait_for(|acked| *acked == 2).await.unwrap();
        drop(bench.asked);
        let left = async |queue| bench.bus.depth(&queue).await;
        assert_eq!(left(bench.topology.turns(&agent())).await, Some(2), "they come again");
        assert_eq!(
            left(bench.topology.results("new")).await,
            Some(0),
            "no request is answered"
        );
    });
}

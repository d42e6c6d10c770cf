//! The router over a bus in memory and the scripted engine.

mod failures;
mod waves;

use broker::bus::memory::MemoryBus;
use broker::bus::{Acker, BusError, BusHealth, Consumer, Outgoing, PublishError};
use broker::codec;
use broker::ids::{Attempt, GroupId, RunId, WeightVersion};
use broker::protocol::Kind;
use broker::protocol::turn::{Finish, ResultFrame, Sampling, TurnOutcome, TurnPrompt};
use broker::topology::Queue;
use tokio::sync::watch;

use super::*;
use crate::engine::scripted::ScriptedEngine;
use crate::run_folder::RunFolder;
use crate::run_folder::tests::{config_in, thinking_in};
use crate::testing::sampling;
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
        self.ask_by(sampling(1), reply_to, wave, members).await;
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
        is_recorded: false,
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
    let mut members: Vec<u16> = frame.results.iter().map(|timed| timed.result.member).collect();
    members.sort_unstable();
    // A member that was asked for twice is answered twice.
    members.dedup();
    members
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
            let TurnOutcome::Done(made) = &frame.results[0].result.outcome else {
                panic!("{frame:?}");
            };
            assert_eq!((made.finish, made.output_ids.len()), (Finish::Length, 1));
            assert_eq!(made.text.is_empty(), begins, "{made:?}");
        }
        bench.nothing_comes_again().await;
    });
}

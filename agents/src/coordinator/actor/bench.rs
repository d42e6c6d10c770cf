//! A coordinator without a run, for tests: bus and store in memory, the actor's methods called one
//! by one.

use std::sync::Arc;

use actix::Context;
use broker::bus::memory::MemoryBus;
use broker::bus::{Bus, Delivery, Outgoing};
use broker::ids::{Attempt, GroupId, RequestId, TurnKey, WeightVersion};
use broker::protocol::Kind;
use broker::protocol::control::{Beat, Heartbeat};
use broker::protocol::task::Task;
use broker::protocol::turn::{Generation, LogProbs, TurnOutcome, TurnResult, VersionSpan};
use broker::store::memory::MemoryStore;
use broker::store::{Claim, Committed, Lease, Store};
use broker::topology::Topology;
use broker::{AgentName, RoleName};
use configs::RunConfig;
use rollout::group::GroupRun;
use rollout::workflow::unanswered::said;

use super::Coordinator;
use crate::coordinator::env::Env;
use crate::coordinator::input::CommitDone;
use crate::coordinator::play::Open;
use crate::coordinator::specs::{GroupSpecs, Purpose};
use crate::ledger::{ENDED, Ledger};
use crate::observe::Observer;
use crate::run_folder::RunFolder;
use crate::run_folder::tests::config_in;
use crate::testing;
use crate::traces::Traces;
use crate::turn::tasks::Candidate;

pub(in crate::coordinator) struct Bench {
    pub coordinator: Coordinator,
    pub ctx: Context<Coordinator>,
    pub bus: Arc<MemoryBus>,
    pub store: Arc<MemoryStore>,
    pub end: crate::coordinator::End,
    _folder: tempfile::TempDir,
}

impl Bench {
    pub(in crate::coordinator) async fn new(change: impl FnOnce(&mut RunConfig)) -> Self {
        Self::of(true, change).await
    }

    /// `alone`: there is no other coordinator.
    pub(in crate::coordinator) async fn of(alone: bool, change: impl FnOnce(&mut RunConfig)) -> Self {
        let base = tempfile::tempdir().unwrap();
        let mut config = config_in(base.path());
        change(&mut config);
        let folder = RunFolder::create(base.path(), &config, None).unwrap();
        let (bus, store) = (MemoryBus::new(), MemoryStore::new());
        let topology = Topology::new(folder.run().clone());
        bus.declare(&topology, &config.participants()).await.unwrap();
        let env = Env {
            run: folder.run().clone(),
            workflow: rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap(),
            config: Arc::new(config),
            bus: bus.clone(),
            store: store.clone(),
            topology,
            folder,
            incarnation: "us".into(),
            seal: None,
            alone,
            observer: Observer::default(),
            traces: Traces::default(),
        };
        let (ended, end) = tokio::sync::oneshot::channel();
        Self {
            coordinator: Coordinator::new(Arc::new(env), None, ended).unwrap(),
            ctx: Context::new(),
            bus,
            store,
            end,
            _folder: base,
        }
    }

    /// Both agents report that they serve, and have this many rows reserved.
    pub(in crate::coordinator) fn beats(&mut self, reserved: u64) {
        for agent in self.coordinator.env.participants() {
            let beat = Beat::Agent(beat(&agent, reserved));
            self.coordinator.on_beat(beat, &mut self.ctx);
        }
    }

    /// Both agents send a heartbeat more.
    pub(in crate::coordinator) fn beats_again(&mut self) {
        for agent in self.coordinator.env.participants() {
            let next = Heartbeat {
                seq: 2,
                ..beat(&agent, 0)
            };
            self.coordinator.on_beat(Beat::Agent(next), &mut self.ctx);
        }
    }

    /// The ledgers of both agents say that they have ended.
    pub(in crate::coordinator) fn end_agents(&self) {
        let env = &self.coordinator.env;
        for agent in env.participants() {
            let mut ledger = Ledger::open(&env.folder.ledger(&agent), &env.run, &agent).unwrap();
            ledger.set_note(ENDED, "1").unwrap();
        }
    }

    pub(in crate::coordinator) async fn publish_task(&self, id: &str) {
        let topology = &self.coordinator.env.topology;
        let message = Outgoing {
            to: topology.to(&topology.tasks()),
            kind: Kind::Task,
            message_id: id.into(),
            correlation_id: None,
            headers: Vec::new(),
            body: bytes::Bytes::from_static(b"as published"),
            durable: true,
        };
        self.bus.publish(message).await.unwrap();
    }

    pub(in crate::coordinator) fn env(&self) -> &Env {
        &self.coordinator.env
    }

    pub(in crate::coordinator) fn specs(&self) -> &GroupSpecs {
        &self.coordinator.specs
    }

    /// Takes an open group out of the coordinator.
    pub(in crate::coordinator) fn take_open(&mut self, group: &GroupId) -> Open {
        self.coordinator.play.remove(group).unwrap()
    }

    /// Changes an open group.
    pub(in crate::coordinator) fn change<T>(&mut self, group: GroupId, change: impl FnOnce(&mut Open) -> T) -> T {
        self.coordinator.play.change(group, change)
    }

    /// An open group.
    pub(in crate::coordinator) fn group(&self, group: &GroupId) -> &Open {
        self.coordinator.play.get(group).unwrap()
    }

    /// A group that was just opened, claimed in the store.
    pub(in crate::coordinator) async fn open(&mut self, id: &str) -> (GroupId, Lease) {
        let task = task(id);
        let group = GroupId::new(&self.coordinator.env.run, id);
        let claim = self.store.claim(group, "us", Attempt([1; 16]), None).await.unwrap();
        let Claim::Ours(claimed) = claim else {
            panic!("{claim:?}")
        };
        let spec = self.coordinator.specs.run_spec(&task, id, 4);
        let attempt = claimed.lease.attempt;
        let mut open = Open::new(GroupRun::new(spec), Purpose::Train, task, id.into(), attempt);
        open.lease = Some(claimed.lease);
        open.body = bytes::Bytes::from_static(b"as published");
        self.coordinator.play.insert(group, open);
        (group, claimed.lease)
    }
}

/// Waits for tasks next to the actor, such as acks: they run on this thread.
pub(in crate::coordinator) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

pub(in crate::coordinator) fn candidate(id: &str, delivery: Delivery) -> Candidate {
    Candidate {
        task: task(id),
        id: id.into(),
        order: None,
        body: delivery.body.clone(),
        delivery: Some(delivery),
        held: false,
    }
}

pub(in crate::coordinator) fn beat(agent: &AgentName, reserved: u64) -> Heartbeat {
    Heartbeat {
        reserved,
        ..testing::heartbeat(agent)
    }
}

pub(in crate::coordinator) fn task(id: &str) -> Arc<Task> {
    let text = format!(r#"{{"id": "{id}", "prompt": "o1", "label": "o1"}}"#);
    Arc::new(Task::parse(text.as_bytes(), 1 << 20).unwrap())
}

pub(in crate::coordinator) fn speaker(member: u16) -> TurnKey {
    TurnKey {
        member,
        role: RoleName::new("speaker").unwrap(),
        seat: 0,
        turn: 0,
    }
}

pub(in crate::coordinator) fn generation(token: u32) -> Generation {
    let version = WeightVersion { lineage: 1, step: 0 };
    Generation {
        prompt_ids: vec![1],
        output_ids: vec![token],
        logprobs: vec![-1.0],
        logprobs_of: LogProbs::Sampled,
        spans: vec![VersionSpan {
            version,
            start: 0,
            end: 1,
        }],
        oldest_kv: version,
        temperature: 1.0,
        ..said("s1".into())
    }
}

pub(in crate::coordinator) fn result(lease: Lease, key: &TurnKey, outcome: TurnOutcome) -> TurnResult {
    TurnResult {
        request: RequestId::new(lease.group, lease.attempt, key),
        group: lease.group,
        attempt: lease.attempt,
        member: key.member,
        role: key.role.to_string(),
        seat: key.seat,
        turn: key.turn,
        outcome,
    }
}

pub(in crate::coordinator) fn committed(lease: Lease, token: u32) -> CommitDone {
    let key = speaker(0);
    CommitDone {
        group: lease.group,
        lease: Some(lease),
        results: vec![(key.clone(), result(lease, &key, TurnOutcome::Done(generation(token))))],
        outcome: Ok(vec![Committed::New]),
    }
}

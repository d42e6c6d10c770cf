//! Our side of a comparison: a driver in the coordinator's place, with its frames, commits and
//! acks.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agents::base::retry;
use agents::turn::frames::{self, OutgoingTurn};
use anyhow::{Context, bail, ensure};
use broker::bus::{Bus, Delivery, Outgoing};
use broker::codec;
use broker::ids::{Attempt, Digest, GroupId, RequestId, TurnKey};
use broker::protocol::Kind;
use broker::protocol::turn::{
    Message, ResultFrame, Sampling, TimedResult, TurnFrame, TurnOutcome, TurnPrompt, TurnResult,
};
use broker::store::redis::{RedisOptions, RedisStore};
use broker::store::{Claim, Committed, Lease, Record, Store};
use broker::topology::Topology;
use configs::{AgentName, RoleName};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::figures::Times;

/// The coordinator's value.
const PREFETCH: u16 = 256;
const REPLY_TO: &str = "driver";
/// Conversations of a group.
const SHARED_BY: u64 = 16;
/// Groups that a wave's requests belong to.
const WAVE_GROUPS: usize = 4;

pub(crate) fn agent() -> anyhow::Result<AgentName> {
    AgentName::new("a").map_err(|error| anyhow::anyhow!("{error}"))
}

/// The place of a prompt's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prompts {
    /// In a message, which the agent's tokenizer reads; each request has its own.
    Text,
    /// In a message shared by [`SHARED_BY`] requests, as the conversations of a group share their
    /// first prompt.
    Shared,
    /// In the ids of earlier turns, as in a conversation of many turns; one short message is new.
    Held,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// Frames under way.
    pub(crate) frames: usize,
    /// Requests in a frame.
    pub(crate) requests: usize,
    /// Bytes of a prompt.
    pub(crate) size: usize,
    pub(crate) prompts: Prompts,
}

impl Case {
    pub(crate) const fn singles(in_flight: usize, size: usize, prompts: Prompts) -> Self {
        Self {
            frames: in_flight,
            requests: 1,
            size,
            prompts,
        }
    }

    pub(crate) const fn wave(requests: usize, size: usize, prompts: Prompts) -> Self {
        Self {
            frames: 1,
            requests,
            size,
            prompts,
        }
    }

    pub(crate) fn in_flight(self) -> usize {
        self.frames * self.requests
    }
}

type Waiting = Arc<Mutex<HashMap<RequestId, mpsc::UnboundedSender<()>>>>;
type Leases = Arc<Mutex<HashMap<GroupId, Lease>>>;

pub(crate) struct Driver {
    bus: Arc<dyn Bus>,
    store: Arc<dyn Store>,
    topology: Topology,
    agent: AgentName,
    role: RoleName,
    waiting: Waiting,
    leases: Leases,
    waves: AtomicU64,
    prompts: AtomicU64,
    /// The size of the last result frame.
    reply: Arc<Mutex<usize>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    pub(crate) async fn connect(bus: Arc<dyn Bus>, redis: &str, topology: Topology) -> anyhow::Result<Arc<Self>> {
        let store = RedisStore::connect(redis, topology.run(), RedisOptions::default()).await?;
        let queue = topology.results(REPLY_TO);
        bus.declare_queue(&queue).await?;
        let mut consumer = bus.consume(&queue, PREFETCH).await?;
        let driver = Arc::new(Self {
            bus,
            store,
            topology,
            agent: agent()?,
            role: RoleName::new("speaker").map_err(|error| anyhow::anyhow!("{error}"))?,
            waiting: Arc::default(),
            leases: Arc::default(),
            waves: AtomicU64::new(0),
            prompts: AtomicU64::new(0),
            reply: Arc::default(),
        });
        let taker = driver.clone();
        tokio::spawn(async move {
            while let Some(delivery) = consumer.next().await {
                let taker = taker.clone();
                tokio::spawn(async move {
                    if let Err(error) = taker.take(delivery).await {
                        eprintln!("{error:?}");
                        std::process::exit(1);
                    }
                });
            }
        });
        Ok(driver)
    }

    /// Decodes, commits each group's results in one step, acks, and then notifies the waiting
    /// lanes.
    async fn take(&self, delivery: Delivery) -> anyhow::Result<()> {
        *lock(&self.reply) = delivery.body.len();
        let frame: ResultFrame = codec::decode(&delivery.body)?;
        frame.validate()?;
        let mut groups: BTreeMap<GroupId, Vec<Record>> = BTreeMap::new();
        for TimedResult { result, .. } in &frame.results {
            groups.entry(result.group).or_default().push(record(result)?);
        }
        let commits = groups.into_iter().map(|(group, records)| async move {
            let lease = lock(&self.leases).get(&group).copied().context("no lease")?;
            let committed = self.store.commit(lease, &records).await?;
            ensure!(committed.iter().all(|one| *one == Committed::New), "committed twice");
            anyhow::Ok(())
        });
        futures_util::future::try_join_all(commits).await?;
        ensure!(delivery.ack().await, "the connection was lost");
        for TimedResult { result, .. } in &frame.results {
            if let Some(waiter) = lock(&self.waiting).remove(&result.request) {
                let _ = waiter.send(());
            }
        }
        Ok(())
    }

    async fn lease(&self, group: GroupId) -> anyhow::Result<Lease> {
        match self
            .store
            .claim(group, REPLY_TO, Attempt(agents::base::ids::random_bytes()), None)
            .await?
        {
            Claim::Ours(claimed) => {
                lock(&self.leases).insert(group, claimed.lease);
                Ok(claimed.lease)
            }
            Claim::Theirs { .. } => bail!("another coordinator has the group"),
        }
    }

    fn wanted(&self, case: Case, lease: Lease, nth: usize) -> OutgoingTurn {
        let key = TurnKey {
            member: (nth >> 16) as u16,
            role: self.role.clone(),
            seat: 0,
            turn: nth as u16,
        };
        OutgoingTurn {
            agent: self.agent.clone(),
            group: lease.group,
            attempt: lease.attempt,
            task_order: 0,
            key,
            prompt: prompt(case, self.prompts.fetch_add(1, Ordering::Relaxed)),
            sampling: Sampling {
                temperature: 1.0,
                top_p: 1.0,
                top_k: 0,
                min_p: 0.0,
                max_new_tokens: 1,
                max_context: None,
                stop: Vec::new(),
            },
            seed: nth as u64,
            is_recorded: false,
        }
    }

    async fn publish(&self, frame: &TurnFrame) -> anyhow::Result<usize> {
        let body = codec::encode(frame);
        let size = body.len();
        let message = Outgoing {
            to: self.topology.to(&self.topology.turns(&self.agent)),
            kind: Kind::TurnRequest,
            message_id: Digest::of(&body).to_string(),
            correlation_id: frame.requests.first().map(|request| request.request.to_string()),
            headers: vec![
                ("run".into(), self.topology.run().to_string()),
                ("agent".into(), self.agent.to_string()),
                ("requests".into(), frame.requests.len().to_string()),
            ],
            body: body.into(),
            durable: true,
        };
        retry::publish(&self.bus, message).await?;
        Ok(size)
    }

    /// Sends one frame, waits until all its results are committed, and returns the frame's size.
    async fn exchange(&self, case: Case, leases: &[Lease], nth: usize) -> anyhow::Result<usize> {
        let wanted: Vec<OutgoingTurn> = (0..case.requests)
            .map(|i| self.wanted(case, leases[i % leases.len()], nth * case.requests + i))
            .collect();
        let (done, mut committed) = mpsc::unbounded_channel();
        for one in &wanted {
            lock(&self.waiting).insert(one.request(), done.clone());
        }
        let count = wanted.len();
        let wave = (case.requests > 1).then_some(self.waves.fetch_add(1, Ordering::Relaxed));
        let mut size = 0;
        for (_, frame) in frames::build(wanted, REPLY_TO, wave) {
            size += self.publish(&frame).await?;
        }
        for _ in 0..count {
            committed.recv().await.context("the results' queue ended")?;
        }
        Ok(size)
    }

    async fn lane(self: Arc<Self>, case: Case, length: Duration) -> anyhow::Result<Vec<Duration>> {
        let groups = if case.requests > 1 { WAVE_GROUPS } else { 1 };
        let mut leases = Vec::new();
        for _ in 0..groups {
            leases.push(self.lease(GroupId(agents::base::ids::random_bytes())).await?);
        }
        let (begun, mut times) = (Instant::now(), Vec::new());
        while begun.elapsed() < length {
            let sent = Instant::now();
            self.exchange(case, &leases, times.len()).await?;
            times.push(sent.elapsed());
        }
        for lease in leases {
            lock(&self.leases).remove(&lease.group);
            self.store.void(lease).await?;
        }
        // Each request of a wave is an exchange that took the wave's time.
        Ok(times
            .into_iter()
            .flat_map(|time| std::iter::repeat_n(time, case.requests))
            .collect())
    }

    /// Keeps the case's frames under way for `length`, then waits for the last.
    pub(crate) async fn sample(self: &Arc<Self>, case: Case, length: Duration) -> anyhow::Result<Times> {
        let begun = Instant::now();
        let mut lanes = JoinSet::new();
        for _ in 0..case.frames {
            lanes.spawn(self.clone().lane(case, length));
        }
        let mut exchanges = Vec::new();
        while let Some(lane) = lanes.join_next().await {
            exchanges.extend(lane??);
        }
        Ok(Times {
            exchanges,
            elapsed: begun.elapsed(),
        })
    }

    /// Returns the bytes of a request and of its result, so that the bare client sends as many.
    pub(crate) async fn bytes(self: &Arc<Self>, case: Case) -> anyhow::Result<(usize, usize)> {
        let alone = Case {
            frames: 1,
            requests: 1,
            ..case
        };
        let lease = self.lease(GroupId(agents::base::ids::random_bytes())).await?;
        let request = self.exchange(alone, &[lease], 0).await?;
        self.store.void(lease).await?;
        let reply = *lock(&self.reply);
        Ok((request, reply))
    }
}

/// Makes a record as the coordinator does.
fn record(result: &TurnResult) -> anyhow::Result<Record> {
    let TurnOutcome::Done(_) = result.outcome else {
        bail!("the agent failed: {:?}", result.outcome);
    };
    Ok(Record {
        key: format!("{}/{}/{}/{}", result.member, result.role, result.seat, result.turn),
        payload: codec::encode(result).into(),
    })
}

/// Returns the `nth` prompt of all. A word and its blank are four bytes, as its id is.
pub(crate) fn prompt(case: Case, nth: u64) -> TurnPrompt {
    let words = case.size / 4;
    match case.prompts {
        Prompts::Text | Prompts::Shared => {
            let nth = if case.prompts == Prompts::Shared {
                nth / SHARED_BY
            } else {
                nth
            };
            TurnPrompt {
                held: Vec::new(),
                sampled: 0,
                messages: vec![Message::user(format!("{nth} {}", "o12 ".repeat(words)))],
            }
        }
        Prompts::Held => {
            let mut held = vec![20; words];
            held[0] = (nth % 16) as u32 + 20;
            TurnPrompt {
                held,
                sampled: 0,
                messages: vec![Message::user(format!("o1 {nth}"))],
            }
        }
    }
}

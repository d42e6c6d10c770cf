//! Remote participants: they receive questions and answer over RabbitMQ, in the form of programs.
//!
//! Each participant has one durable queue in a run, which its copies share. A question carries a
//! correlation id, and the exchange and key for its answer. A question that a copy has not acked
//! when it dies goes to another copy. Answers arrive in this coordinator's own queue. An answer
//! without a waiting question (late, repeated, or for an earlier coordinator) changes nothing: the
//! turn was committed once, or the group's owner asks again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use broker::bus::{Bus, BusError, BusHealth, Consumer, Delivery, PublishError, verified};
use broker::protocol::Kind;
use broker::topology::Topology;
use bytes::Bytes;
use configs::{HumanDuration, ParticipantName, Problem, RunConfig};
use rollout::workflow::Workflow;
use rollout::workflow::program::ProgramPlace;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;
use tracing::Instrument;

use super::answer::{LONGEST, answer_to, with_id};
use super::worker::ProgramJob;
use crate::base::log_scope;
use crate::base::outgoing::{self, Addressed};
use crate::base::retry;

/// The headers of a question that say where its answer goes.
const HEADER_EXCHANGE: &str = "answer_exchange";
const HEADER_KEY: &str = "answer_key";
/// The number of answers that wait to be read.
const PREFETCH: u16 = 64;
/// The interval at which a waiting question checks that its participant is connected.
const LOOK: Duration = Duration::from_secs(1);
/// The interval between warnings about a missing participant.
const REMIND: Duration = Duration::from_secs(30);

/// Returns a problem if a remote participant cannot be reached because the broker is this process's
/// own memory.
#[must_use]
pub fn unreachable(config: &RunConfig) -> Vec<Problem> {
    if config.run.broker != "memory:" {
        return Vec::new();
    }
    let remotes = config.remotes();
    let name = remotes.iter().next().map(|name| Problem {
        path: "run.broker".into(),
        message: format!(
            "is \"memory:\", which the remote participant {name} cannot reach: write \"local:\" (a private RabbitMQ) or \
             \"amqp[s]://user:password@host:port/vhost\", or use `dyad up`"
        ),
    });
    name.into_iter().collect()
}

/// The connection to the remote participants of a run.
pub struct RemoteConnection {
    bus: Arc<dyn Bus>,
    topology: Topology,
    incarnation: String,
    next: AtomicU64,
    /// Questions without an answer, by correlation id.
    asked: StdMutex<HashMap<String, Asked>>,
    presence: BTreeMap<ParticipantName, Mutex<Presence>>,
    /// The longest absence of a participant that a question waits for; no limit if not set.
    absence: OnceLock<HumanDuration>,
}

struct Asked {
    of: ParticipantName,
    reply: oneshot::Sender<Bytes>,
}

/// The last check for a consumer of a participant's queue.
struct Presence {
    there: bool,
    looked: Option<Instant>,
    reminded: Option<Instant>,
}

impl RemoteConnection {
    /// Declares the queues of the remote participants that `workflows` ask, and begins to listen.
    /// Returns `None` if there are none.
    pub async fn open(
        bus: &Arc<dyn Bus>,
        topology: &Topology,
        incarnation: &str,
        workflows: &[&dyn Workflow],
    ) -> Result<Option<Arc<Self>>, BusError> {
        let names: BTreeSet<ParticipantName> = workflows
            .iter()
            .flat_map(|workflow| workflow.programs())
            .filter_map(|program| match program.place {
                ProgramPlace::Remote(name) => Some(name),
                ProgramPlace::Process(_) | ProgramPlace::Judge(_) | ProgramPlace::Agent(..) => None,
            })
            .collect();
        if names.is_empty() {
            return Ok(None);
        }
        for name in &names {
            bus.declare_queue(&topology.questions(name)).await?;
        }
        let answers = topology.answers(incarnation);
        bus.declare_queue(&answers).await?;
        let consumer = bus.consume(&answers, PREFETCH).await?;
        let line = Arc::new(Self {
            bus: bus.clone(),
            topology: topology.clone(),
            incarnation: incarnation.to_owned(),
            next: AtomicU64::new(1),
            asked: StdMutex::new(HashMap::new()),
            presence: names
                .into_iter()
                .map(|name| (name, Mutex::new(Presence::new())))
                .collect(),
            absence: OnceLock::new(),
        });
        log_scope::spawn(line.clone().listen(consumer));
        Ok(Some(line))
    }

    /// Sets the absence of its participant after which a question fails. Only the first call has an
    /// effect.
    pub fn bear_absence(&self, limit: HumanDuration) {
        let _ = self.absence.set(limit);
    }

    /// Asks the jobs' questions, one at a time, until every sender is gone.
    pub(super) async fn run(
        self: Arc<Self>,
        name: ParticipantName,
        limit: HumanDuration,
        jobs: Arc<Mutex<mpsc::Receiver<ProgramJob>>>,
    ) {
        loop {
            let job = jobs.lock().await.recv().await;
            let Some(ProgramJob { line, reply, span }) = job else {
                return;
            };
            // Its conversation is over.
            if reply.is_closed() {
                continue;
            }
            let answer = self.ask(&name, limit, &line).instrument(span.clone()).await;
            if let Err(reason) = &answer {
                span.in_scope(|| tracing::warn!(participant = %name, reason, "a question got no answer"));
            }
            let queue = self.topology.questions(&name).name;
            // A dropped receiver means that its conversation is over.
            let _ = reply.send(answer.map_err(|reason| format!("the participant {name} (queue {queue}): {reason}")));
        }
    }

    async fn ask(&self, name: &ParticipantName, limit: HumanDuration, question: &str) -> Result<String, String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let correlation = format!("{}-{id}", self.incarnation);
        let body = with_id(question, id)?;
        let (reply, answered) = oneshot::channel();
        let of = name.clone();
        self.asked().insert(correlation.clone(), Asked { of, reply });
        let answer = match self.send(name, &correlation, body).await {
            Ok(()) => self.wait(name, limit, answered).await,
            Err(error) => Err(format!("it cannot be asked: {error}")),
        };
        self.asked().remove(&correlation);
        let answer = answer?;
        if answer.len() as u64 > LONGEST {
            return Err(format!("its answer is longer than {LONGEST} bytes"));
        }
        answer_to(id, answer.to_vec())
    }

    async fn send(&self, name: &ParticipantName, correlation: &str, body: String) -> Result<(), PublishError> {
        let queue = self.topology.questions(name);
        let back = self.topology.to_answers(&self.incarnation, name.as_str());
        let headers = [
            ("run", self.topology.run().to_string()),
            (HEADER_EXCHANGE, back.exchange),
            (HEADER_KEY, back.routing_key),
        ];
        let message = outgoing::durable(self.topology.to(&queue), Kind::Question, body)
            .with_id(correlation.to_owned())
            .about(correlation)
            .with_headers(headers);
        match retry::publish(&self.bus, message.clone()).await {
            // The queue was deleted.
            Err(PublishError::Unroutable(_)) => {
                let declared = self.bus.declare_queue(&queue).await;
                declared.map_err(|_| PublishError::Unroutable(name.to_string()))?;
                retry::publish(&self.bus, message).await
            }
            sent => sent,
        }
    }

    /// Waits for an answer. Time counts against the limit while a copy of the participant is
    /// connected, and otherwise against the limit on its absence.
    async fn wait(
        &self,
        name: &ParticipantName,
        limit: HumanDuration,
        mut answered: oneshot::Receiver<Bytes>,
    ) -> Result<Bytes, String> {
        let mut left = limit.0;
        let mut away = Duration::ZERO;
        while !left.is_zero() {
            let step = left.min(LOOK);
            match tokio::time::timeout(step, &mut answered).await {
                Ok(answer) => return answer.map_err(|_| "the broker is closed".into()),
                Err(_) if self.is_there(name).await => {
                    left -= step;
                    away = Duration::ZERO;
                }
                Err(_) => away += step,
            }
            if let Some(limit) = self.absence.get().filter(|limit| away >= limit.0) {
                return Err(format!("no copy was connected for {limit}"));
            }
        }
        Err(format!("no answer within {limit}"))
    }

    /// Returns true if a copy listens, or if the broker does not know. While the broker is away no
    /// copy listens.
    async fn is_there(&self, name: &ParticipantName) -> bool {
        if !matches!(self.bus.health(), BusHealth::Up) {
            return false;
        }
        let Some(presence) = self.presence.get(name) else {
            return true;
        };
        let mut presence = presence.lock().await;
        if presence.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            let listeners = self.bus.listeners(&self.topology.questions(name)).await;
            presence.look(name, listeners != Some(0));
        }
        presence.there
    }

    async fn listen(self: Arc<Self>, mut answers: Box<dyn Consumer>) {
        while let Some(delivery) = answers.next().await {
            self.take(&delivery);
            // Acked in any case: a useless answer would be useless again, and a lost one is asked
            // for again.
            delivery.ack().await;
        }
        // The dropped senders report the end to every waiting question.
        self.asked().clear();
    }

    fn take(&self, delivery: &Delivery) {
        let Some(correlation) = delivery.correlation_id.as_deref() else {
            tracing::warn!(key = delivery.routing_key, "an answer has no correlation id");
            return;
        };
        let mut asked = self.asked();
        let Some(question) = asked.get(correlation) else {
            tracing::debug!(correlation, "ignored a late or repeated answer");
            return;
        };
        let of = question.of.as_str();
        if let Err(error) = verified::answer(&self.topology, delivery, &self.incarnation, of) {
            tracing::warn!(%error, "ignored an answer");
            return;
        }
        if let Some(question) = asked.remove(correlation) {
            // The question may have been given up meanwhile.
            let _ = question.reply.send(delivery.body.clone());
        }
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<String, Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    fn new() -> Self {
        Self {
            there: true,
            looked: None,
            reminded: None,
        }
    }

    fn look(&mut self, name: &ParticipantName, there: bool) {
        self.looked = Some(Instant::now());
        if there && !self.there {
            tracing::info!(participant = %name, "the participant is connected again");
            self.reminded = None;
        }
        if !there && self.reminded.is_none_or(|at| at.elapsed() >= REMIND) {
            tracing::warn!(participant = %name, "no copy of the participant is connected; start one, its questions wait");
            self.reminded = Some(Instant::now());
        }
        self.there = there;
    }
}

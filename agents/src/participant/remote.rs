//! Participants that run elsewhere: asked and answering over RabbitMQ, with the questions and answers of programs.
//!
//! Each participant has one durable queue in a run, which its copies share. A question goes there with a correlation id, and
//! with the exchange and the key that its answer goes to; what a copy has not acked when it dies comes to another. Answers
//! come into a queue of this coordinator's own. One that nobody waits for (late, repeated, of a coordinator before us)
//! changes nothing: the turn is committed once, or asked again by whoever owns its group.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use broker::bus::{Bus, BusError, BusHealth, Consumer, Delivery, Outgoing, PublishError, heard};
use broker::protocol::Kind;
use broker::topology::Topology;
use bytes::Bytes;
use configs::{HumanDuration, ParticipantName, Problem, RunConfig};
use rollout::workflow::Workflow;
use rollout::workflow::program::Place;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use super::answer::{LONGEST, answer_to, with_id};
use super::worker::Job;
use crate::base::retry;

/// Where the answer to a question goes, among its headers.
const HEADER_EXCHANGE: &str = "answer_exchange";
const HEADER_KEY: &str = "answer_key";
/// Answers that wait to be read.
const PREFETCH: u16 = 64;
/// How often a question that waits looks whether its participant is there.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is said that nobody is there.
const REMIND: Duration = Duration::from_secs(30);

/// What of a configuration cannot be asked, since its broker is this process's own memory.
#[must_use]
pub fn unreachable(config: &RunConfig) -> Vec<Problem> {
    if config.run.broker != "memory:" {
        return Vec::new();
    }
    let remotes = config.remotes();
    let name = remotes.iter().next().map(|name| Problem {
        path: "run.broker".into(),
        message: format!(
            "is \"memory:\", over which the remote participant {name} cannot be asked: write \"local:\" (a private RabbitMQ) or \
             \"amqp[s]://user:password@host:port/vhost\", or use `dyad up`"
        ),
    });
    name.into_iter().collect()
}

/// The way to the remote participants of a run and back.
pub struct Line {
    bus: Arc<dyn Bus>,
    topology: Topology,
    incarnation: String,
    next: AtomicU64,
    /// Questions without an answer, by correlation id.
    asked: StdMutex<HashMap<String, Asked>>,
    presence: BTreeMap<ParticipantName, Mutex<Presence>>,
    /// For how long a question waits for a participant that is not there; for ever if not set.
    absence: OnceLock<HumanDuration>,
}

struct Asked {
    of: ParticipantName,
    reply: oneshot::Sender<Bytes>,
}

/// Whether a participant's queue has a consumer, as it was last seen.
struct Presence {
    there: bool,
    looked: Option<Instant>,
    reminded: Option<Instant>,
}

impl Line {
    /// Declares the queues of the remote participants that `workflows` ask and begins to listen; `None` if there are none.
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
                Place::Remote(name) => Some(name),
                Place::Process(_) | Place::Judge(_) | Place::Agent(..) => None,
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
        tokio::spawn(line.clone().listen(consumer));
        Ok(Some(line))
    }

    /// From now on a question whose participant is away for this long has failed. The first call counts.
    pub fn bear_absence(&self, limit: HumanDuration) {
        let _ = self.absence.set(limit);
    }

    /// Asks what comes, one thing at a time, until nobody can ask any more.
    pub(super) async fn run(
        self: Arc<Self>,
        name: ParticipantName,
        limit: HumanDuration,
        jobs: Arc<Mutex<mpsc::Receiver<Job>>>,
    ) {
        loop {
            let job = jobs.lock().await.recv().await;
            let Some(Job { line, reply }) = job else { return };
            // Its conversation is over.
            if reply.is_closed() {
                continue;
            }
            let answer = self.ask(&name, limit, &line).await;
            if let Err(reason) = &answer {
                tracing::warn!(participant = %name, reason, "a question has no answer");
            }
            // Nobody waits for it any more: its conversation is over.
            let _ = reply.send(answer.map_err(|reason| format!("the participant {name}: {reason}")));
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
        let message = Outgoing {
            to: self.topology.to(&queue),
            kind: Kind::Question,
            message_id: correlation.to_owned(),
            correlation_id: Some(correlation.to_owned()),
            headers: headers.map(|(key, value)| (key.to_owned(), value)).to_vec(),
            body: body.into(),
            durable: true,
        };
        match retry::publish(&self.bus, message.clone()).await {
            // Somebody deleted its queue.
            Err(PublishError::Unroutable(_)) => {
                let declared = self.bus.declare_queue(&queue).await;
                declared.map_err(|_| PublishError::Unroutable(name.to_string()))?;
                retry::publish(&self.bus, message).await
            }
            sent => sent,
        }
    }

    /// Waits for an answer; time counts while a copy of the participant is there to answer, and else towards the bound on
    /// its absence.
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
                return Err(format!("nobody has listened for {limit}"));
            }
        }
        Err(format!("no answer within {limit}"))
    }

    /// Whether a copy listens; where the broker does not say, as if. While the broker is away nobody does.
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
            // Whatever it says: an answer of no use would be of no use again, and one that is lost now is asked for again.
            delivery.ack().await;
        }
        // Whoever waits is told so by the sender that is dropped.
        self.asked().clear();
    }

    fn take(&self, delivery: &Delivery) {
        let Some(correlation) = delivery.correlation_id.as_deref() else {
            tracing::warn!(key = delivery.routing_key, "an answer has no correlation id");
            return;
        };
        let mut asked = self.asked();
        let Some(question) = asked.get(correlation) else {
            tracing::debug!(correlation, "an answer came late or again");
            return;
        };
        let of = question.of.as_str();
        if let Err(error) = heard::answer(&self.topology, delivery, &self.incarnation, of) {
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
            tracing::info!(participant = %name, "the participant is there again");
            self.reminded = None;
        }
        if !there && self.reminded.is_none_or(|at| at.elapsed() >= REMIND) {
            tracing::warn!(participant = %name, "no copy of the participant is connected; its questions wait for one");
            self.reminded = Some(Instant::now());
        }
        self.there = there;
    }
}

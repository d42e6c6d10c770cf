//! The names of all queues, exchanges and routing keys. No other module spells one.
//!
//! | plane | exchange | queue | routing key |
//! |---|---|---|---|
//! | tasks | `R.tasks` | `R.tasks.v1` | `<run>.any.task.published` |
//! | reclaim | `R.reclaim` | `R.reclaim.v1` | `<run>.any.task.reclaim` |
//! | reserve | `R.A.reserve` | `R.A.reserve.v1` | `<run>.A.group.reserve` |
//! | turns | `R.A.turns` | `R.A.turns.v1` | `<run>.A.turn.requested` |
//! | samples | `R.A.samples` | `R.A.samples.v1` | `<run>.A.samples.bundle` |
//! | results | `R.results` (topic) | `R.I.results.v1` (expires) | `<run>.I.A.turn.finished` |
//! | inference | `R.inference` (topic) | each onlooker's own | `<run>.A.<role>.turn`, `.ended` |
//! | questions | `R.P.questions` | `R.P.questions.v1` | `<run>.P.question.asked` |
//! | answers | `R.results` (topic) | `R.I.answers.v1` (expires) | `<run>.I.P.question.answered` |
//! | control | `R.control` (topic) | exclusive | `<run>.all.<from>.<subject>.<event>` |
//! | dead | `R.dead` | `R.dead.v1` | `<run>.any.dead` |
//!
//! `R` is `dyad.<run>`, `A` the agent, `I` the coordinator's incarnation, `P` the participant.
//!
//! Two rules let RabbitMQ's permissions suffice (`access.rs` assigns them):
//!
//! - Each agent's messages have their own exchanges, because a user that may read an exchange may
//!   also bind another queue to it.
//! - An exchange with several writers is a topic exchange, and the routing key names the writer.
//!   Topic permissions then restrict each writer to its own name.

mod access;
mod arguments;

use crate::ids::RunId;
use configs::{AgentName, ParticipantName};

pub use access::{Access, Principal, TopicAccess};
pub use arguments::Argument;

/// Part of a queue's name: its arguments are immutable, so other arguments need another name.
pub const VERSION: &str = "v1";
/// The number of deliveries after which RabbitMQ gives a message up. dyad gives up after 3 crashes;
/// this is the last resort.
pub const DELIVERY_LIMIT: i64 = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Plane {
    Tasks,
    Reclaim,
    Reserve,
    Turns,
    Results,
    Samples,
    Questions,
    Answers,
    Inference,
    Control,
    Dead,
}

impl Plane {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Plane::Tasks => "tasks",
            Plane::Reclaim => "reclaim",
            Plane::Reserve => "reserve",
            Plane::Turns => "turns",
            Plane::Results => "results",
            Plane::Samples => "samples",
            Plane::Questions => "questions",
            Plane::Answers => "answers",
            Plane::Inference => "inference",
            Plane::Control => "control",
            Plane::Dead => "dead",
        }
    }
}

/// The routing of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeKind {
    Direct,
    Topic,
    Fanout,
}

/// An exchange to declare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    pub name: String,
    pub kind: ExchangeKind,
}

/// The kind of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// Quorum queue that dead-letters at least once and rejects publishes when full.
    Durable {
        single_active_consumer: bool,
        expires_after_seconds: Option<u32>,
    },
    /// The dead-letter queue itself: quorum, no limit, and no dead letters behind it.
    DeadLetters,
    /// Exclusive to its connection and deleted with it, for heartbeats and onlookers. Drops its
    /// oldest messages.
    Exclusive,
}

/// A queue to declare, with its binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub name: String,
    pub kind: QueueKind,
    pub exchange: Exchange,
    pub routing_key: String,
    /// The bytes after which it rejects publishes (durable) or drops its oldest messages
    /// (exclusive).
    pub max_bytes: u64,
}

impl Queue {
    /// Returns the address of this queue's dead letters, or `None` if it has none.
    #[must_use]
    pub fn dead_letters(&self) -> Option<Address> {
        // Neither run names nor planes contain a dot.
        let run = match self.kind {
            QueueKind::Durable { .. } => self.exchange.name.split('.').nth(1)?,
            QueueKind::DeadLetters | QueueKind::Exclusive => return None,
        };
        let topology = Topology::new(RunId::new(run)?);
        Some(topology.to(&topology.dead()))
    }
}

/// The destination of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    pub exchange: String,
    pub routing_key: String,
}

/// A sender on the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker<'a> {
    Agent(&'a AgentName),
    Coordinator,
    /// A person who gives orders.
    Operator,
}

/// All names of one run.
#[derive(Debug, Clone)]
pub struct Topology {
    run: RunId,
}

const MIB: u64 = 1 << 20;

impl Topology {
    #[must_use]
    pub fn new(run: RunId) -> Self {
        Self { run }
    }

    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the beginning of every name of this run.
    fn prefix(&self) -> String {
        format!("dyad.{}.", self.run)
    }

    fn exchange(&self, plane: Plane, owner: Option<&str>) -> Exchange {
        let kind = match plane {
            Plane::Inference | Plane::Control | Plane::Results | Plane::Answers => ExchangeKind::Topic,
            _ => ExchangeKind::Direct,
        };
        let name = match (plane, owner) {
            (Plane::Reserve | Plane::Turns | Plane::Samples | Plane::Questions, Some(owner)) => {
                format!("dyad.{}.{owner}.{}", self.run, plane.as_str())
            }
            // Answers use the results exchange, with their sender's name in the key.
            (Plane::Answers, _) => format!("dyad.{}.{}", self.run, Plane::Results.as_str()),
            _ => format!("dyad.{}.{}", self.run, plane.as_str()),
        };
        Exchange { name, kind }
    }

    fn event(plane: Plane) -> &'static str {
        match plane {
            Plane::Tasks => "task.published",
            Plane::Reclaim => "task.reclaim",
            Plane::Reserve => "group.reserve",
            Plane::Turns => "turn.requested",
            Plane::Results => "turn.finished",
            Plane::Samples => "samples.bundle",
            Plane::Questions => "question.asked",
            Plane::Answers => "question.answered",
            Plane::Inference | Plane::Control => "#",
            Plane::Dead => "dead",
        }
    }

    fn queue(&self, plane: Plane, owner: Option<&str>, kind: QueueKind, max_bytes: u64) -> Queue {
        let name = match owner {
            Some(owner) => format!("dyad.{}.{owner}.{}.{VERSION}", self.run, plane.as_str()),
            None => format!("dyad.{}.{}.{VERSION}", self.run, plane.as_str()),
        };
        let routing_key = format!("{}.{}.{}", self.run, owner.unwrap_or("any"), Self::event(plane));
        Queue {
            name,
            kind,
            exchange: self.exchange(plane, owner),
            routing_key,
            max_bytes,
        }
    }

    const DURABLE: QueueKind = QueueKind::Durable {
        single_active_consumer: false,
        expires_after_seconds: None,
    };
    const SINGLE: QueueKind = QueueKind::Durable {
        single_active_consumer: true,
        expires_after_seconds: None,
    };

    #[must_use]
    pub fn tasks(&self) -> Queue {
        self.queue(Plane::Tasks, None, Self::DURABLE, 1024 * MIB)
    }

    #[must_use]
    pub fn reclaim(&self) -> Queue {
        self.queue(Plane::Reclaim, None, Self::DURABLE, 1024 * MIB)
    }

    #[must_use]
    pub fn reserve(&self, agent: &AgentName) -> Queue {
        self.queue(Plane::Reserve, Some(agent.as_str()), Self::SINGLE, 256 * MIB)
    }

    #[must_use]
    pub fn turns(&self, agent: &AgentName) -> Queue {
        self.queue(Plane::Turns, Some(agent.as_str()), Self::DURABLE, 512 * MIB)
    }

    /// Returns the results queue of one start of one coordinator. It expires after ten minutes
    /// without a consumer.
    #[must_use]
    pub fn results(&self, incarnation: &str) -> Queue {
        let kind = QueueKind::Durable {
            single_active_consumer: false,
            expires_after_seconds: Some(600),
        };
        let mut queue = self.queue(Plane::Results, Some(incarnation), kind, 512 * MIB);
        queue.routing_key = self.to_results(incarnation, "*").routing_key;
        queue
    }

    #[must_use]
    pub fn samples(&self, agent: &AgentName) -> Queue {
        self.queue(Plane::Samples, Some(agent.as_str()), Self::SINGLE, 1024 * MIB)
    }

    /// Returns the queue of questions to a remote participant, from all coordinators. Copies of the
    /// participant share it.
    #[must_use]
    pub fn questions(&self, participant: &ParticipantName) -> Queue {
        self.queue(Plane::Questions, Some(participant.as_str()), Self::DURABLE, 256 * MIB)
    }

    /// Returns the queue of remote participants' answers to this incarnation. It expires like the
    /// results.
    #[must_use]
    pub fn answers(&self, incarnation: &str) -> Queue {
        let kind = QueueKind::Durable {
            single_active_consumer: false,
            expires_after_seconds: Some(600),
        };
        let mut queue = self.queue(Plane::Answers, Some(incarnation), kind, 256 * MIB);
        queue.routing_key = self.to_answers(incarnation, "*").routing_key;
        queue
    }

    /// Returns the control queue of one process. `listener` must differ for every process.
    #[must_use]
    pub fn control(&self, listener: &str) -> Queue {
        let mut queue = self.queue(Plane::Control, Some(listener), QueueKind::Exclusive, 4 * MIB);
        queue.routing_key = format!("{}.#", self.run);
        queue
    }

    /// Returns the queue of all shared turns and ends of the run, for an onlooker.
    #[must_use]
    pub fn inference(&self, listener: &str) -> Queue {
        let mut queue = self.queue(Plane::Inference, Some(listener), QueueKind::Exclusive, 16 * MIB);
        queue.routing_key = format!("{}.#", self.run);
        queue
    }

    #[must_use]
    pub fn dead(&self) -> Queue {
        self.queue(Plane::Dead, None, QueueKind::DeadLetters, 1024 * MIB)
    }

    #[must_use]
    pub fn to(&self, queue: &Queue) -> Address {
        Address {
            exchange: queue.exchange.name.clone(),
            routing_key: queue.routing_key.clone(),
        }
    }

    #[must_use]
    pub fn to_inference(&self, agent: &AgentName, role: &str) -> Address {
        Address {
            exchange: self.exchange(Plane::Inference, None).name,
            routing_key: format!("{}.{agent}.{role}.turn", self.run),
        }
    }

    /// Returns the address of ended conversations.
    #[must_use]
    pub fn to_ended(&self) -> Address {
        Address {
            exchange: self.exchange(Plane::Inference, None).name,
            routing_key: format!("{}.ended", self.run),
        }
    }

    /// Returns the address of an agent's results to the coordinator of this incarnation.
    #[must_use]
    pub fn to_results(&self, incarnation: &str, agent: &str) -> Address {
        Address {
            exchange: self.exchange(Plane::Results, None).name,
            routing_key: format!("{}.{incarnation}.{agent}.{}", self.run, Self::event(Plane::Results)),
        }
    }

    /// Returns the address of a participant's answers to the coordinator of this incarnation.
    #[must_use]
    pub fn to_answers(&self, incarnation: &str, participant: &str) -> Address {
        let event = Self::event(Plane::Answers);
        Address {
            exchange: self.exchange(Plane::Answers, None).name,
            routing_key: format!("{}.{incarnation}.{participant}.{event}", self.run),
        }
    }

    /// Returns the address of all processes of the run, with the speaker's own name in the key.
    #[must_use]
    pub fn to_control(&self, from: Speaker<'_>) -> Address {
        let (name, event) = match from {
            Speaker::Agent(name) => (name.as_str(), "agent.heartbeat"),
            Speaker::Coordinator => ("any", "coordinator.heartbeat"),
            Speaker::Operator => ("any", "run.command"),
        };
        Address {
            exchange: self.exchange(Plane::Control, None).name,
            routing_key: format!("{}.all.{name}.{event}", self.run),
        }
    }

    /// Returns the queues of the whole run, dead letters first: a queue without its dead-letter
    /// exchange drops messages silently.
    #[must_use]
    pub fn durable_queues(&self, agents: &[AgentName]) -> Vec<Queue> {
        let shared = [self.dead(), self.tasks(), self.reclaim()];
        let own = agents
            .iter()
            .flat_map(|a| [self.reserve(a), self.turns(a), self.samples(a)]);
        shared.into_iter().chain(own).collect()
    }

    /// Returns the exchanges without a durable queue.
    #[must_use]
    pub fn other_exchanges(&self) -> Vec<Exchange> {
        [Plane::Results, Plane::Inference, Plane::Control]
            .map(|plane| self.exchange(plane, None))
            .to_vec()
    }
}

//! Every queue, exchange and routing key by name. Nothing else in the project spells one.
//!
//! | plane | exchange | queue | routing key |
//! |---|---|---|---|
//! | tasks | `dyad.<run>.tasks` | `dyad.<run>.tasks.v1` | `<run>.any.task.published` |
//! | reclaim | `dyad.<run>.reclaim` | `dyad.<run>.reclaim.v1` | `<run>.any.task.reclaim` |
//! | reserve | `dyad.<run>.<agent>.reserve` | `dyad.<run>.<agent>.reserve.v1` | `<run>.<agent>.group.reserve` |
//! | turns | `dyad.<run>.<agent>.turns` | `dyad.<run>.<agent>.turns.v1` | `<run>.<agent>.turn.requested` |
//! | samples | `dyad.<run>.<agent>.samples` | `dyad.<run>.<agent>.samples.v1` | `<run>.<agent>.samples.bundle` |
//! | results | `dyad.<run>.results` (topic) | `dyad.<run>.<incarnation>.results.v1` (expires) | `<run>.<incarnation>.<agent>.turn.finished` |
//! | inference | `dyad.<run>.inference` (topic) | by whoever listens | `<run>.<agent>.<role>.turn` |
//! | questions | `dyad.<run>.<participant>.questions` | `dyad.<run>.<participant>.questions.v1` | `<run>.<participant>.question.asked` |
//! | answers | `dyad.<run>.results` (topic) | `dyad.<run>.<incarnation>.answers.v1` (expires) | `<run>.<incarnation>.<participant>.question.answered` |
//! | control | `dyad.<run>.control` (topic) | exclusive, by each process | `<run>.all.<from>.<subject>.<event>` |
//! | dead | `dyad.<run>.dead` | `dyad.<run>.dead.v1` | `<run>.any.dead` |
//!
//! Two rules make RabbitMQ's permissions enough (`access.rs` has who gets which). What one agent receives has exchanges of
//! its own: whoever may read an exchange may bind a queue of its own to it. Where several processes write to one exchange
//! it is a topic exchange and the key names the writer: topic permissions then keep each to its own name.

mod access;
mod arguments;

use crate::ids::RunId;
use configs::{AgentName, ParticipantName};

pub use access::{Access, Principal, TopicAccess};
pub use arguments::Argument;

/// Part of a queue's name: its arguments are immutable, so another set needs another name.
pub const VERSION: &str = "v1";
/// Deliveries after which RabbitMQ itself gives a message up. Ours gives up after 3 crashes; this is the backstop.
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

/// How an exchange routes.
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

/// What kind of queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// Quorum queue, dead-lettering at least once, refusing publishes when full.
    Durable {
        single_active_consumer: bool,
        expires_after_seconds: Option<u32>,
    },
    /// The dead-letter queue itself: quorum, no limit, nothing behind it.
    DeadLetters,
    /// Exclusive to its connection and gone with it; for heartbeats and onlookers. Old messages fall out of it.
    Exclusive,
}

/// A queue to declare, with its binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub name: String,
    pub kind: QueueKind,
    pub exchange: Exchange,
    pub routing_key: String,
    /// Bytes it holds before it refuses (durable) or forgets its oldest (exclusive).
    pub max_bytes: u64,
}

impl Queue {
    /// Where the broker puts what this queue gives up; `None` for queues that have nothing behind them.
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

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    pub exchange: String,
    pub routing_key: String,
}

/// Who speaks on the control plane.
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

    /// What every name of this run begins with.
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
            // They come as results do: under the name of who speaks.
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

    /// `incarnation` names one start of one coordinator; the queue expires when nobody has listened for ten minutes.
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

    /// What a remote participant is asked, by all coordinators; its copies share it.
    #[must_use]
    pub fn questions(&self, participant: &ParticipantName) -> Queue {
        self.queue(Plane::Questions, Some(participant.as_str()), Self::DURABLE, 256 * MIB)
    }

    /// Answers of remote participants to the coordinator of this incarnation; it expires as its results do.
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

    /// `listener` must differ for every process.
    #[must_use]
    pub fn control(&self, listener: &str) -> Queue {
        let mut queue = self.queue(Plane::Control, Some(listener), QueueKind::Exclusive, 4 * MIB);
        queue.routing_key = format!("{}.#", self.run);
        queue
    }

    /// All shared turns of the run, for an onlooker.
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

    /// To the coordinator of this incarnation, as this agent.
    #[must_use]
    pub fn to_results(&self, incarnation: &str, agent: &str) -> Address {
        Address {
            exchange: self.exchange(Plane::Results, None).name,
            routing_key: format!("{}.{incarnation}.{agent}.{}", self.run, Self::event(Plane::Results)),
        }
    }

    /// To the coordinator of this incarnation, as this participant.
    #[must_use]
    pub fn to_answers(&self, incarnation: &str, participant: &str) -> Address {
        let event = Self::event(Plane::Answers);
        Address {
            exchange: self.exchange(Plane::Answers, None).name,
            routing_key: format!("{}.{incarnation}.{participant}.{event}", self.run),
        }
    }

    /// To every process of the run, under the speaker's own name.
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

    /// What exists for the whole run, dead-letter side first: a queue whose dead-letter exchange is missing drops silently.
    #[must_use]
    pub fn durable_queues(&self, agents: &[AgentName]) -> Vec<Queue> {
        let shared = [self.dead(), self.tasks(), self.reclaim()];
        let own = agents
            .iter()
            .flat_map(|a| [self.reserve(a), self.turns(a), self.samples(a)]);
        shared.into_iter().chain(own).collect()
    }

    /// Exchanges without a durable queue of their own.
    #[must_use]
    pub fn other_exchanges(&self) -> Vec<Exchange> {
        [Plane::Results, Plane::Inference, Plane::Control]
            .map(|plane| self.exchange(plane, None))
            .to_vec()
    }
}

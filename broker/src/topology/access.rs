//! Each user's permissions in a run, in RabbitMQ's form: regular expressions over names.
//!
//! | permission | on a queue | on an exchange |
//! |---|---|---|
//! | configure | declare, delete | declare, delete |
//! | write | bind it to an exchange | publish |
//! | read | consume | bind a queue to it |
//!
//! On topic exchanges a second pair of expressions restricts the routing keys for write and read.
//! RabbitMQ allows any key to a user without such a pair, so every user gets a pair for every topic
//! exchange.

use super::{Plane, Queue, Speaker, Topology};
use configs::{AgentName, ParticipantName};

/// The owner of a RabbitMQ user: a process of the run, or a person who uses dyad's commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    Coordinator,
    Agent(AgentName),
    /// Publishes tasks.
    Publisher,
    /// Sends commands to the run, handles dead letters and requeues tasks.
    Operator,
    /// Receives heartbeats, the committed text of turns, and rewards.
    Onlooker,
    /// Answers the questions that coordinators ask it.
    Participant(ParticipantName),
}

/// The permissions of a user: regular expressions over the names of queues and exchanges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub configure: String,
    pub write: String,
    pub read: String,
    pub topics: Vec<TopicAccess>,
}

/// The routing keys of a topic exchange that a user may publish (write) and bind (read).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicAccess {
    pub exchange: String,
    pub write: String,
    pub read: String,
}

/// Matches no existing name.
const NOTHING: &str = "^$";
/// Stands in a name for a part that is chosen at run time; an expression then replaces it. Names
/// have no capitals, so it matches no other part.
const LISTENER: &str = "LISTENER";
/// Matches a random part of a name.
const RANDOM: &str = "[0-9a-z]+";

impl Principal {
    /// Returns all users of a run.
    #[must_use]
    pub fn all(agents: &[AgentName], participants: impl IntoIterator<Item = ParticipantName>) -> Vec<Self> {
        let agents = agents.iter().cloned().map(Self::Agent);
        let people = [Self::Publisher, Self::Operator, Self::Onlooker];
        let participants = participants.into_iter().map(Self::Participant);
        let processes = std::iter::once(Self::Coordinator).chain(agents);
        processes.chain(people).chain(participants).collect()
    }

    /// Returns the principal's part of user names and file names, for example `agent-a`.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Coordinator => "coordinator".into(),
            Self::Agent(name) => format!("agent-{name}"),
            Self::Publisher => "publisher".into(),
            Self::Operator => "operator".into(),
            Self::Onlooker => "onlooker".into(),
            Self::Participant(name) => format!("participant-{name}"),
        }
    }

    /// Returns true if the principal uses Redis: only coordinators do.
    #[must_use]
    pub fn uses_the_store(&self) -> bool {
        *self == Self::Coordinator
    }
}

/// Expressions for the names that a user may access, one list for each permission.
#[derive(Default)]
struct Names {
    configure: Vec<String>,
    write: Vec<String>,
    read: Vec<String>,
}

impl Names {
    /// Adds a queue that the user declares, binds and reads. In its name `listener` replaces
    /// [`LISTENER`].
    fn own(&mut self, queue: &Queue, listener: &str) {
        let name = literal(&queue.name).replace(LISTENER, listener);
        for right in [&mut self.configure, &mut self.write, &mut self.read] {
            right.push(name.clone());
        }
    }

    /// Adds a queue of the user and the queue's exchange, which only this user reads.
    fn inbox(&mut self, queue: &Queue) {
        self.own(queue, "");
        for right in [&mut self.configure, &mut self.read] {
            right.push(literal(&queue.exchange.name));
        }
    }

    fn write(&mut self, exchange: &str) {
        self.write.push(literal(exchange));
    }

    fn read(&mut self, name: &str) {
        self.read.push(literal(name));
    }
}

impl Topology {
    /// Returns the name of a user of this run.
    #[must_use]
    pub fn user(&self, principal: &Principal) -> String {
        format!("{}.{}", self.run(), principal.label())
    }

    /// Returns true if a user of this run is one of its agents.
    #[must_use]
    pub fn is_agent(&self, user: &str) -> bool {
        let name = user
            .strip_prefix(self.run().as_str())
            .and_then(|rest| rest.strip_prefix(".agent-"));
        name.is_some_and(|name| AgentName::new(name).is_ok())
    }

    /// Returns the permissions of a user. All other names are refused, in this run and others.
    #[must_use]
    pub fn access(&self, principal: &Principal) -> Access {
        let mut names = Names::default();
        match principal {
            Principal::Coordinator => return self.whole_run(),
            Principal::Agent(name) => self.agent_names(name, &mut names),
            Principal::Publisher => names.write(&self.tasks().exchange.name),
            Principal::Operator => self.operator_names(&mut names),
            Principal::Onlooker => self.onlooker_names(&mut names),
            Principal::Participant(name) => self.participant_names(name, &mut names),
        }
        Access {
            configure: any_of(&names.configure),
            write: any_of(&names.write),
            read: any_of(&names.read),
            topics: self.topics(principal),
        }
    }

    fn agent_names(&self, name: &AgentName, names: &mut Names) {
        for inbox in [self.reserve(name), self.turns(name), self.samples(name)] {
            names.inbox(&inbox);
        }
        names.own(&self.control(LISTENER), &format!("{name}-{RANDOM}"));
        names.read(&self.control(LISTENER).exchange.name);
        for queue in [
            self.reclaim(),
            self.results(LISTENER),
            self.control(LISTENER),
            self.dead(),
        ] {
            names.write(&queue.exchange.name);
        }
    }

    fn operator_names(&self, names: &mut Names) {
        names.own(&self.control(LISTENER), "(order|status)-[0-9]+");
        names.read(&self.control(LISTENER).exchange.name);
        names.read(&self.dead().name);
        for queue in [self.tasks(), self.control(LISTENER)] {
            names.write(&queue.exchange.name);
        }
    }

    fn onlooker_names(&self, names: &mut Names) {
        names.own(&self.control(LISTENER), "status-[0-9]+");
        names.own(&self.inference(LISTENER), &format!("onlooker-{RANDOM}"));
        names.read(&self.control(LISTENER).exchange.name);
        names.read(&self.inference(LISTENER).exchange.name);
    }

    /// Adds a participant's names. It declares nothing: coordinators declare its queue.
    fn participant_names(&self, name: &ParticipantName, names: &mut Names) {
        names.read(&self.questions(name).name);
        names.write(&self.to_answers(LISTENER, name.as_str()).exchange);
    }

    fn topics(&self, principal: &Principal) -> Vec<TopicAccess> {
        let every_key = format!("^{}\\.", self.run());
        let topic = |plane: Plane, write: Option<String>, read: bool| TopicAccess {
            exchange: self.exchange(plane, None).name,
            write: write.unwrap_or_else(|| NOTHING.into()),
            read: if read { every_key.clone() } else { NOTHING.into() },
        };
        let control_key = |speaker| Some(key(&self.to_control(speaker).routing_key, ""));
        let (results, control) = match principal {
            Principal::Coordinator => (None, control_key(Speaker::Coordinator)),
            Principal::Agent(name) => {
                let answer = self.to_results(LISTENER, name.as_str()).routing_key;
                (Some(key(&answer, RANDOM)), control_key(Speaker::Agent(name)))
            }
            Principal::Operator => (None, control_key(Speaker::Operator)),
            Principal::Participant(name) => {
                let answer = self.to_answers(LISTENER, name.as_str()).routing_key;
                (Some(key(&answer, RANDOM)), None)
            }
            Principal::Publisher | Principal::Onlooker => (None, None),
        };
        let is_coordinator = *principal == Principal::Coordinator;
        let is_onlooker = *principal == Principal::Onlooker;
        let reads_control = !matches!(principal, Principal::Publisher | Principal::Participant(_));
        vec![
            topic(Plane::Results, results, is_coordinator),
            topic(Plane::Control, control, reads_control),
            topic(Plane::Inference, is_coordinator.then(|| every_key.clone()), is_onlooker),
        ]
    }

    /// Returns a coordinator's permissions: the whole run, since coordinators declare its queues
    /// and hold all its tasks.
    fn whole_run(&self) -> Access {
        let names = format!("^{}", literal(&self.prefix()));
        Access {
            configure: names.clone(),
            write: names.clone(),
            read: names,
            topics: self.topics(&Principal::Coordinator),
        }
    }
}

/// Escapes a name. Names consist of letters, digits, `-`, `_` and dots, and only the dot has a
/// special meaning in an expression.
fn literal(name: &str) -> String {
    name.replace('.', "\\.")
}

/// Returns an expression that matches exactly these names, themselves expressions.
fn any_of(names: &[String]) -> String {
    if names.is_empty() {
        return NOTHING.into();
    }
    format!("^({})$", names.join("|"))
}

/// Returns an expression for a routing key, in which `listener` replaces [`LISTENER`].
fn key(routing_key: &str, listener: &str) -> String {
    format!("^{}$", literal(routing_key).replace(LISTENER, listener))
}

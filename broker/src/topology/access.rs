//! Each user's permissions in a run, in RabbitMQ's form: regular expressions over names.
//!
//! Configure declares and deletes. Write publishes to an exchange and binds a queue. Read consumes
//! from a queue and binds to an exchange.
//!
//! On topic exchanges a second pair of expressions restricts the routing key. Without such a pair,
//! a user may write and bind any key there, so every user gets a pair for every topic exchange.

use super::{Plane, Queue, Speaker, Topology};
use configs::{AgentName, ParticipantName};

/// A kind of process with its own user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    Coordinator,
    Agent(AgentName),
    /// Publishes tasks.
    Publisher,
    /// Gives orders, handles dead letters, requeues tasks.
    Operator,
    /// Receives heartbeats and shared turns.
    Onlooker,
    /// Answers questions.
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

/// Routing keys of a topic exchange that a user may publish and bind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicAccess {
    pub exchange: String,
    pub write: String,
    pub read: String,
}

/// Matches no existing name.
const NOTHING: &str = "^$";
/// A placeholder for a name chosen at run time, replaced by its expression. No name has capitals.
const LISTENER: &str = "LISTENER";
/// Matches the random part of such a name.
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

    /// Returns the name in users and files: `agent-a`.
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

    /// Returns true for coordinators: they alone use the store.
    #[must_use]
    pub fn uses_the_store(&self) -> bool {
        *self == Self::Coordinator
    }
}

/// Names that a user may access, one list for each permission.
#[derive(Default)]
struct Names {
    configure: Vec<String>,
    write: Vec<String>,
    read: Vec<String>,
}

impl Names {
    /// Adds the user's own queue: declared, bound and read.
    fn own(&mut self, queue: &Queue, listener: &str) {
        let name = literal(&queue.name).replace(LISTENER, listener);
        for right in [&mut self.configure, &mut self.write, &mut self.read] {
            right.push(name.clone());
        }
    }

    /// Adds the user's own queue, with an exchange that only this user reads.
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
    pub fn user(&self, who: &Principal) -> String {
        format!("{}.{}", self.run(), who.label())
    }

    /// Returns true if a user of this run is one of its agents.
    #[must_use]
    pub fn is_agent(&self, user: &str) -> bool {
        let name = user
            .strip_prefix(self.run().as_str())
            .and_then(|rest| rest.strip_prefix(".agent-"));
        name.is_some_and(|name| AgentName::new(name).is_ok())
    }

    /// Returns the permissions of a user: nothing else of this run or of any other.
    #[must_use]
    pub fn access(&self, who: &Principal) -> Access {
        let mut names = Names::default();
        match who {
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
            topics: self.topics(who),
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

    fn topics(&self, who: &Principal) -> Vec<TopicAccess> {
        let every_key = format!("^{}\\.", self.run());
        let topic = |plane: Plane, write: Option<String>, read: bool| TopicAccess {
            exchange: self.exchange(plane, None).name,
            write: write.unwrap_or_else(|| NOTHING.into()),
            read: if read { every_key.clone() } else { NOTHING.into() },
        };
        let speaks = |speaker| Some(key(&self.to_control(speaker).routing_key, ""));
        let (results, control) = match who {
            Principal::Coordinator => (None, speaks(Speaker::Coordinator)),
            Principal::Agent(name) => {
                let answer = self.to_results(LISTENER, name.as_str()).routing_key;
                (Some(key(&answer, RANDOM)), speaks(Speaker::Agent(name)))
            }
            Principal::Operator => (None, speaks(Speaker::Operator)),
            Principal::Participant(name) => {
                let answer = self.to_answers(LISTENER, name.as_str()).routing_key;
                (Some(key(&answer, RANDOM)), None)
            }
            Principal::Publisher | Principal::Onlooker => (None, None),
        };
        let coordinator = *who == Principal::Coordinator;
        let onlooker = *who == Principal::Onlooker;
        let listens = !matches!(who, Principal::Publisher | Principal::Participant(_));
        vec![
            topic(Plane::Results, results, coordinator),
            topic(Plane::Control, control, listens),
            topic(Plane::Inference, coordinator.then(|| every_key.clone()), onlooker),
        ]
    }

    /// Returns a coordinator's permissions. Coordinators declare the run's queues and hold all its
    /// tasks, so they may access the whole run, and nothing else.
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

/// Escapes a name. Names consist of letters, digits, `-`, `_` and dots: only the dot has another
/// meaning in an expression.
fn literal(name: &str) -> String {
    name.replace('.', "\\.")
}

fn any_of(names: &[String]) -> String {
    if names.is_empty() {
        return NOTHING.into();
    }
    format!("^({})$", names.join("|"))
}

fn key(routing_key: &str, listener: &str) -> String {
    format!("^{}$", literal(routing_key).replace(LISTENER, listener))
}

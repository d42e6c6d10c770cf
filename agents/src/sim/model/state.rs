//! What there is: two agents with their ledgers, two coordinators, messages on their way, a store.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use broker::ids::Attempt;
use broker::store::Lease;
use broker::store::groups::Groups;
use bytes::Bytes;

use super::play::Heard;
use crate::ledger::tests::custody::{CustodyModel, Part};

/// The one task's number in the ledgers.
pub(super) const TASK: u64 = 0;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// Messages of the task in the queues of tasks, of published ones and of those handed back alike.
    pub queue: u8,
    pub agents: [Agent; 2],
    pub coordinators: [Coordinator; 2],
    /// On their way, each so many times; they arrive in any order.
    pub messages: BTreeMap<Message, u8>,
    /// As it is, and before that as it was: each of them may come back.
    pub store: Rc<Stored>,
    pub past: Vec<Rc<Stored>>,
    /// The agents are about to tell what is reserved to the coordinators.
    pub tells: bool,
    pub attempts: u8,
    /// Faults that may still come.
    pub faults: u8,
    /// The store has lost something.
    pub lost: bool,
    /// The newest lease that was given, and the first answer to each turn that was committed: for the promises alone.
    pub newest: Option<Lease>,
    pub committed: BTreeMap<(Attempt, u8), u8>,
    /// What has gone wrong in the last step, if that shows in no state.
    pub wrong: Option<&'static str>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Agent {
    pub ledger: CustodyModel,
    /// How often it has died: what it samples afterwards is another answer.
    pub life: u8,
    pub closings: u8,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Coordinator {
    /// How often it has died; it is started again at once and knows nothing.
    pub life: u8,
    /// Its beats do not come, whatever else it does.
    pub silent: bool,
    /// Deliveries of the task that it has not acked.
    pub holds: u8,
    pub phase: Phase,
    /// Commits on their way to the store.
    pub commits: Vec<Commit>,
}

/// What a coordinator has of the group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// Waits for the answer of agent `at`.
    Admitting {
        at: usize,
        open: bool,
    },
    /// Is about to claim; `watched` is the (beat, fence) of the other owner as it was seen.
    Claiming {
        watched: Option<(u64, u64)>,
    },
    Open(Open),
    /// Every conversation has ended.
    Closing {
        open: Open,
        sending: Option<u8>,
    },
    /// Is about to forget what is stored.
    Voiding {
        lease: Lease,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Open {
    pub lease: Lease,
    pub heard: Vec<Heard>,
    /// The turn that was asked for last.
    pub asked: Option<u8>,
    /// The outcome that an earlier owner has written.
    pub decided: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Commit {
    pub lease: Lease,
    pub turn: u8,
    pub answer: u8,
}

/// A coordinator and its life: what is addressed to an earlier one goes nowhere.
pub(super) type Incarnation = (usize, u8);

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Message {
    Reserve {
        to: usize,
        from: Incarnation,
    },
    Answer {
        to: Incarnation,
        from: usize,
        granted: bool,
    },
    Request {
        reply: Incarnation,
        attempt: Attempt,
        turn: u8,
    },
    Result {
        to: Incarnation,
        attempt: Attempt,
        turn: u8,
        answer: Option<u8>,
    },
    Part {
        to: usize,
        part: Part,
    },
}

impl Message {
    /// The coordinator to which it goes, if it goes to one.
    pub(super) fn coordinator(&self) -> Option<Incarnation> {
        match self {
            Self::Answer { to, .. } | Self::Result { to, .. } => Some(*to),
            _ => None,
        }
    }
}

impl State {
    pub(super) fn new(messages: u8, faults: u8) -> Self {
        Self {
            queue: messages,
            agents: Default::default(),
            coordinators: Default::default(),
            messages: BTreeMap::new(),
            store: Rc::default(),
            past: Vec::new(),
            tells: false,
            attempts: 0,
            faults,
            lost: false,
            newest: None,
            committed: BTreeMap::new(),
            wrong: None,
        }
    }

    pub(super) fn incarnation(&self, c: usize) -> Incarnation {
        (c, self.coordinators[c].life)
    }

    pub(super) fn send(&mut self, message: Message) {
        let dead = |(c, life): Incarnation| self.coordinators[c].life != life;
        if !message.coordinator().is_some_and(dead) {
            *self.messages.entry(message).or_default() += 1;
        }
    }

    pub(super) fn receive(&mut self, message: &Message) {
        if let Some(count) = self.messages.get_mut(message) {
            *count -= 1;
            if *count == 0 {
                self.messages.remove(message);
            }
        }
    }

    /// One call of the store.
    pub(super) fn call<T>(&mut self, call: impl FnOnce(&mut Groups) -> T) -> T {
        let mut groups = self.store.groups.clone();
        let answer = call(&mut groups);
        if groups != self.store.groups {
            let before = std::mem::replace(&mut self.store, Rc::new(Stored::new(groups)));
            if self.faults > 0 {
                self.past.push(before);
            }
        }
        answer
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.agents.iter().any(|agent| agent.ledger.is_reserved(TASK))
    }

    pub(super) fn fresh_attempt(&self) -> Attempt {
        Attempt([self.attempts + 1; 16])
    }
}

/// What a store holds, with its hash worked out once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    pub groups: Groups,
    hash: u64,
}

impl Stored {
    fn new(groups: Groups) -> Self {
        let mut hasher = DefaultHasher::new();
        groups.hash(&mut hasher);
        let hash = hasher.finish();
        Self { groups, hash }
    }
}

impl Hash for Stored {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The name by which the store knows an owner.
pub(super) fn owner((c, life): Incarnation) -> String {
    format!("{c}.{life}")
}

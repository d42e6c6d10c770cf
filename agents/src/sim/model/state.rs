//! The state of the system: two agents with their ledgers, two coordinators, messages in transit, a
//! store.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use broker::ids::Attempt;
use broker::store::Lease;
use broker::store::groups::Groups;
use bytes::Bytes;

use super::play::Received;
use crate::ledger::tests::custody::{CustodyModel, Part};

/// The number of the one task in the ledgers.
pub(super) const TASK: u64 = 0;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ModelState {
    /// The number of the task's messages in the queues of published and of returned tasks.
    pub queue: u8,
    pub agents: [ModelAgent; 2],
    pub coordinators: [ModelCoordinator; 2],
    /// Messages in transit, with their number; they arrive in any order.
    pub messages: BTreeMap<Message, u8>,
    /// The store's present state; its earlier states in `past` may return.
    pub store: Rc<Stored>,
    pub past: Vec<Rc<Stored>>,
    /// True if the agents are about to report their reserved groups to the coordinators.
    pub tells: bool,
    pub attempts: u8,
    /// The number of faults that may still happen.
    pub faults: u8,
    /// True if the store has lost data.
    pub lost: bool,
    /// The newest granted lease, and the first committed answer to each turn; only the promises use
    /// them.
    pub newest: Option<Lease>,
    pub committed: BTreeMap<(Attempt, u8), u8>,
    /// A violation in the last step that no state shows.
    pub wrong: Option<&'static str>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ModelAgent {
    pub ledger: CustodyModel,
    /// The number of its deaths: after each it samples a different answer.
    pub life: u8,
    pub closings: u8,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ModelCoordinator {
    /// The number of its deaths: it restarts at once without memory.
    pub life: u8,
    /// True if its heartbeats do not arrive, whatever else it does.
    pub silent: bool,
    /// The number of the task's deliveries that it has not acked.
    pub holds: u8,
    pub phase: CoordinatorPhase,
    /// Commits on their way to the store.
    pub commits: Vec<Commit>,
}

/// A coordinator's stage of the group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) enum CoordinatorPhase {
    #[default]
    Idle,
    /// Waits for the answer of agent `at`.
    Admitting {
        at: usize,
        open: bool,
    },
    /// About to claim; `watched` is the last (beat, fence) of the other owner.
    Claiming {
        watched: Option<(u64, u64)>,
    },
    Open(OpenGroup),
    /// Every conversation has ended.
    Closing {
        open: OpenGroup,
        sending: Option<u8>,
    },
    /// About to delete the stored group.
    Voiding {
        lease: Lease,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct OpenGroup {
    pub lease: Lease,
    pub received: Vec<Received>,
    /// The last turn that was asked for.
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

/// A coordinator and its life: messages to an earlier life are lost.
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
    /// The coordinator that the message is for, if any.
    pub(super) fn coordinator(&self) -> Option<Incarnation> {
        match self {
            Self::Answer { to, .. } | Self::Result { to, .. } => Some(*to),
            _ => None,
        }
    }
}

impl ModelState {
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

    /// Makes one call of the store.
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

/// The contents of a store, with a hash that is computed once.
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

/// The name under which the store lists an owner.
pub(super) fn owner((c, life): Incarnation) -> String {
    format!("{c}.{life}")
}

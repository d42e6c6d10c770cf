//! Holds the newest weights and the deltas that lead to them, for receivers to fetch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use broker::ids::WeightVersion;
use broker::protocol::engine::StateId;

use super::message::MESSAGES;
use super::{State, delta, full};

/// The number of remembered digests of states. No receiver still serves older weights.
const KNOWN: usize = 1024;

/// The states and deltas to fetch. A state is never changed, so a later step never alters data that
/// is being sent.
#[derive(Debug, Default)]
pub struct Shelf {
    content: Mutex<Content>,
    whole: AtomicU64,
    deltas: AtomicU64,
}

/// How often each kind was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub whole: u64,
    pub deltas: u64,
}

#[derive(Debug, Default)]
struct Content {
    newest: Option<Arc<Newest>>,
    /// The digests of the states that were put here.
    known: BTreeMap<WeightVersion, [u8; 32]>,
    /// Each link begins where the previous one ends; the last one ends at the newest state.
    links: VecDeque<Link>,
}

#[derive(Debug)]
struct Newest {
    state: State,
    /// Built at the first request.
    full: OnceLock<Arc<[u8]>>,
}

#[derive(Debug)]
struct Link {
    base: StateId,
    message: Arc<[u8]>,
}

/// The answer to a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// No weights were published yet.
    Nothing,
    /// The receiver holds the newest weights.
    Same(WeightVersion),
    /// Messages that lead to the newest weights, in order.
    Messages {
        version: WeightVersion,
        messages: Vec<Arc<[u8]>>,
        /// True if the messages begin from the held weights, false for the whole state.
        delta: bool,
    },
}

impl Shelf {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest weights.
    #[must_use]
    pub fn newest(&self) -> Option<StateId> {
        self.content().newest.as_ref().map(|newest| newest.state.id())
    }

    /// Returns true if exactly these weights were put here under their version.
    #[must_use]
    pub fn knows(&self, id: StateId) -> bool {
        self.content().known.get(&id.version) == Some(&id.digest)
    }

    /// The counts of offers so far.
    #[must_use]
    pub fn taken(&self) -> Taken {
        Taken {
            whole: self.whole.load(Ordering::Relaxed),
            deltas: self.deltas.load(Ordering::Relaxed),
        }
    }

    /// Adds a state as the newest. Returns `false` and changes nothing if the shelf has an equally
    /// new state.
    pub fn put(&self, state: State) -> bool {
        let before = self.content().newest.clone();
        if before
            .as_ref()
            .is_some_and(|before| before.state.version() >= state.version())
        {
            return false;
        }
        // Computed without the lock: it takes long, and only one thread adds states.
        let link = before.and_then(|before| {
            let message = delta(&before.state, &state)?.into();
            let base = before.state.id();
            Some(Link { base, message })
        });
        let most = state.form().bytes();
        let mut content = self.content();
        match link {
            Some(link) => content.links.push_back(link),
            None => content.links.clear(),
        }
        let length = |links: &VecDeque<Link>| links.iter().map(|link| link.message.len()).sum::<usize>();
        while content.links.len() > MESSAGES || length(&content.links) > most {
            content.links.pop_front();
        }
        content.known.insert(state.version(), state.id().digest);
        while content.known.len() > KNOWN {
            content.known.pop_first();
        }
        content.newest = Some(Arc::new(Newest {
            state,
            full: OnceLock::new(),
        }));
        true
    }

    /// Returns the messages from `held` to the newest weights. A delta is offered only if `held` is
    /// exactly the state that was put here under its version. May take long: the whole state is
    /// packed at the first request.
    #[must_use]
    pub fn offer(&self, held: Option<StateId>) -> Offer {
        let content = self.content();
        let Some(newest) = content.newest.clone() else {
            return Offer::Nothing;
        };
        let version = newest.state.version();
        if held == Some(newest.state.id()) {
            return Offer::Same(version);
        }
        let from = content.links.iter().position(|link| Some(link.base) == held);
        let links = from.map(|from| content.links.range(from..).map(|link| link.message.clone()).collect());
        drop(content);
        let count = if links.is_some() { &self.deltas } else { &self.whole };
        count.fetch_add(1, Ordering::Relaxed);
        Offer::Messages {
            version,
            delta: links.is_some(),
            messages: links.unwrap_or_else(|| vec![newest.full.get_or_init(|| full(&newest.state).into()).clone()]),
        }
    }
}

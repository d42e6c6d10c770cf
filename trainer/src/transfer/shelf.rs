//! Holds the newest weights, and the deltas from recent weights to them, for receivers to fetch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use broker::ids::WeightVersion;
use broker::protocol::engine::StateId;

use super::footprint::DELTA;
use super::header::LENGTH;
use super::message::MESSAGES;
use super::{Part, State, delta, full};

/// The number of newest states that are kept as digests. No receiver serves weights older than
/// these.
const MOST_DIGESTS: usize = 1024;

/// The newest state, and the deltas to it. States are immutable, so a later step never alters data
/// that is being sent.
#[derive(Debug, Default)]
pub struct Shelf {
    content: Mutex<Content>,
    /// Offers of the whole state so far.
    whole: AtomicU64,
    /// Offers of deltas so far.
    deltas: AtomicU64,
}

/// The number of offers of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfferCounts {
    pub whole: u64,
    pub deltas: u64,
}

#[derive(Debug, Default)]
struct Content {
    newest: Option<Arc<Newest>>,
    /// The digests of the states that were put on the shelf.
    digests: BTreeMap<WeightVersion, [u8; 32]>,
    /// The chain of deltas, oldest first. Each link begins where the previous one ends. The last
    /// one ends at the newest state.
    links: VecDeque<Link>,
}

#[derive(Debug)]
struct Newest {
    state: State,
    /// The packed message with the whole state, made at the first request.
    packed: OnceLock<Vec<Part>>,
}

impl Newest {
    fn whole(&self, pack: bool) -> Vec<Part> {
        if pack {
            self.packed.get_or_init(|| full(&self.state, true)).clone()
        } else {
            full(&self.state, false)
        }
    }
}

#[derive(Debug)]
struct Link {
    /// The state at which the delta begins.
    base: StateId,
    /// The delta.
    message: Arc<Vec<u8>>,
}

/// The answer to a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// No weights were published yet.
    Nothing,
    /// The receiver holds the newest weights.
    Same(WeightVersion),
    /// Messages that lead to the newest weights: their parts, in order.
    Messages {
        version: WeightVersion,
        parts: Vec<Part>,
        /// True for deltas from the held weights, false for the whole state.
        delta: bool,
    },
}

impl Shelf {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the id of the newest weights.
    #[must_use]
    pub fn newest(&self) -> Option<StateId> {
        self.content().newest.as_ref().map(|newest| newest.state.id())
    }

    /// Returns true if these weights were put on the shelf: version and digest must match.
    #[must_use]
    pub fn knows(&self, id: StateId) -> bool {
        self.content().digests.get(&id.version) == Some(&id.digest)
    }

    /// Returns the number of offers so far.
    #[must_use]
    pub fn offer_counts(&self) -> OfferCounts {
        OfferCounts {
            whole: self.whole.load(Ordering::Relaxed),
            deltas: self.deltas.load(Ordering::Relaxed),
        }
    }

    /// Adds a state as the newest. Returns false and changes nothing if the shelf has this version
    /// or a newer one.
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
        // A longer chain saves little, and takes memory.
        let most = state.form().bytes() / DELTA;
        let mut content = self.content();
        match link {
            Some(link) => content.links.push_back(link),
            None => content.links.clear(),
        }
        let body = |link: &Link| link.message.len() - LENGTH;
        let chain_size = |links: &VecDeque<Link>| links.iter().map(body).sum::<usize>();
        while content.links.len() > MESSAGES || chain_size(&content.links) > most {
            content.links.pop_front();
        }
        content.digests.insert(state.version(), state.id().digest);
        while content.digests.len() > MOST_DIGESTS {
            content.digests.pop_first();
        }
        content.newest = Some(Arc::new(Newest {
            state,
            packed: OnceLock::new(),
        }));
        true
    }

    /// Returns the messages that lead from `held` to the newest weights. Offers deltas only if
    /// `held` matches a recent state in version and digest, else the whole state. With `pack` the
    /// first request for the whole state takes long, and its message is kept.
    #[must_use]
    pub fn offer(&self, held: Option<StateId>, pack: bool) -> Offer {
        let content = self.content();
        let Some(newest) = content.newest.clone() else {
            return Offer::Nothing;
        };
        let version = newest.state.version();
        if held == Some(newest.state.id()) {
            return Offer::Same(version);
        }
        let from = content.links.iter().position(|link| Some(link.base) == held);
        let message = |link: &Link| Part::Coded(link.message.clone());
        let links: Option<Vec<Part>> = from.map(|from| content.links.range(from..).map(message).collect());
        drop(content);
        let count = if links.is_some() { &self.deltas } else { &self.whole };
        count.fetch_add(1, Ordering::Relaxed);
        Offer::Messages {
            version,
            delta: links.is_some(),
            parts: links.unwrap_or_else(|| newest.whole(pack)),
        }
    }
}

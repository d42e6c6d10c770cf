//! Where the newest weights and the deltas that lead to them lie, for whoever fetches them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use broker::ids::WeightVersion;

use super::message::MESSAGES;
use super::{State, delta, full};

/// What is there to fetch. Whole states are never changed, so what is being sent is never torn by a later step.
#[derive(Debug, Default)]
pub struct Shelf(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    newest: Option<Arc<Newest>>,
    /// Each begins where the one before ends; the last ends at the newest.
    links: VecDeque<Link>,
}

#[derive(Debug)]
struct Newest {
    state: State,
    /// Made when somebody first asks for it.
    full: OnceLock<Arc<[u8]>>,
}

#[derive(Debug)]
struct Link {
    base: WeightVersion,
    message: Arc<[u8]>,
}

/// What a receiver is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// Nothing was published yet.
    Nothing,
    /// It holds the newest.
    Same(WeightVersion),
    /// Messages that lead to the newest, one after the other.
    Messages {
        version: WeightVersion,
        messages: Vec<Arc<[u8]>>,
        /// From what was held, and not whole.
        delta: bool,
    },
}

impl Shelf {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest version.
    #[must_use]
    pub fn version(&self) -> Option<WeightVersion> {
        self.content().newest.as_ref().map(|newest| newest.state.version())
    }

    /// Puts a state on top. `false`, and nothing is changed: one as new is there already.
    pub fn put(&self, state: State) -> bool {
        let before = self.content().newest.clone();
        if before
            .as_ref()
            .is_some_and(|before| before.state.version() >= state.version())
        {
            return false;
        }
        // Without the lock: it takes long, and one thread alone puts.
        let link = before.and_then(|before| {
            let message = delta(&before.state, &state)?.into();
            let base = before.state.version();
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
        content.newest = Some(Arc::new(Newest {
            state,
            full: OnceLock::new(),
        }));
        true
    }

    /// What leads to the newest from `held`. May take long: the whole is packed when it is first asked for.
    #[must_use]
    pub fn offer(&self, held: Option<WeightVersion>) -> Offer {
        let content = self.content();
        let Some(newest) = content.newest.clone() else {
            return Offer::Nothing;
        };
        let version = newest.state.version();
        if held == Some(version) {
            return Offer::Same(version);
        }
        let from = content.links.iter().position(|link| Some(link.base) == held);
        let links = from.map(|from| content.links.range(from..).map(|link| link.message.clone()).collect());
        drop(content);
        Offer::Messages {
            version,
            delta: links.is_some(),
            messages: links.unwrap_or_else(|| vec![newest.full.get_or_init(|| full(&newest.state).into()).clone()]),
        }
    }
}

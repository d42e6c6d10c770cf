//! Caches chat skeletons. A skeleton is the text that the chat template puts around the contents of
//! messages. It depends on their roles, not on their contents, so it is rendered and encoded once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use broker::protocol::turn::Message;

/// The largest number of skeletons in the cache. A full cache is emptied.
const MOST_SKELETONS: usize = 256;
/// The largest number of messages in a cached skeleton. Longer chats are rendered each time.
const MOST_MESSAGES: usize = 64;

/// A rendered chat with marks in place of contents.
#[derive(Debug)]
pub(super) struct Skeleton {
    pub(super) text: String,
    /// The control tokens of the text, in order.
    pub(super) control: Vec<u32>,
}

/// The rendered part of a chat: the number of leading messages that are left out, and true if the
/// beginning of an answer follows.
pub(super) type SkeletonPart = (usize, bool);

/// The role and content of each message, with a mark in place of a content that varies.
type Key = (Vec<(String, String)>, SkeletonPart);

/// The cached skeletons of one chat template.
#[derive(Debug, Default)]
pub(super) struct SkeletonCache(Mutex<HashMap<Key, Arc<Skeleton>>>);

impl SkeletonCache {
    /// Returns the skeleton of a chat that contains marks already. Calls `make` if the cache has
    /// none.
    pub(super) fn of<E>(
        &self,
        chat: impl Iterator<Item = Message>,
        part: SkeletonPart,
        make: impl FnOnce() -> Result<Skeleton, E>,
    ) -> Result<Arc<Skeleton>, E> {
        let key: Key = (chat.map(|m| (m.role, m.content)).collect(), part);
        let cache = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cache().get(&key) {
            return Ok(known.clone());
        }
        let skeleton = Arc::new(make()?);
        if key.0.len() <= MOST_MESSAGES {
            let mut cache = cache();
            if cache.len() >= MOST_SKELETONS {
                cache.clear();
            }
            cache.insert(key, skeleton.clone());
        }
        Ok(skeleton)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skeleton_is_made_once_and_the_cache_stays_small() {
        let cache = SkeletonCache::default();
        let of = |say: &str| {
            let mut made = false;
            let skeleton = cache.of::<()>([Message::user(say)].into_iter(), (0, true), || {
                made = true;
                Ok(Skeleton {
                    text: say.into(),
                    control: Vec::new(),
                })
            });
            (skeleton.unwrap().text.clone(), made)
        };
        assert_eq!(of("x"), ("x".into(), true));
        assert_eq!(of("x"), ("x".into(), false));
        for n in 0..2 * MOST_SKELETONS {
            of(&n.to_string());
        }
        assert!(cache.0.lock().unwrap().len() <= MOST_SKELETONS);
    }
}

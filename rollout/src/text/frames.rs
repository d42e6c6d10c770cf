//! Caches the template's text around contents. It depends on the roles and not on the contents, so
//! repeated frames are rendered and encoded once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use broker::protocol::turn::Message;

/// Most frames in the cache, and most messages of a cached frame.
const FRAMES: usize = 256;
const MESSAGES: usize = 64;

/// A chat without its contents.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) text: String,
    /// The control tokens of the frame, in order.
    pub(super) control: Vec<u32>,
}

/// Which part of a chat: the number of messages before it, and true if an answer follows.
pub(super) type Part = (usize, bool);

/// The roles, each with a mark in place of its content.
type Key = (Vec<(String, String)>, Part);

/// The frames of one template.
#[derive(Debug, Default)]
pub(super) struct Frames(Mutex<HashMap<Key, Arc<Frame>>>);

impl Frames {
    /// Returns the frame of a chat with marks for contents.
    pub(super) fn of<E>(
        &self,
        chat: impl Iterator<Item = Message>,
        part: Part,
        make: impl FnOnce() -> Result<Frame, E>,
    ) -> Result<Arc<Frame>, E> {
        let key: Key = (chat.map(|m| (m.role, m.content)).collect(), part);
        let frames = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = frames().get(&key) {
            return Ok(known.clone());
        }
        let frame = Arc::new(make()?);
        if key.0.len() <= MESSAGES {
            let mut frames = frames();
            if frames.len() >= FRAMES {
                frames.clear();
            }
            frames.insert(key, frame.clone());
        }
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_made_once_and_few_are_kept() {
        let frames = Frames::default();
        let of = |say: &str| {
            let mut made = false;
            let frame = frames.of::<()>([Message::user(say)].into_iter(), (0, true), || {
                made = true;
                Ok(Frame {
                    text: say.into(),
                    control: Vec::new(),
                })
            });
            (frame.unwrap().text.clone(), made)
        };
        assert_eq!(of("x"), ("x".into(), true));
        assert_eq!(of("x"), ("x".into(), false));
        for n in 0..2 * FRAMES {
            of(&n.to_string());
        }
        assert!(frames.0.lock().unwrap().len() <= FRAMES);
    }
}

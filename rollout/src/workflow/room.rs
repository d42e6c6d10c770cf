//! Room in a context: whether the next turn of a seat still fits, from the token counts of its
//! earlier turns.

use super::Event;

/// The most tokens that a chat template adds around a message.
pub(crate) const AROUND: u64 = 16;

/// A bound on the tokens of a seat's turn, prompt and answer together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Tokens in all; 0 means no bound.
    pub(crate) most: u32,
    /// Tokens reserved for the last turn.
    pub(crate) reserve: u32,
}

impl Room {
    /// Returns true if `used` tokens are within the bound.
    pub(crate) fn holds(self, used: u64) -> bool {
        self.most == 0 || used <= u64::from(self.most)
    }

    /// Returns true if a last turn on a prompt of `used` tokens has its reserve.
    pub(crate) fn is_left(self, used: u64) -> bool {
        self.holds(used.saturating_add(u64::from(self.reserve)))
    }

    /// Returns the tokens of the answer to a prompt of `used` tokens; `None` without a bound.
    pub(crate) fn rest(self, used: u64) -> Option<u32> {
        let rest = u64::from(self.most).saturating_sub(used);
        (self.most > 0).then(|| u32::try_from(rest).unwrap_or(u32::MAX))
    }
}

/// Returns the tokens of the prompt of a seat's next turn, if `new` tokens in `messages` messages
/// are added since `last`.
pub(crate) fn prompt_after(last: &Event, new: u64, messages: u64) -> u64 {
    u64::from(last.prompt) + u64::from(last.tokens) + new + AROUND * messages
}

/// Like [`prompt_after`] with one message, for a seat that may not have spoken yet.
pub(crate) fn prompt_of(last: Option<&Event>, new: u64) -> u64 {
    last.map_or(new + AROUND, |last| prompt_after(last, new, 1))
}

/// Returns the most tokens that a text can have: one per byte.
pub(crate) fn tokens_of(text: &str) -> u64 {
    text.len() as u64
}

#[cfg(test)]
mod tests {
    use super::super::testing::event;
    use super::*;

    #[test]
    fn what_is_used_and_kept_is_within_the_bound() {
        let room = Room { most: 100, reserve: 30 };
        assert!(room.holds(100) && !room.holds(101));
        assert!(room.is_left(70) && !room.is_left(71) && !room.is_left(u64::MAX));
        assert_eq!((room.rest(70), room.rest(101)), (Some(30), Some(0)));
        let open = Room { most: 0, reserve: 30 };
        assert!(open.is_left(u64::MAX));
        assert_eq!(open.rest(5), None);
        // A prompt of 5, 7 sampled.
        let last = event("solver", 0, "x");
        assert_eq!(prompt_after(&last, 20, 2), 5 + 7 + 20 + 32);
        assert_eq!((prompt_of(Some(&last), 20), prompt_of(None, 20)), (48, 36));
        assert_eq!(tokens_of("é!"), 3);
    }
}

//! Text as it is generated, token by token, never with half a character.

use std::ops::Deref;

use super::TextCodec;

/// A character has four bytes at most, so no more than four tokens wait for its end.
const PARTS: usize = 4;

/// Turns ids into text one by one. What may still become part of a character is held back, and nothing else: a token may end one character and
/// begin the next.
///
/// It works for as long as it has its codec: borrowed, or shared where the stream outlives a call.
pub struct TextStream<C> {
    codec: C,
    ids: Vec<u32>,
    /// Of the text of `ids[context..]`, `said` bytes have been told, the last of them with `ids[..told]`. It begins earlier than what is new, so
    /// that spacing is as in the whole.
    context: usize,
    told: usize,
    said: usize,
}

impl<C: Deref<Target = TextCodec>> TextStream<C> {
    pub fn new(codec: C) -> Self {
        Self {
            codec,
            ids: Vec::new(),
            context: 0,
            told: 0,
            said: 0,
        }
    }

    /// The text that this id completes; empty while a character is incomplete.
    pub fn push(&mut self, id: u32) -> String {
        if self.codec.is_silent(id) {
            return String::new();
        }
        self.ids.push(id);
        let held = match self.codec.ends_inside(&self.ids) {
            Some(inside) => {
                if inside {
                    Held::One
                } else {
                    Held::Nothing
                }
            }
            None if self.ids.len() - self.told < PARTS => Held::All,
            None => Held::Nothing,
        };
        self.tell(held)
    }

    /// What is held back when no more ids come: U+FFFD for a character that is never completed.
    pub fn rest(&mut self) -> String {
        self.tell(Held::Nothing)
    }

    fn tell(&mut self, held: Held) -> String {
        let text = |from: usize| self.codec.text(&self.ids[from..]);
        let now = text(self.context);
        let finished = held.cut(&now);
        let new = finished.get(self.said..).unwrap_or_default().to_owned();
        if !new.is_empty() || finished.len() == now.len() {
            let said = held.cut(&text(self.told)).len();
            (self.context, self.told, self.said) = (self.told, self.ids.len(), said);
        }
        new
    }
}

impl TextCodec {
    /// Text token by token, as a stop text's watcher needs it.
    #[must_use]
    pub fn stream(&self) -> TextStream<&Self> {
        TextStream::new(self)
    }
}

/// Which U+FFFD at the end of a text stand for what may still become a character.
#[derive(Clone, Copy)]
enum Held {
    Nothing,
    /// The last, if there is one.
    One,
    /// It is not known which, so all.
    All,
}

impl Held {
    fn cut(self, text: &str) -> &str {
        match self {
            Self::Nothing => text,
            Self::One => text.strip_suffix(char::REPLACEMENT_CHARACTER).unwrap_or(text),
            Self::All => text.trim_end_matches(char::REPLACEMENT_CHARACTER),
        }
    }
}

//! Text as it is generated, token by token, never with half a character.

use std::ops::Deref;

use super::TextCodec;

/// Turns ids into text one by one. What may still become part of a character is held back.
///
/// It works for as long as it has its codec: borrowed, or shared where the stream outlives a call.
pub struct TextStream<C> {
    codec: C,
    ids: Vec<u32>,
    /// `ids[..told]` have been told; decoding begins at `context`, so that spacing is as in the whole.
    context: usize,
    told: usize,
}

impl<C: Deref<Target = TextCodec>> TextStream<C> {
    pub fn new(codec: C) -> Self {
        Self {
            codec,
            ids: Vec::new(),
            context: 0,
            told: 0,
        }
    }

    /// The text that this id completes; empty while a character is incomplete.
    pub fn push(&mut self, id: u32) -> String {
        self.ids.push(id);
        let now = self.since_context();
        // A character has four bytes at most, so no more than four tokens wait for its end.
        if now.ends_with('\u{FFFD}') && self.ids.len() - self.told < 4 {
            return String::new();
        }
        self.tell(&now)
    }

    /// What is held back when no more ids come: U+FFFD for a character that is never completed.
    pub fn rest(&mut self) -> String {
        let now = self.since_context();
        self.tell(&now)
    }

    fn since_context(&self) -> String {
        self.codec.text(&self.ids[self.context..])
    }

    fn tell(&mut self, now: &str) -> String {
        let before = self.codec.text(&self.ids[self.context..self.told]);
        let new = now.get(before.len()..).unwrap_or_default().to_owned();
        (self.context, self.told) = (self.told, self.ids.len());
        new
    }
}

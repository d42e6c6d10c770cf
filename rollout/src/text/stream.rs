//! Text as it is generated, token by token, never with half a character.

use super::TextCodec;

/// Turns ids into text one by one. What may still become part of a character is held back.
pub struct TextStream<'a> {
    codec: &'a TextCodec,
    ids: Vec<u32>,
    /// `ids[..told]` have been told; decoding begins at `context`, so that spacing is as in the whole.
    context: usize,
    told: usize,
}

impl<'a> TextStream<'a> {
    pub(super) fn new(codec: &'a TextCodec) -> Self {
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
        let before = self.codec.text(&self.ids[self.context..self.told]);
        let now = self.codec.text(&self.ids[self.context..]);
        // A character has four bytes at most, so no more than four tokens wait for its end.
        if now.ends_with('\u{FFFD}') && self.ids.len() - self.told < 4 {
            return String::new();
        }
        let new = now.get(before.len()..).unwrap_or_default().to_owned();
        (self.context, self.told) = (self.told, self.ids.len());
        new
    }
}

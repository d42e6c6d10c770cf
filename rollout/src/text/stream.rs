//! Text that arrives token by token, without broken characters.

use std::ops::Deref;

use super::TextCodec;

/// A character has at most four bytes, so at most four tokens wait for its end.
const PARTS: usize = 4;

/// Turns ids into text one by one. It holds back only bytes that may become part of a character. A
/// token may end one character and begin the next.
///
/// The codec is borrowed, or shared if the stream outlives a call.
pub struct TextStream<C> {
    codec: C,
    ids: Vec<u32>,
    /// The text of `ids[context..]` is decoded. Its first `said` bytes were returned, the last of
    /// them with `ids[..sent]`. It begins before the new ids, so that spacing equals that of the
    /// whole text.
    context: usize,
    sent: usize,
    said: usize,
}

impl<C: Deref<Target = TextCodec>> TextStream<C> {
    pub fn new(codec: C) -> Self {
        Self {
            codec,
            ids: Vec::new(),
            context: 0,
            sent: 0,
            said: 0,
        }
    }

    /// Returns the text that this id completes. It is empty while a character is incomplete.
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
            None if self.ids.len() - self.sent < PARTS => Held::All,
            None => Held::Nothing,
        };
        self.send(held)
    }

    /// Returns the held-back text after the last id. A character that is incomplete becomes U+FFFD.
    pub fn rest(&mut self) -> String {
        self.send(Held::Nothing)
    }

    fn send(&mut self, held: Held) -> String {
        let text = |from: usize| self.codec.text(&self.ids[from..]);
        let now = text(self.context);
        let finished = held.cut(&now);
        let new = finished.get(self.said..).unwrap_or_default().to_owned();
        if !new.is_empty() || finished.len() == now.len() {
            let said = held.cut(&text(self.sent)).len();
            (self.context, self.sent, self.said) = (self.sent, self.ids.len(), said);
        }
        new
    }
}

impl TextCodec {
    /// Returns the text token by token, for the check of stop texts.
    #[must_use]
    pub fn stream(&self) -> TextStream<&Self> {
        TextStream::new(self)
    }
}

/// Which U+FFFD at the end of a text may still become a character.
#[derive(Clone, Copy)]
enum Held {
    Nothing,
    /// At most the last.
    One,
    /// Unknown, so all.
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

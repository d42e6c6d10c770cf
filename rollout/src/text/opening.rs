//! What a chat template writes for an answer to begin with, behind all that was said: some begin a reasoning there (`<think>`), and what is
//! sampled then goes on with it.

use super::reasoning::{Mark, Spelling, marks};

/// More ids than the template's own text has bytes that are looked at: for a reasoning that it opens or shuts in some chats only.
const MORE: usize = 64;

/// The beginning of an answer, as the template writes it in a made-up chat. Blanks are left out of all that is compared: tokenizers
/// add and drop them.
#[derive(Debug, Default)]
pub(super) struct Opening {
    whole: Vec<u8>,
    /// How much of it comes before its first mark of reasoning.
    head: usize,
    window: usize,
}

/// A reasoning that the template wrote at the end of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    /// The id in which its first mark begins.
    pub(super) at: usize,
    /// Whether it is left open.
    pub(super) open: bool,
}

impl Opening {
    pub(super) fn new(text: &str) -> Self {
        let whole: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let head = marks(&whole).next().map_or(whole.len(), |(_, place)| place.start);
        Self {
            whole,
            head,
            window: text.len() + MORE,
        }
    }

    /// It, without blanks.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.whole).into_owned()
    }

    /// How many ids at the end of a prompt are to be looked at.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// The reasoning that the template began at the end of a prompt, whose last ids these are.
    ///
    /// A prompt ends with what the template writes: with the very text of the made-up chat, or, where what is said in a chat
    /// decides it, with its beginning and other marks behind that. Whatever ends otherwise has nothing opened.
    pub(super) fn of(&self, end: &Spelling) -> Option<Opened> {
        let places: Vec<usize> = (0..end.bytes.len())
            .filter(|at| !end.bytes[*at].is_ascii_whitespace())
            .collect();
        let bytes: Vec<u8> = places.iter().map(|at| end.bytes[*at]).collect();
        let from = if bytes.ends_with(&self.whole) {
            bytes.len() - self.whole.len() + self.head
        } else {
            let before = without_marks(&bytes);
            (self.head > 0 && before.ends_with(&self.whole[..self.head])).then_some(before.len())?
        };
        let mut found = marks(&bytes[from..]);
        let (first, place) = found.next()?;
        let last = found.next_back().map_or(first, |(mark, _)| mark);
        Some(Opened {
            at: end.id_at(places[from + place.start]),
            open: last == Mark::Open,
        })
    }
}

/// Bytes without the marks at their end.
fn without_marks(mut bytes: &[u8]) -> &[u8] {
    loop {
        let shorter = |mark: Mark| bytes.strip_suffix(mark.text().as_bytes());
        let Some(before) = Mark::ALL.into_iter().find_map(shorter) else {
            return bytes;
        };
        bytes = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each piece is an id.
    fn of(template: &str, pieces: &[&str]) -> Option<(usize, bool)> {
        let mut end = Spelling::default();
        for piece in pieces {
            end.push(piece.bytes());
        }
        Opening::new(template).of(&end).map(|opened| (opened.at, opened.open))
    }

    #[test]
    fn a_reasoning_is_the_templates_if_the_prompt_ends_as_the_template_writes_it() {
        let thinks = "<|im_start|>assistant\n<think>\n";
        let start = ["x", "<|im_start|>", "assistant", "\n"];
        let with = |more: &[&'static str]| [&start[..], more].concat();
        assert_eq!(of(thinks, &with(&["<think>", "\n"])), Some((4, true)));
        assert_eq!(of(thinks, &with(&["<", "think", ">\n"])), Some((4, true)));
        // This chat has none, or another one.
        assert_eq!(of(thinks, &with(&[])), None);
        assert_eq!(
            of(thinks, &with(&["<think>", "\n\n", "</think>", "\n\n"])),
            Some((4, false))
        );
        let plain = "<|im_start|>assistant\n";
        assert_eq!(of(plain, &with(&[])), None);
        assert_eq!(of(plain, &with(&["<think>", "\n"])), Some((4, true)));
        let quiet = "<|im_start|>assistant\n<think>\n\n</think>\n\n";
        assert_eq!(
            of(quiet, &with(&["<think>", "\n\n", "</think>", "\n\n"])),
            Some((4, false))
        );
        let shut = "<|im_start|>assistant\n</think>";
        assert_eq!(of(shut, &with(&["</think>"])), Some((4, false)));
        let hint = "<|im_start|>assistant\n<think>\nSo, ";
        assert_eq!(of(hint, &with(&["<think>", "\n", "So", ",", " "])), Some((4, true)));
    }

    #[test]
    fn what_others_wrote_at_the_end_of_a_prompt_opens_nothing() {
        for template in ["", "\n", "<|a|>", "ASSISTANT:", "<think>"] {
            assert_eq!(of(template, &["x", "<think>", "x"]), None, "{template}");
            assert_eq!(of(template, &[]), None, "{template}");
        }
        for template in ["", "\n", "<|a|>", "ASSISTANT:"] {
            assert_eq!(of(template, &["x", "<think>"]), None, "{template}");
        }
        // A text of the template's in the middle of the message, and a mark without it.
        assert_eq!(of("<|a|>", &["<|a|>", "<think>", "x", "<|a|>"]), None);
        assert_eq!(of("<think>", &["x", "<think>"]), Some((1, true)));
    }
}

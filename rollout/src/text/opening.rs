//! The text that a chat template writes at the beginning of an answer. Some templates begin
//! reasoning there (`<think>`), and the sampled text continues it.

use crate::reasoning::{Mark, Spelling, marks};

/// The number of extra ids, beyond the bytes of the template's text, that are searched. Some chats
/// have reasoning marks there that the made-up chat does not have.
const MORE: usize = 64;

/// The beginning of an answer in a made-up chat. Comparisons ignore blanks, because tokenizers add
/// and drop them.
#[derive(Debug, Default)]
pub(super) struct Opening {
    whole: Vec<u8>,
    /// The number of bytes before the first mark of reasoning.
    head: usize,
    window: usize,
}

/// Reasoning that the template began at the end of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    /// The id that contains the beginning of the first mark.
    pub(super) at: usize,
    /// True if the reasoning is still open.
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

    /// Returns the text without blanks.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.whole).into_owned()
    }

    /// Returns the number of ids to search at the end of a prompt.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// Finds reasoning that the template began at the end of a prompt. `end` holds the last ids of
    /// the prompt.
    ///
    /// A prompt ends with the template's text. It is the text of the made-up chat, or its beginning
    /// followed by other marks, if the contents of the chat decide that. Any other end opens no
    /// reasoning.
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

/// Removes the marks at the end of bytes.
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

    /// Runs with each piece as one id.
    fn of(template: &str, pieces: &[&str]) -> Option<(usize, bool)> {
        let mut end = Spelling::default();
        for piece in pieces {
            end.push(piece.bytes());
        }
        Opening::new(template).of(&end).map(|opened| (opened.at, opened.open))
    }

    #[test]
    fn reasoning_at_the_end_of_the_template_text_is_found() {
        let thinks = "<|im_start|>assistant\n<think>\n";
        let start = ["x", "<|im_start|>", "assistant", "\n"];
        let with = |more: &[&'static str]| [&start[..], more].concat();
        assert_eq!(of(thinks, &with(&["<think>", "\n"])), Some((4, true)));
        assert_eq!(of(thinks, &with(&["<", "think", ">\n"])), Some((4, true)));
        // This chat has no reasoning, or different reasoning.
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
    fn a_message_at_the_end_of_a_prompt_opens_no_reasoning() {
        for template in ["", "\n", "<|a|>", "ASSISTANT:", "<think>"] {
            assert_eq!(of(template, &["x", "<think>", "x"]), None, "{template}");
            assert_eq!(of(template, &[]), None, "{template}");
        }
        for template in ["", "\n", "<|a|>", "ASSISTANT:"] {
            assert_eq!(of(template, &["x", "<think>"]), None, "{template}");
        }
        // The template's text inside a message, and a mark without it.
        assert_eq!(of("<|a|>", &["<|a|>", "<think>", "x", "<|a|>"]), None);
        assert_eq!(of("<think>", &["x", "<think>"]), Some((1, true)));
    }
}

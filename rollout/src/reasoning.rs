//! Reasoning between `<think>` and `</think>`. It belongs to a seat, and its partners never see it.
//!
//! Marks count in sampled text and in the template's beginning of an answer (`text/opening.rs`).
//! They do not count in messages, which may contain `<think>` freely. Marks are found by their
//! bytes, because many tokenizers have no token for them and spell them in several ways (`>` and a
//! line break may be one token).

use std::ops::Range;

/// A mark of reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Open,
    Close,
}

impl Mark {
    pub(crate) const ALL: [Self; 2] = [Self::Open, Self::Close];

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Open => "<think>",
            Self::Close => "</think>",
        }
    }

    /// Returns the mark at the beginning of these bytes.
    fn begins(bytes: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|mark| bytes.starts_with(mark.text().as_bytes()))
    }
}

/// Returns every mark in these bytes with its range, in order.
pub(crate) fn marks(bytes: &[u8]) -> impl DoubleEndedIterator<Item = (Mark, Range<usize>)> {
    (0..bytes.len()).filter_map(move |at| {
        let mark = Mark::begins(&bytes[at..])?;
        Some((mark, at..at + mark.text().len()))
    })
}

/// Returns the part of a text that a partner may see: after the last `</think>`, and before any
/// `<think>` that is not closed.
#[must_use]
pub fn visible_text(text: &str) -> &str {
    visible(text, false)
}

/// Returns the visible part of a text. With `open`, the text begins inside reasoning.
pub(crate) fn visible(text: &str, open: bool) -> &str {
    let rest = match text.rfind(Mark::Close.text()) {
        Some(at) => text[at + Mark::Close.text().len()..].trim_start(),
        None if open => "",
        None => text,
    };
    rest.find(Mark::Open.text()).map_or(rest, |at| &rest[..at])
}

/// Returns the range of each reasoning with its marks: from a `<think>` to the last `</think>`
/// before the next reasoning, or to the end. A nested `<think>` is part of it.
fn reasonings(bytes: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut open): (Vec<Range<usize>>, bool) = (Vec::new(), false);
    for (mark, place) in marks(bytes) {
        match mark {
            Mark::Open if open => {}
            Mark::Open => {
                found.push(place.start..bytes.len());
                open = true;
            }
            Mark::Close => {
                // A closing mark without an opening one closes nothing.
                if let Some(last) = found.last_mut() {
                    last.end = place.end;
                }
                open = false;
            }
        }
    }
    found
}

/// The bytes of ids, and where the bytes of each id end.
#[derive(Debug, Default)]
pub(crate) struct Spelling {
    pub(crate) bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Spelling {
    /// Adds an id with its bytes, at least one.
    pub(crate) fn push(&mut self, bytes: impl IntoIterator<Item = u8>) {
        self.bytes.extend(bytes);
        self.ends.push(self.bytes.len());
    }

    /// Returns the index of the id that a byte belongs to.
    pub(crate) fn id_at(&self, byte: usize) -> usize {
        self.ends.partition_point(|end| *end <= byte)
    }

    /// Returns for each id whether it is kept when reasoning is cut out. An id that holds part of a
    /// mark is kept if it also holds visible text, so that no visible text is lost.
    pub(crate) fn stays(&self) -> Vec<bool> {
        let mut inside = vec![false; self.bytes.len()];
        for reasoning in reasonings(&self.bytes) {
            inside[reasoning].fill(true);
        }
        let mut start = 0;
        let stays = |end: &usize| {
            let mut own = std::mem::replace(&mut start, *end)..*end;
            let said = |at: usize| !inside[at] && !self.bytes[at].is_ascii_whitespace();
            !inside[own.clone()].contains(&true) || own.any(said)
        };
        self.ends.iter().map(stays).collect()
    }
}

/// Returns the ids after the last `</think>`, if it is spelled as in `close`.
pub(crate) fn behind<'a>(ids: &'a [u32], close: &[u32]) -> Option<&'a [u32]> {
    if close.is_empty() {
        return None;
    }
    let at = ids.windows(close.len()).rposition(|window| window == close)?;
    Some(&ids[at + close.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_see_no_reasoning() {
        for (text, seen) in [
            ("plain", "plain"),
            ("<think>a</think>\n\nb", "b"),
            ("a</think>b", "b"),
            ("<think>never ends", ""),
            ("b<think>never ends", "b"),
            ("<think>a</think>b<think>c</think> d", "d"),
            ("<think>a</think>b<think>c", "b"),
            ("", ""),
        ] {
            assert_eq!(visible_text(text), seen, "{text}");
        }
        for (text, seen) in [
            ("never ends", ""),
            ("never <think>ends", ""),
            ("a</think>\n\nb", "b"),
            ("a<think>b</think>c", "c"),
            ("a</think>b<think>c", "b"),
            ("</think>", ""),
            ("", ""),
        ] {
            assert_eq!(visible(text, true), seen, "inside: {text}");
        }
    }

    /// Returns the kept text of pieces, each of which is one id.
    fn kept(pieces: &[&str]) -> String {
        let mut spelling = Spelling::default();
        for piece in pieces {
            spelling.push(piece.bytes());
        }
        let stays = spelling.stays();
        assert_eq!(stays.len(), pieces.len());
        pieces
            .iter()
            .zip(stays)
            .filter_map(|(piece, stays)| stays.then_some(*piece))
            .collect()
    }

    #[test]
    fn reasoning_is_cut_at_its_marks() {
        for (pieces, stays) in [
            (&["a", "b"][..], "ab"),
            (&["a", "<think>", "b", "</think>", "c"], "ac"),
            (&["a", "<think>", "b"], "a"),
            (&["b", "</think>", "c"], "b</think>c"),
            (&["<think>", "</think>", "<think>", "a"], ""),
            (
                &["<think>", "a", "</think>", "b", "<think>", "c", "</think>", "d"],
                "bd",
            ),
            // Nested reasoning, however many marks close it.
            (&["<think>", "a", "<think>", "b", "</think>", "c"], "c"),
            (&["<think>", "a", "<think>", "b", "</think>", "c", "</think>", "d"], "d"),
            // Marks over several ids, which may also hold other text.
            (&["<", "think", ">", "a", "</", "think", ">\n\n", "b"], "b"),
            (&["a.<", "think", ">", "b.</", "think", ">c"], "a.<>c"),
            (&["\n<", "think", ">"], ""),
            (&["<", " think", ">", "a"], "< think>a"),
            (&[], ""),
        ] {
            assert_eq!(kept(pieces), stays, "{pieces:?}");
        }
    }

    #[test]
    fn ids_after_the_last_close_are_found_by_its_spelling() {
        assert_eq!(behind(&[1, 9, 2, 9, 3], &[9]), Some(&[3][..]));
        assert_eq!(behind(&[7, 8, 1], &[7, 8]), Some(&[1][..]));
        assert_eq!(behind(&[7, 1, 8], &[7, 8]), None);
        assert_eq!(behind(&[7], &[7, 8]), None);
        assert_eq!(behind(&[1], &[]), None);
    }
}

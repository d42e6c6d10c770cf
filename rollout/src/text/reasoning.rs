//! Reasoning between `<think>` and `</think>`: a seat's own, never shown to its partners.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// What a partner may see of a text: what follows the last `</think>`, and nothing from a `<think>` on that is not closed.
#[must_use]
pub fn visible_text(text: &str) -> &str {
    let rest = text
        .rfind(CLOSE)
        .map_or(text, |at| text[at + CLOSE.len()..].trim_start());
    rest.find(OPEN).map_or(rest, |at| &rest[..at])
}

/// The ids that stand for the two marks, where the tokenizer spells them in one way.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    open: Vec<u32>,
    close: Vec<u32>,
}

impl Marks {
    /// `spell` gives the ids of a text if they stand for exactly that text.
    pub(super) fn new(spell: impl Fn(&str) -> Option<Vec<u32>>) -> Self {
        match (spell(OPEN), spell(CLOSE)) {
            (Some(open), Some(close)) => Self { open, close },
            _ => Self::default(),
        }
    }

    /// Whether the last reasoning of these ids has not ended.
    pub(super) fn is_open(&self, ids: &[u32]) -> bool {
        match (rfind(ids, &self.open), rfind(ids, &self.close)) {
            (Some(open), Some(close)) => open > close,
            (open, _) => open.is_some(),
        }
    }

    /// The part of an output that a partner may see; `open` if its prompt left a reasoning open.
    pub(super) fn visible<'a>(&self, output: &'a [u32], open: bool) -> &'a [u32] {
        let rest = match rfind(output, &self.close) {
            Some(at) => &output[at + self.close.len()..],
            None if open => &[],
            None => output,
        };
        find(rest, &self.open).map_or(rest, |at| &rest[..at])
    }

    /// The ids without any reasoning, marks included; one that has not ended goes up to the end.
    pub(super) fn strip(&self, ids: &[u32]) -> Vec<u32> {
        let (mut kept, mut rest) = (Vec::with_capacity(ids.len()), ids);
        while let Some(open) = find(rest, &self.open) {
            kept.extend_from_slice(&rest[..open]);
            let inside = &rest[open..];
            rest = find(inside, &self.close).map_or(&[], |close| &inside[close + self.close.len()..]);
        }
        kept.extend_from_slice(rest);
        kept
    }
}

fn find(ids: &[u32], part: &[u32]) -> Option<usize> {
    if part.is_empty() {
        None
    } else {
        ids.windows(part.len()).position(|window| window == part)
    }
}

fn rfind(ids: &[u32], part: &[u32]) -> Option<usize> {
    if part.is_empty() {
        None
    } else {
        ids.windows(part.len()).rposition(|window| window == part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_see_no_reasoning() {
        for (text, visible) in [
            ("plain", "plain"),
            ("<think>a</think>\n\nb", "b"),
            ("a</think>b", "b"),
            ("<think>never ends", ""),
            ("b<think>never ends", "b"),
            ("<think>a</think>b<think>c</think> d", "d"),
            ("<think>a</think>b<think>c", "b"),
            ("", ""),
        ] {
            assert_eq!(visible_text(text), visible, "{text}");
        }
    }

    #[test]
    fn reasoning_is_cut_at_its_marks() {
        let marks = Marks {
            open: vec![8],
            close: vec![9],
        };
        for (ids, kept, seen, open) in [
            (&[1, 2][..], &[1, 2][..], &[1, 2][..], false),
            (&[1, 8, 2, 9, 3], &[1, 3], &[3], false),
            (&[1, 8, 2], &[1], &[1], true),
            (&[2, 9, 3], &[2, 9, 3], &[3], false),
            (&[8, 9, 8, 1], &[], &[], true),
        ] {
            assert_eq!(marks.strip(ids), kept, "{ids:?}");
            assert_eq!(marks.visible(ids, false), seen, "{ids:?}");
            assert_eq!(marks.is_open(ids), open, "{ids:?}");
        }
        assert!(marks.visible(&[1, 2], true).is_empty());
        assert_eq!(Marks::default().strip(&[8, 1, 9]), [8, 1, 9]);
    }
}

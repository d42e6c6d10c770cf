//! Reads answers out of texts: what several graders share.
//!
//! [`boxed`] and [`tags`] find marked answers, [`minus`] and [`wide`] read signs as people type
//! them.

pub(super) mod boxed;
pub(super) mod minus;
pub(super) mod tags;
pub(super) mod wide;

/// Longest part of a text that a grader reads, in bytes. Graders are linear, so this bounds their
/// time.
pub(super) const LONGEST: usize = 1 << 16;

/// Returns the first bytes of a text, at most `length`, up to the end of a character.
pub(super) fn head(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

/// Returns the last bytes of a text, at most `length`, from the beginning of a character.
pub(super) fn tail(text: &str, length: usize) -> &str {
    let mut start = text.len().saturating_sub(length);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Returns the marked answer: between the last `<answer>` and `</answer>`, else in the last
/// `\boxed{}`, else the whole text.
pub(super) fn marked(text: &str) -> &str {
    tags::last_block(text, "answer")
        .or_else(|| boxed::last(text))
        .unwrap_or(text)
        .trim()
}

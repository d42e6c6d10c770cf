//! Finds ids that end inside a character.

use super::TextCodec;

/// Most bytes that can wait for the last byte of their character.
const WAITING: usize = 3;

impl TextCodec {
    /// Returns true if texts never show the id: a control token, a special token for unknown words,
    /// or an id without a token.
    pub(crate) fn is_silent(&self, id: u32) -> bool {
        let special = |piece: String| self.tokenizer.get_added_vocabulary().is_special_token(&piece);
        self.is_control(id) || self.tokenizer.id_to_token(id).is_none_or(special)
    }

    /// Returns true if visible ids end with an incomplete character, for which their text has one
    /// U+FFFD. Returns `None` if the decoder does not join single bytes.
    pub(crate) fn ends_inside(&self, ids: &[u32]) -> Option<bool> {
        if !self.alphabet.is_level() {
            return None;
        }
        let mut end: Vec<u8> = Vec::new();
        for id in ids.iter().rev() {
            end.splice(..0, self.bytes(*id)?);
            if end.len() >= WAITING {
                break;
            }
        }
        let from = end.len().saturating_sub(WAITING);
        Some(waits(&end[from..]))
    }
}

/// Returns true if the bytes end with the beginning of a character.
fn waits(end: &[u8]) -> bool {
    let rest = end.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    matches!(std::str::from_utf8(rest), Err(error) if error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_character_waits() {
        for (end, good) in [
            (&b""[..], false),
            (b"a", false),
            (b"\xF0", true),
            (b"a\xF0\xA3", true),
            (b"\xF0\xA3\xB1", true),
            (b"\xE2\x98", true),
            (b"\x98\x83", false),
            (b"\xE2\x98\x83", false),
            // These bytes begin no character.
            (b"\xFF", false),
            (b"\xC0", false),
            (b"\xED\xA0", false),
            (b"\xB1\xB2\xF0", true),
            (b"\xF0\xF0", true),
        ] {
            assert_eq!(waits(end), good, "{end:?}");
        }
    }
}

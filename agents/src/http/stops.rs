//! Stop texts: the text that is sent ends before the first stop text, or after it if it is kept.
//! Text that may become a stop text is held back.

/// Text on its way to a client.
#[derive(Debug, Clone, Default)]
pub struct Stops {
    texts: Vec<String>,
    /// True if the stop text itself is sent.
    kept: bool,
    /// The index of the stop text that has come.
    found: Option<usize>,
    /// Text that is not sent yet: it may begin a stop text.
    held: String,
}

impl Stops {
    #[must_use]
    pub fn new(texts: Vec<String>, kept: bool) -> Self {
        Self {
            texts,
            kept,
            found: None,
            held: String::new(),
        }
    }

    /// Returns the text that may be sent now, and true if a stop text has come: then no text
    /// follows.
    pub fn push(&mut self, new: &str) -> (String, bool) {
        self.held.push_str(new);
        let found = |(which, stop): (usize, &String)| Some((self.held.find(stop.as_str())?, stop.len(), which));
        let first = self.texts.iter().enumerate().filter_map(found).min();
        if let Some((at, length, which)) = first {
            self.found = Some(which);
            let sent = self.held[..at + if self.kept { length } else { 0 }].to_owned();
            self.held.clear();
            return (sent, true);
        }
        let kept = self.held.split_off(self.held.len() - self.open_end());
        (std::mem::replace(&mut self.held, kept), false)
    }

    /// The stop text that has come.
    #[must_use]
    pub fn found(&self) -> Option<&str> {
        self.texts.get(self.found?).map(String::as_str)
    }

    /// Returns the text that is held back, at the end.
    pub fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The number of bytes at the end that may begin a stop text.
    fn open_end(&self) -> usize {
        let begins = |end: &str| self.texts.iter().any(|stop| stop.starts_with(end));
        let mut places = self.held.char_indices().map(|(at, _)| at);
        let longest = self.texts.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest);
        let at = places.find(|at| *at >= from && begins(&self.held[*at..]));
        at.map_or(0, |at| self.held.len() - at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut held = Stops::new(stops.iter().map(ToString::to_string).collect(), false);
        let mut all = Vec::new();
        for piece in pieces {
            let (sent, stopped) = held.push(piece);
            all.push(sent);
            if stopped {
                return (all, true);
            }
        }
        all.push(held.rest());
        (all, false)
    }

    #[test]
    fn text_ends_before_the_stop_text_for_any_pieces() {
        assert_eq!(
            sent(&["END"], &["aE", "N", "Db"]),
            (vec!["a".into(), String::new(), String::new()], true)
        );
        assert_eq!(
            sent(&["END"], &["aE", "Nx"]),
            (vec!["a".into(), "ENx".into(), String::new()], false)
        );
        assert_eq!(sent(&["END"], &["aEN"]), (vec!["a".into(), "EN".into()], false));
        assert_eq!(sent(&["bc", "abcd"], &["xabcd"]), (vec!["x".into()], true));
        assert_eq!(
            sent(&["\u{e9}\n"], &["a\u{e9}", "b"]),
            (vec!["a".into(), "\u{e9}b".into(), String::new()], false)
        );
        assert_eq!(
            sent(&[], &["a", "b"]),
            (vec!["a".into(), "b".into(), String::new()], false)
        );
    }

    #[test]
    fn a_kept_stop_text_is_sent_and_nothing_after_it() {
        let mut held = Stops::new(vec!["END".into(), "EN".into()], true);
        assert_eq!((held.push("aE"), held.found()), (("a".into(), false), None));
        assert_eq!(held.push("NDb"), ("EN".into(), true), "the shorter one has come first");
        assert_eq!(held.found(), Some("EN"));
        let mut held = Stops::new(vec!["bc".into()], true);
        assert_eq!(held.push("ab"), ("a".into(), false));
        assert_eq!(held.push("cd"), ("bc".into(), true));
    }

    proptest! {
        #[test]
        fn the_sent_text_ends_before_the_first_stop_text(
            stops in prop::collection::vec("[ab]{1,3}", 0..3), pieces in prop::collection::vec("[abc\u{e9}]{0,3}", 0..9)
        ) {
            let (stops, pieces): (Vec<&str>, Vec<&str>) =
                (stops.iter().map(String::as_str).collect(), pieces.iter().map(String::as_str).collect());
            let (all, stopped) = sent(&stops, &pieces);
            let whole = pieces.concat();
            // More pieces may follow the one that brought the first stop text.
            let first = stops.iter().filter_map(|stop| whole.find(stop)).min();
            prop_assert_eq!(stopped, first.is_some());
            match first {
                None => prop_assert_eq!(all.concat(), whole),
                Some(_) => {
                    let sent = all.concat();
                    prop_assert!(whole.starts_with(&sent));
                    prop_assert!(stops.iter().all(|stop| !sent.contains(stop)));
                    prop_assert!(stops.iter().any(|stop| whole[sent.len()..].starts_with(stop)));
                }
            }
        }
    }
}

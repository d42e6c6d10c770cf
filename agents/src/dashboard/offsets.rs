//! The offset up to which each file was read, as text: `NAME@OFFSET,NAME@OFFSET`.

use std::collections::BTreeMap;
use std::fmt;

use super::answer::ApiError;

/// An offset for each file, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Offsets(pub(crate) BTreeMap<String, u64>);

impl Offsets {
    /// Reads the text that `Display` writes.
    ///
    /// # Errors
    /// The text has another form.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let part = |part: &str| {
            let (name, offset) = part.rsplit_once('@')?;
            Some((name.to_owned(), offset.parse().ok()?))
        };
        let parts: Option<BTreeMap<_, _>> = text.split(',').filter(|part| !part.is_empty()).map(part).collect();
        parts
            .map(Self)
            .ok_or_else(|| ApiError::wrong("this server did not give that cursor: begin without one"))
    }
}

impl fmt::Display for Offsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(name, offset)| format!("{name}@{offset}")).collect();
        f.write_str(&parts.join(","))
    }
}

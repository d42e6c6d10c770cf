//! Loading of a run configuration from a file or a text.

use std::path::Path;

use crate::{ConfigError, RunConfig};

impl RunConfig {
    /// Reads, merges and checks the file at `path`.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read, is not TOML, or has problems.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.into(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Merges and checks `text`. Only error messages use `path`.
    ///
    /// # Errors
    /// [`ConfigError`] if the text is not TOML or has problems.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| ConfigError::Syntax {
            path: path.into(),
            message: e.to_string(),
        })?;
        crate::check::resolve(table).map_err(|problems| ConfigError::Invalid {
            path: path.into(),
            problems,
        })
    }
}

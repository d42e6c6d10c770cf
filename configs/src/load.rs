//! Loading of a run configuration from a file or a text.

use std::path::Path;

use crate::{ConfigError, Problem, RunConfig};

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

    /// Does the same after replacing keys of the file. A change is `KEY=VALUE`, with a dotted key
    /// and a TOML value or a plain text: `agents.a.device=cuda:0`.
    ///
    /// # Errors
    /// The errors of [`Self::load`]. A change that cannot be made is a problem of its key.
    pub fn load_with(path: &Path, changes: &[String]) -> Result<Self, ConfigError> {
        if changes.is_empty() {
            return Self::load(path);
        }
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.into(),
            source,
        })?;
        let mut table = table(&text, path)?;
        let invalid = |problems| ConfigError::Invalid {
            path: path.into(),
            problems,
        };
        for change in changes {
            set(&mut table, change).map_err(|problem| invalid(vec![problem]))?;
        }
        crate::check::resolve(table).map_err(invalid)
    }

    /// Merges and checks `text`. Only error messages use `path`.
    ///
    /// # Errors
    /// [`ConfigError`] if the text is not TOML or has problems.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        crate::check::resolve(table(text, path)?).map_err(|problems| ConfigError::Invalid {
            path: path.into(),
            problems,
        })
    }
}

fn table(text: &str, path: &Path) -> Result<toml::Table, ConfigError> {
    text.parse().map_err(|error: toml::de::Error| ConfigError::Syntax {
        path: path.into(),
        message: error.to_string(),
    })
}

/// Makes one change `KEY=VALUE` of a configuration.
fn set(table: &mut toml::Table, change: &str) -> Result<(), Problem> {
    let problem = |path: &str, message: String| Problem {
        path: path.to_owned(),
        message,
    };
    let (key, value) = change.split_once('=').ok_or_else(|| {
        problem(
            change,
            "is no change: write KEY=VALUE, such as agents.a.device=cpu".into(),
        )
    })?;
    let key = key.trim();
    let parsed = format!("value = {value}").parse::<toml::Table>();
    let parsed = parsed.ok().and_then(|mut parsed| parsed.remove("value"));
    // A shell removes the quotes of a text.
    let value = match parsed {
        Some(value) => value,
        None if value.trim_start().starts_with(['[', '{', '"', '\'']) => {
            return Err(problem(key, format!("{value} is no TOML value")));
        }
        None => toml::Value::String(value.trim().to_owned()),
    };
    let (folders, name) = key.rsplit_once('.').unwrap_or(("", key));
    let mut place = table;
    for folder in folders.split('.').filter(|folder| !folder.is_empty()) {
        let next = place
            .entry(folder)
            .or_insert_with(|| toml::Value::Table(toml::Table::new()));
        place = next
            .as_table_mut()
            .ok_or_else(|| problem(key, format!("{folder} is no table")))?;
    }
    place.insert(name.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_replace_keys_of_the_file() {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("signal.toml");
        let load = |changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
            RunConfig::load_with(&shipped, &changes)
        };
        let config = load(&["run.seed=7", "agents.b.device = \"cuda:1\""]).unwrap();
        assert_eq!(config.run.seed, 7);
        let bare = load(&["agents.b.device=cuda:1"]).unwrap();
        assert!(bare.agents.values().any(|agent| agent.device.to_string() == "cuda:1"));
        let devices: Vec<String> = config.agents.values().map(|agent| agent.device.to_string()).collect();
        assert_eq!(devices, ["cpu", "cuda:1"], "the table of b was empty");
        for (change, why) in [
            ("run.seed", "is no change"),
            ("agents.b.device=[cuda:1", "is no TOML value"),
            ("run.seed.x=1", "seed is no table"),
            ("run.sed=1", "run.sed"),
        ] {
            let error = load(&[change]).unwrap_err().to_string();
            assert!(error.contains(why), "{change}: {error}");
        }
    }
}

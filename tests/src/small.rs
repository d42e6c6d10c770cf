//! Small configurations: `configs/signal.toml` with smaller numbers, so that a run takes seconds.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::program::Program;

/// A configuration that a test changes.
pub struct Small(Table);

impl Default for Small {
    fn default() -> Self {
        Self::new()
    }
}

impl Small {
    /// Reads a shipped configuration.
    #[must_use]
    pub fn of(config: &str) -> Self {
        let text = std::fs::read_to_string(Program::root().join(config)).unwrap();
        Self(text.parse().unwrap())
    }

    /// Makes the signal game with a tiny model, a short lease and bundles that travel in several
    /// parts.
    #[must_use]
    pub fn new() -> Self {
        Self::of("configs/signal.toml")
            .set("run.lease", "2s")
            .set("run.message_cap", "16 KiB")
            .set("run.transcripts", "none")
            .set("workflow.group_size", 128)
            .set("defaults.agent.model.random.layers", 1)
            .set("defaults.agent.model.random.hidden", 16)
            .set("defaults.agent.model.random.intermediate", 32)
            .set("defaults.agent.train.batch_groups", 2)
            .set("defaults.agent.train.checkpoint_every", 4)
            .without("eval")
    }

    /// Makes a run in which groups arrive asynchronously and nothing is computed: the data plane
    /// alone.
    #[must_use]
    pub fn scripted() -> Self {
        Self::new()
            .set("run.mode", "async")
            .set("defaults.agent.engine.kind", "scripted")
            .set("defaults.agent.train.max_staleness", 3)
    }

    /// Sets a key by its path; missing tables are made.
    #[must_use]
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
        let mut at = &mut self.0;
        for table in tables.split('.').filter(|part| !part.is_empty()) {
            let entry = at.entry(table).or_insert_with(|| Value::Table(Table::new()));
            at = entry.as_table_mut().unwrap();
        }
        at.insert(key.to_owned(), value.into());
        self
    }

    /// Removes a key or table by its path.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
        let parts = tables.split('.').filter(|part| !part.is_empty());
        let table = parts.fold(&mut self.0, |at, part| at[part].as_table_mut().unwrap());
        table.remove(key);
        self
    }

    /// Writes it as a file.
    #[must_use]
    pub fn write(&self, path: &Path) -> PathBuf {
        std::fs::write(path, self.0.to_string()).unwrap();
        path.to_owned()
    }
}

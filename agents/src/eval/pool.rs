//! The frozen pool on which a verifier is measured: solutions of the first evaluation, kept in the
//! run folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use broker::atomic_file;
use broker::protocol::task::Task;
use configs::RunConfig;
use rollout::workflow::Workflow;
use rollout::workflows::solve_verify::verifier_pool::{VerifierPool, judge};

/// The pool of `[eval] pool`: its workflow, and its tasks once they are chosen.
pub struct Pool {
    size: usize,
    path: PathBuf,
    workflow: Arc<dyn Workflow>,
    tasks: Vec<(String, Arc<Task>)>,
}

impl Pool {
    /// Opens the pool that the configuration wants, if any. A pool that an earlier process of the
    /// run chose is kept.
    pub fn open(config: &RunConfig, path: &Path) -> anyhow::Result<Option<Self>> {
        let Some(size) = config.eval.pool else { return Ok(None) };
        let workflow = judge(&config.workflow, &config.graders)?;
        let mut pool = Self {
            size,
            path: path.to_owned(),
            workflow,
            tasks: Vec::new(),
        };
        pool.look()?;
        Ok(Some(pool))
    }

    /// Reads the pool if another coordinator of the run has chosen it meanwhile.
    ///
    /// # Errors
    /// The file cannot be read, or one of its lines is no task.
    pub fn look(&mut self) -> anyhow::Result<()> {
        if self.is_chosen() {
            return Ok(());
        }
        let path = &self.path;
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let read = VerifierPool::from_lines(&text);
                let pool = read.map_err(|(line, why)| anyhow::anyhow!("{}, line {line}: {why}", path.display()))?;
                self.put(&pool);
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    #[must_use]
    pub fn is_chosen(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Chooses the pool among `solutions` and writes it atomically.
    pub fn choose(&mut self, config: &RunConfig, solutions: Vec<(Task, String)>) -> anyhow::Result<()> {
        let pool = VerifierPool::choose(&config.workflow, &config.graders, solutions, self.size, config.run.seed)?;
        atomic_file::replace(&self.path, pool.lines().as_bytes())
            .with_context(|| format!("writing {}", self.path.display()))?;
        self.put(&pool);
        Ok(())
    }

    fn put(&mut self, pool: &VerifierPool) {
        let named = |(i, task): (usize, &Task)| {
            let id = task.id.clone().unwrap_or_else(|| i.to_string());
            (format!("pool/{id}"), Arc::new(task.clone()))
        };
        self.tasks = pool.tasks().iter().enumerate().map(named).collect();
    }

    /// The workflow of the verifier's one turn.
    #[must_use]
    pub fn workflow(&self) -> Arc<dyn Workflow> {
        self.workflow.clone()
    }

    /// The tasks by id, the same every time.
    #[must_use]
    pub fn tasks(&self) -> Vec<(String, Arc<Task>)> {
        self.tasks.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::protocol::task::Prompt;

    fn config(pool: &str) -> RunConfig {
        let text = include_str!("../../../configs/arithmetic.toml");
        let mut table: toml::Table = text.parse().unwrap();
        let eval = table.get_mut("eval").unwrap().as_table_mut().unwrap();
        eval.remove("pool");
        eval.extend(pool.parse::<toml::Table>().unwrap());
        RunConfig::parse(&table.to_string(), Path::new("arithmetic.toml")).unwrap()
    }

    fn solutions(wrong: usize) -> Vec<(Task, String)> {
        let task = |i: usize| Task {
            id: Some(format!("t{i}")),
            workflow: None,
            prompt: Prompt::Text(format!("{i}+1=")),
            label: (i + 1).into(),
            metadata: serde_json::Map::new(),
            tools: None,
        };
        (0..20)
            .map(|i| (task(i), (if i < wrong { i } else { i + 1 }).to_string()))
            .collect()
    }

    #[test]
    fn a_pool_is_chosen_once_in_the_life_of_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.jsonl");
        assert!(Pool::open(&config(""), &path).unwrap().is_none());
        let config = config("pool = 10");
        let mut pool = Pool::open(&config, &path).unwrap().unwrap();
        assert!(!pool.is_chosen());
        assert!(
            pool.choose(&config, solutions(0)).is_err(),
            "without wrong solutions there is none"
        );
        assert!(!pool.is_chosen() && !path.exists());
        let mut other = Pool::open(&config, &path).unwrap().unwrap();
        pool.choose(&config, solutions(10)).unwrap();
        assert_eq!(pool.tasks().len(), 10);
        other.look().unwrap();
        assert_eq!(other.tasks(), pool.tasks(), "of another coordinator");
        assert!(pool.tasks().iter().all(|(id, _)| id.starts_with("pool/t")));
        let again = Pool::open(&config, &path).unwrap().unwrap();
        assert_eq!(again.tasks(), pool.tasks());
        std::fs::write(&path, "{}\n").unwrap();
        assert!(Pool::open(&config, &path).err().unwrap().to_string().contains("line 1"));
    }
}

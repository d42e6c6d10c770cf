//! The run folder: everything a run leaves behind, and all that a reader needs to reproduce it.
//!
//! ```text
//! runs/<run>/
//!   config.toml   run.json   run.lock   ended.json   connection.json   report.html
//!   pinned.json   pinned.<agent>.json
//!   logs/<process>.jsonl   metrics/<process>.jsonl   transcripts/<process>.jsonl
//!   tokens/<agent>.jsonl   dashboard-<port>.token
//!   tensorboard/<agent>/   models/<agent>/   checkpoints/<agent>/step-N/   buffer/<agent>.sqlite
//!   initial/<agent>/   weights/<agent>/LINEAGE-STEP/   past/<agent>/step-N/
//!   evals/<process>.jsonl   refused/<process>.jsonl   published.jsonl   dead.jsonl   pool.jsonl
//!   round.journal
//!   snapshots/   strikes/   servers/
//! ```

pub mod connect;
mod connection;
pub mod crash_marks;
mod held;
pub mod input_digests;
mod known_config;
pub mod logs;
pub mod metrics;
pub mod models;
mod run_end;
mod run_info;
pub mod servers;
pub mod telemetry;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use broker::ids::RunId;
use broker::{AgentName, atomic_file};
use configs::{ConfigError, RunConfig};
use trainer::checkpoint::CheckpointStore;

use crate::base::build_info;
use run_info::{git_commit, new_run_id, read_info};

pub use connection::Connection;
pub use held::Held;
pub use known_config::KnownConfigs;
pub use run_end::{EndReason, RunEnd};
pub use run_info::RunInfo;

/// Reasons why a run folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("cannot {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "no run in {base} matches {which:?}: name a run's id, a prefix of one or its folder; `latest` is the newest that \
         played there"
    )]
    NotFound { base: PathBuf, which: String },
    #[error("{which:?} matches more than one run in {base}: {runs}")]
    Ambiguous { base: PathBuf, which: String, runs: String },
    #[error("{path} is not a run folder: {reason}")]
    Broken { path: PathBuf, reason: String },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the configuration cannot be written as TOML: {0}")]
    Unwritable(String),
}

/// The folder of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
    run: RunId,
}

impl RunFolder {
    /// Makes the folder of a new run below `base`, with the resolved configuration, the seed and
    /// the commit. `source` is the original configuration file.
    pub fn create(base: &Path, config: &RunConfig, source: Option<&Path>) -> Result<Self, FolderError> {
        Self::make(base, config, source, new_run_id(&config.run.name))
    }

    /// Returns the folder of a run with a given id: opens it, or makes it if it is missing. Several
    /// processes that share a file system may do so at once.
    pub fn open_or_create(base: &Path, config: &RunConfig, run: RunId) -> Result<Self, FolderError> {
        let path = base.join(run.as_str());
        if path.join("run.json").is_file() {
            return Self::open(&path);
        }
        Self::make(base, config, None, run)
    }

    fn make(base: &Path, config: &RunConfig, source: Option<&Path>, run: RunId) -> Result<Self, FolderError> {
        let folder = Self {
            path: base.join(run.as_str()),
            run,
        };
        for part in ["logs", "metrics", "transcripts", "buffer", "checkpoints", "tensorboard"] {
            let path = folder.path.join(part);
            fs::create_dir_all(&path).map_err(io_error("make", &path))?;
        }
        let text = toml::to_string_pretty(config).map_err(|e| FolderError::Unwritable(e.to_string()))?;
        folder.write("config.toml", text.as_bytes())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let info = RunInfo {
            run: folder.run.to_string(),
            name: config.run.name.clone(),
            seed: config.run.seed,
            version: build_info::VERSION.into(),
            commit: build_info::COMMIT.into(),
            git: git_commit(),
            source: source.map(Path::to_owned),
            created_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        };
        // Written last: a folder belongs to a run once this file exists.
        folder.write("run.json", &broker::codec::encode_json(&info))?;
        Ok(folder)
    }

    /// Replaces the resolved configuration, in one step.
    pub fn set_config(&self, config: &RunConfig) -> Result<(), FolderError> {
        let text = toml::to_string_pretty(config).map_err(|e| FolderError::Unwritable(e.to_string()))?;
        let path = self.path.join("config.toml");
        atomic_file::replace(&path, text.as_bytes()).map_err(io_error("replace", &path))
    }

    /// Opens the folder of an earlier run.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let info = read_info(path)?;
        let run = RunId::new(&info.run).ok_or_else(|| FolderError::Broken {
            path: path.into(),
            reason: format!("{:?} is not a run id", info.run),
        })?;
        Ok(Self { path: path.into(), run })
    }

    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn info(&self) -> Result<RunInfo, FolderError> {
        read_info(&self.path)
    }

    /// Returns the resolved configuration.
    pub fn config(&self) -> Result<RunConfig, FolderError> {
        Ok(RunConfig::load(&self.path.join("config.toml"))?)
    }

    /// `logs/<process>.jsonl`
    #[must_use]
    pub fn log(&self, process: &str) -> PathBuf {
        self.lines("logs", process)
    }

    /// `metrics/<process>.jsonl`
    #[must_use]
    pub fn metrics(&self, process: &str) -> PathBuf {
        self.lines("metrics", process)
    }

    /// `transcripts/<process>.jsonl`
    #[must_use]
    pub fn transcripts(&self, process: &str) -> PathBuf {
        self.lines("transcripts", process)
    }

    /// `tokens/<agent>.jsonl`
    #[must_use]
    pub fn tokens(&self, agent: &AgentName) -> PathBuf {
        self.lines("tokens", agent.as_str())
    }

    fn lines(&self, part: &str, process: &str) -> PathBuf {
        self.path.join(part).join(format!("{process}.jsonl"))
    }

    /// Returns the folder with the files in which the ranks of trainers meet.
    #[must_use]
    pub fn ranks(&self) -> PathBuf {
        self.path.join("ranks")
    }

    /// `buffer/<agent>.sqlite`
    #[must_use]
    pub fn ledger(&self, agent: &AgentName) -> PathBuf {
        self.path.join("buffer").join(format!("{agent}.sqlite"))
    }

    /// `checkpoints/<agent>`
    #[must_use]
    pub fn checkpoints(&self, agent: &AgentName) -> PathBuf {
        self.path.join("checkpoints").join(agent.as_str())
    }

    /// Returns the step of an agent's newest checkpoint, or 0 without a checkpoint.
    #[must_use]
    pub fn newest_step(&self, agent: &AgentName) -> u64 {
        let newest = CheckpointStore::new(&self.checkpoints(agent), 1).latest();
        newest.map_or(0, |newest| newest.manifest.step)
    }

    /// `initial/<agent>`: the policy at the start of the run, if a warm start made it
    #[must_use]
    pub fn initial(&self, agent: &AgentName) -> PathBuf {
        self.path.join("initial").join(agent.as_str())
    }

    /// `past/<agent>`: the models that an agent keeps of another agent's past
    #[must_use]
    pub fn past(&self, agent: &AgentName) -> PathBuf {
        self.path.join("past").join(agent.as_str())
    }

    /// `weights/<agent>`: the newest few versions, for engines that are separate processes
    #[must_use]
    pub fn weights(&self, agent: &AgentName) -> PathBuf {
        self.path.join("weights").join(agent.as_str())
    }

    /// `tensorboard/<process>`
    #[must_use]
    pub fn tensorboard(&self, process: &str) -> PathBuf {
        self.path.join("tensorboard").join(process)
    }

    /// `models/<agent>`: the model it began from, if it was made for this run.
    #[must_use]
    pub fn model(&self, agent: &AgentName) -> PathBuf {
        self.path.join("models").join(agent.as_str())
    }

    /// `evals/<process>.jsonl`: every evaluation, task by task
    #[must_use]
    pub fn evals(&self, process: &str) -> PathBuf {
        self.path.join("evals").join(format!("{process}.jsonl"))
    }

    /// `cross_play.json`: the newest table of `dyad cross-play` that names this run first.
    #[must_use]
    pub fn cross_play(&self) -> PathBuf {
        self.path.join("cross_play.json")
    }

    /// `published.jsonl`: the confirmed tasks of `dyad publish`, one JSON object per task.
    #[must_use]
    pub fn published(&self) -> PathBuf {
        self.path.join("published.jsonl")
    }

    /// `dead.jsonl`: the dead letters that the run's own broker had at its end.
    #[must_use]
    pub fn dead(&self) -> PathBuf {
        self.path.join("dead.jsonl")
    }

    /// `refused/<process>.jsonl`: tasks that went to the dead letters, with the reason.
    #[must_use]
    pub fn refused(&self, process: &str) -> PathBuf {
        self.path.join("refused").join(format!("{process}.jsonl"))
    }

    /// `pool.jsonl`: the frozen pool of solutions on which a verifier is measured.
    #[must_use]
    pub fn pool(&self) -> PathBuf {
        self.path.join("pool.jsonl")
    }

    #[must_use]
    pub fn report(&self) -> PathBuf {
        self.path.join("report.html")
    }

    /// Returns the `*.jsonl` files of `part` (`logs`, `metrics`, `transcripts`, `evals`), by name.
    pub fn files(&self, part: &str) -> Result<Vec<PathBuf>, FolderError> {
        let folder = self.path.join(part);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error("read", &folder)(error)),
        };
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "jsonl"))
            .collect();
        files.sort();
        Ok(files)
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), FolderError> {
        let path = self.path.join(name);
        fs::write(&path, content).map_err(io_error("write", &path))
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError::Io { doing, path, source }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const CONFIG: &str = r#"
        [run]
        name = "signal-game"
        seed = 7
        train_steps = 3
        [tasks]
        source = "generator:signal"
        [workflow]
        kind = "signal"
        group_size = 4
        roles = { speaker = "a", listener = "b" }
        [defaults.agent.model.random]
        layers = 1
        hidden = 16
        heads = 2
        tokenizer = "bytes"
        [agents.a]
        [agents.b]
    "#;

    /// Writes a byte tokenizer with a chat template that begins each answer with a reasoning.
    pub(crate) fn thinking_in(folder: &Path) {
        rollout::text::make::write_tokenizer(folder, &configs::TokenizerConfig::Bytes).unwrap();
        let path = folder.join("tokenizer_config.json");
        let mut settings: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let (template, begins) = (settings["chat_template"].as_str().unwrap(), "<|assistant|>{%- endif");
        assert!(template.contains(begins));
        let thinking = template.replace(begins, "<|assistant|><think>{{ '\\n' }}{%- endif");
        settings["chat_template"] = thinking.into();
        std::fs::write(path, settings.to_string()).unwrap();
    }

    /// Returns the bytes that this thread has read so far.
    pub(crate) fn bytes_read() -> u64 {
        let counts = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let line = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
        line.unwrap().parse().unwrap()
    }

    pub(crate) fn config_in(base: &Path) -> RunConfig {
        let mut config = RunConfig::parse(CONFIG, Path::new("test.toml")).unwrap();
        config.run.folder = base.into();
        config
    }

    #[test]
    fn a_run_of_a_given_id_has_one_folder() {
        let base = tempfile::tempdir().unwrap();
        let (config, run) = (config_in(base.path()), RunId::new("given-1").unwrap());
        let made = RunFolder::open_or_create(base.path(), &config, run.clone()).unwrap();
        let before = made.info().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(3));
        let found = RunFolder::open_or_create(base.path(), &config, run.clone()).unwrap();
        assert_eq!((found.path(), found.info().unwrap()), (made.path(), before));
    }

    #[test]
    fn the_newest_step_without_a_checkpoint_is_0() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let (a, b) = (AgentName::new("a").unwrap(), AgentName::new("b").unwrap());
        for saved in [0, 7] {
            let mut store = CheckpointStore::new(&folder.checkpoints(&a), 1);
            store.save(saved, |_| Ok("digest".into())).unwrap();
            assert_eq!((folder.newest_step(&a), folder.newest_step(&b)), (saved, 0));
        }
    }
}

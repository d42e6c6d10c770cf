//! The run folder: everything a run leaves behind, and all that a reader needs to reproduce it.
//!
//! ```text
//! runs/<run>/
//!   config.toml   run.json   connection.json   pinned.json   pinned.<agent>.json   report.html
//!   logs/<process>.jsonl   metrics/<process>.jsonl   transcripts/<process>.jsonl
//!   tensorboard/<agent>/   models/<agent>/   checkpoints/<agent>/step-N/   buffer/<agent>.sqlite
//!   initial/<agent>/   weights/<agent>/LINEAGE-STEP/   past/<agent>/step-N/
//!   evals/<process>.jsonl   refused/<process>.jsonl   published.jsonl   pool.jsonl   round.journal
//!   snapshots/   strikes/   servers/
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use broker::AgentName;
use broker::ids::RunId;
use configs::{ConfigError, RunConfig};
use serde::{Deserialize, Serialize};

/// Why a run folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("cannot {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("no run in {base} is meant by {which:?}: give `latest`, a run id, the start of one, or a folder")]
    NotFound { base: PathBuf, which: String },
    #[error("{which:?} means more than one run in {base}: {runs}")]
    Ambiguous { base: PathBuf, which: String, runs: String },
    #[error("{path} is not a run folder: {reason}")]
    Broken { path: PathBuf, reason: String },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the configuration cannot be written as TOML: {0}")]
    Unwritable(String),
}

/// What `run.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    pub run: String,
    pub name: String,
    pub seed: u64,
    /// dyad's release.
    pub version: String,
    /// Commit of the working tree it was started in, with `+changes` if it differed; empty outside of one.
    #[serde(default)]
    pub git: String,
    /// The configuration file it was started with.
    #[serde(default)]
    pub source: Option<PathBuf>,
    /// Milliseconds since 1970, UTC.
    pub created_ms: u64,
}

/// Where a live run's servers are. Has passwords: its file is read by its owner alone, and it is never logged.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    pub broker: String,
    pub state: String,
}

/// The folder of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
    run: RunId,
}

impl RunFolder {
    /// Makes the folder of a new run below `base`, with the resolved configuration, the seed and the commit. `source` is
    /// the file the configuration came from.
    pub fn create(base: &Path, config: &RunConfig, source: Option<&Path>) -> Result<Self, FolderError> {
        Self::make(base, config, source, new_run_id(&config.run.name))
    }

    /// The folder of a run whose id was chosen by others: opened if it is there, else made. Several processes that share a
    /// file system may do so at once.
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
            version: env!("CARGO_PKG_VERSION").into(),
            git: git_commit(),
            source: source.map(Path::to_owned),
            created_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        };
        // Last: a folder is a run's when this file is there.
        folder.write("run.json", &broker::codec::encode_json(&info))?;
        Ok(folder)
    }

    /// Opens the folder of a run that was begun before.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let info = read_info(path)?;
        let run = RunId::new(&info.run).ok_or_else(|| FolderError::Broken {
            path: path.into(),
            reason: format!("{:?} is no run id", info.run),
        })?;
        Ok(Self { path: path.into(), run })
    }

    /// The run that `which` means: a folder, `latest`, a run id below `base`, or the start of just one.
    pub fn find(base: &Path, which: &str) -> Result<Self, FolderError> {
        let path = Path::new(which);
        if path.join("run.json").is_file() {
            return Self::open(path);
        }
        let mut runs = list(base);
        let not_found = || FolderError::NotFound {
            base: base.into(),
            which: which.into(),
        };
        if which == "latest" {
            let newest = runs.into_iter().max_by_key(|(info, _)| info.created_ms);
            return Self::open(&newest.ok_or_else(not_found)?.1);
        }
        runs.retain(|(info, _)| info.run.starts_with(which));
        if let Some((_, path)) = runs.iter().find(|(info, _)| info.run == which) {
            return Self::open(path);
        }
        match runs.as_slice() {
            [] => Err(not_found()),
            [(_, path)] => Self::open(path),
            many => Err(FolderError::Ambiguous {
                base: base.into(),
                which: which.into(),
                runs: many
                    .iter()
                    .map(|(info, _)| info.run.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            }),
        }
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

    /// The resolved configuration.
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

    fn lines(&self, part: &str, process: &str) -> PathBuf {
        self.path.join(part).join(format!("{process}.jsonl"))
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

    /// `initial/<agent>`: the policy as the run began, where a warm start made it
    #[must_use]
    pub fn initial(&self, agent: &AgentName) -> PathBuf {
        self.path.join("initial").join(agent.as_str())
    }

    /// `past/<agent>`: the models that an agent keeps of another's past
    #[must_use]
    pub fn past(&self, agent: &AgentName) -> PathBuf {
        self.path.join("past").join(agent.as_str())
    }

    /// `weights/<agent>`: what engines that are processes of their own read, the newest few versions
    #[must_use]
    pub fn weights(&self, agent: &AgentName) -> PathBuf {
        self.path.join("weights").join(agent.as_str())
    }

    /// `tensorboard/<process>`
    #[must_use]
    pub fn tensorboard(&self, process: &str) -> PathBuf {
        self.path.join("tensorboard").join(process)
    }

    /// `models/<agent>`: the model it began from, where that was made for this run.
    #[must_use]
    pub fn model(&self, agent: &AgentName) -> PathBuf {
        self.path.join("models").join(agent.as_str())
    }

    /// `evals/<process>.jsonl`: every evaluation, task by task
    #[must_use]
    pub fn evals(&self, process: &str) -> PathBuf {
        self.path.join("evals").join(format!("{process}.jsonl"))
    }

    /// What `dyad publish` has had confirmed: one JSON object per task.
    #[must_use]
    pub fn published(&self) -> PathBuf {
        self.path.join("published.jsonl")
    }

    /// `refused/<process>.jsonl`: tasks that went to the dead letters, with the reason.
    #[must_use]
    pub fn refused(&self, process: &str) -> PathBuf {
        self.path.join("refused").join(format!("{process}.jsonl"))
    }

    /// The frozen pool of solutions on which a verifier is measured.
    #[must_use]
    pub fn pool(&self) -> PathBuf {
        self.path.join("pool.jsonl")
    }

    #[must_use]
    pub fn report(&self) -> PathBuf {
        self.path.join("report.html")
    }

    /// The `*.jsonl` files of `part` (`logs`, `metrics`, `transcripts`, `evals`), by name.
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

    /// Where the live run's servers are (`connection.json`); `None` if that is not known.
    pub fn connection(&self) -> Result<Option<Connection>, FolderError> {
        let path = self.path.join("connection.json");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| FolderError::Broken {
                path,
                reason: e.to_string(),
            })
    }

    /// Writes where the servers are. The file has their passwords: only its owner reads it.
    pub fn set_connection(&self, connection: &Connection) -> Result<(), FolderError> {
        let path = self.path.join("connection.json");
        let new = self.path.join("connection.json.new");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let text = broker::codec::encode_json(connection);
        options
            .open(&new)
            .and_then(|mut file| io::Write::write_all(&mut file, &text))
            .and_then(|()| fs::rename(&new, &path))
            .map_err(io_error("write", &path))
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

fn read_info(path: &Path) -> Result<RunInfo, FolderError> {
    let text = fs::read(path.join("run.json")).map_err(io_error("read", &path.join("run.json")))?;
    serde_json::from_slice(&text).map_err(|e| FolderError::Broken {
        path: path.into(),
        reason: format!("run.json: {e}"),
    })
}

fn list(base: &Path) -> Vec<(RunInfo, PathBuf)> {
    let entries = fs::read_dir(base).into_iter().flatten();
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((read_info(&path).ok()?, path))
        })
        .collect()
}

/// The name, narrowed to the alphabet of run ids, and eight random characters.
fn new_run_id(name: &str) -> RunId {
    let narrow: String = name
        .to_lowercase()
        .chars()
        .map(|c| {
            if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .take(39)
        .collect();
    let narrow = narrow.trim_matches(['-', '_']);
    let name = if narrow.is_empty() { "run" } else { narrow };
    let random: String = uuid::Uuid::new_v4()
        .as_bytes()
        .iter()
        // Bytes 6 and 8 hold the UUID's version and variant.
        .take(6)
        .flat_map(|byte| [byte & 15, byte >> 4])
        .take(8)
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect();
    match RunId::new(&format!("{name}-{random}")) {
        Some(run) => run,
        None => unreachable!("a narrowed name and hexadecimal digits are a run id"),
    }
}

fn git_commit() -> String {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = std::process::Command::new("git").args(arguments).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else {
        return String::new();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if !changes.is_empty() => format!("{commit}+changes"),
        _ => commit,
    }
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

    pub(crate) fn config_in(base: &Path) -> RunConfig {
        let mut config = RunConfig::parse(CONFIG, Path::new("test.toml")).unwrap();
        config.run.folder = base.into();
        config
    }

    #[test]
    fn a_folder_is_made_found_and_read_back() {
        let base = tempfile::tempdir().unwrap();
        let config = config_in(base.path());
        let first = RunFolder::create(base.path(), &config, None).unwrap();
        assert!(first.run().as_str().starts_with("signal-game-"), "{}", first.run());
        assert_eq!(first.run().as_str().len(), "signal-game-".len() + 8);
        std::thread::sleep(std::time::Duration::from_millis(3));
        let second = RunFolder::create(base.path(), &config, None).unwrap();
        assert_ne!(first.run(), second.run());

        let find = |which: &str| RunFolder::find(base.path(), which).map(|f| f.run().clone());
        assert_eq!(find("latest").unwrap(), *second.run());
        assert_eq!(find(first.run().as_str()).unwrap(), *first.run());
        assert_eq!(find(&first.path().display().to_string()).unwrap(), *first.run());
        assert!(matches!(find("signal"), Err(FolderError::Ambiguous { .. })));
        assert!(matches!(find("other"), Err(FolderError::NotFound { .. })));

        let resolved = first.config().unwrap();
        assert_eq!(toml::to_string(&resolved).unwrap(), toml::to_string(&config).unwrap());
        assert_eq!(first.info().unwrap().seed, 7);
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
    fn connection_data_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        assert!(folder.connection().unwrap().is_none());
        let urls = Connection {
            broker: "amqp://u:p@127.0.0.1:1/".into(),
            state: "redis://127.0.0.1:2".into(),
        };
        folder.set_connection(&urls).unwrap();
        folder.set_connection(&urls).unwrap();
        assert_eq!(folder.connection().unwrap().unwrap().broker, urls.broker);
        let mode = fs::metadata(folder.path().join("connection.json"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

//! Logs: lines for people on stderr, JSON lines in the run folder, and a panic hook that ends the
//! process.
//!
//! Every JSON line is flat: `time`, `level`, `message`, `target`, then `agent`, `role` and `run` of
//! the process, then the fields of the open spans and of the event. INFO is once per phase or
//! batch; DEBUG is per message. A process that holds a whole run writes one file per agent and
//! coordinator.

mod fields;
mod files;
mod layer;
pub(crate) mod panic;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::OnceLock;

use serde_json::{Map, Value};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use files::LogFiles;
use layer::Lines;

/// Exit code of a bug: a panic ends the process with it, and the supervisor starts it again.
pub const EXIT_PANIC: i32 = 70;

/// The target of the line that an agent logs for each batch. Standard error leaves it out.
pub const LEARNING: &str = "learning";

/// The log files of this process, for the panic hook.
static FILES: OnceLock<LogFiles> = OnceLock::new();

/// The destination of log lines and the process that writes them.
#[derive(Debug, Clone, Default)]
pub struct Telemetry {
    /// `agent`, `coordinator`, `run`, ...
    pub role: &'static str,
    pub agent: Option<String>,
    pub run: Option<String>,
    /// JSON lines are appended here.
    pub file: Option<PathBuf>,
    /// True if this process holds a whole run: lines in the scope of an agent or coordinator are
    /// appended to that one's own file, in the folder of `file`.
    pub whole_run: bool,
    /// Filter for stderr unless `RUST_LOG` is set; `None` means warnings.
    pub stderr: Option<&'static str>,
    /// Filter for the file unless `RUST_LOG` is set; `None` means information.
    pub file_level: Option<&'static str>,
}

impl Telemetry {
    /// Returns the settings of a standalone command: warnings on stderr, and no file.
    #[must_use]
    pub fn of_command(role: &'static str) -> Self {
        Self {
            role,
            ..Self::default()
        }
    }
}

/// Keeps the writer alive; dropping it writes all lines to the file.
#[derive(Debug)]
#[must_use = "the last lines are written when the guard is dropped"]
pub struct TelemetryGuard(Option<LogFiles>);

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        if let Some(files) = &self.0 {
            files.flush();
        }
    }
}

/// Reasons why logs cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("cannot write the log {path}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("logs are already set up")]
    Twice,
}

/// Sets up the logs of this process and its panic hook. Once per process.
pub fn init(telemetry: Telemetry) -> Result<TelemetryGuard, TelemetryError> {
    let open = |path: &PathBuf| {
        LogFiles::open(path, telemetry.whole_run).map_err(|source| TelemetryError::File {
            path: path.clone(),
            source,
        })
    };
    let files = telemetry.file.as_ref().map(open).transpose()?;
    let stderr = Lines::people(std::io::stderr().is_terminal()).with_filter(filter(telemetry.stderr.unwrap_or("warn")));
    let lines = files.clone().map(|files| {
        let level = telemetry.file_level.unwrap_or("info,conversation=debug");
        Lines::json(files, telemetry.identity()).with_filter(filter(level))
    });
    tracing_subscriber::registry()
        .with(stderr)
        .with(lines)
        .try_init()
        .map_err(|_| TelemetryError::Twice)?;
    if let Some(files) = &files {
        let _ = FILES.set(files.clone());
    }
    Ok(TelemetryGuard(files))
}

/// Writes all pending lines, for an exit that drops nothing. Blocks the thread.
pub fn flush() {
    if let Some(files) = FILES.get() {
        files.flush();
    }
}

/// Ends this process with the exit code of a bug, after writing its log. Not `std::process::exit`:
/// libtorch's clean-up while other threads run could crash the process with another code.
pub fn end_for_a_bug() -> ! {
    flush();
    signal_hook::low_level::exit(EXIT_PANIC);
}

impl Telemetry {
    /// The fields that every line of this process has.
    fn identity(&self) -> Map<String, Value> {
        let fields = [
            ("agent", self.agent.as_deref()),
            ("role", Some(self.role)),
            ("run", self.run.as_deref()),
        ];
        fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
            .collect()
    }
}

/// Returns the filter of `RUST_LOG`, or the default.
fn filter(default: &str) -> EnvFilter {
    // The bus logs the fate of a connection itself. lapin would repeat it, with the bodies of
    // returned messages.
    let default = EnvFilter::new(format!("{default},lapin=off"));
    match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text).unwrap_or(default),
        _ => default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::log_scope;
    use crate::run_folder::logs::{LogLine, read_json_lines};

    #[test]
    fn lines_carry_the_process_the_spans_and_the_event() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent-a.jsonl");
        let file = LogFiles::open(&path, false).unwrap();
        let telemetry = Telemetry {
            role: "agent",
            agent: Some("a".into()),
            run: Some("r-1".into()),
            ..Telemetry::default()
        };
        let subscriber = tracing_subscriber::registry()
            .with(Lines::json(file.clone(), telemetry.identity()).with_filter(EnvFilter::new("debug")));
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("conversation", conversation_id = "ab01/3", turn = tracing::field::Empty);
            span.record("turn", 2);
            let _open = span.enter();
            tracing::debug!(reward = 0.5, error = %"no answer", "turn was asked again");
            tracing::trace!("not wanted");
        });
        file.flush();
        let lines: Vec<Map<String, Value>> = read_json_lines(&path).unwrap();
        assert_eq!(lines.len(), 1);
        let line = LogLine(lines[0].clone());
        let keys: Vec<&str> = line.0.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "time",
                "level",
                "message",
                "target",
                "agent",
                "role",
                "run",
                "conversation_id",
                "turn",
                "reward",
                "error"
            ]
        );
        assert_eq!(
            (line.text("level"), line.text("message")),
            ("DEBUG", "turn was asked again")
        );
        assert_eq!(
            (line.text("conversation_id"), &line.0["turn"]),
            ("ab01/3", &Value::from(2))
        );
        assert!(line.text("time").ends_with('Z'), "{}", line.text("time"));
    }

    #[test]
    fn whole_run_has_one_log_per_agent_and_coordinator() {
        let folder = tempfile::tempdir().unwrap();
        let files = LogFiles::open(&folder.path().join("run.jsonl"), true).unwrap();
        let telemetry = Telemetry {
            role: "run",
            ..Telemetry::default()
        };
        let lines = Lines::json(files.clone(), telemetry.identity()).with_filter(EnvFilter::new("warn"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let name = broker::AgentName::new("a").unwrap();
            let group = broker::ids::GroupId([7; 16]);
            let of_agent = log_scope::agent(&name);
            let thread = of_agent.in_scope(|| log_scope::inherit(|| tracing::warn!("of the agent")));
            thread();
            log_scope::coordinator().in_scope(|| {
                log_scope::turn(group, 3, "speaker", 1).in_scope(|| tracing::warn!(agent = "a", "of a turn"));
            });
            tracing::warn!("of the process");
        });
        files.flush();
        let only = |process: &str| {
            let path = folder.path().join(format!("{process}.jsonl"));
            let mut lines: Vec<Map<String, Value>> = read_json_lines(&path).unwrap();
            assert_eq!(lines.len(), 1, "{process}: {lines:?}");
            LogLine(lines.remove(0))
        };
        let (agent, coordinator, rest) = (only("a"), only("coordinator"), only("run"));
        assert_eq!((agent.text("message"), agent.text("role")), ("of the agent", "agent"));
        assert_eq!((coordinator.text("role"), coordinator.text("agent")), ("speaker", "a"));
        let id = format!("{group}/3", group = broker::ids::GroupId([7; 16]));
        assert_eq!(coordinator.text("conversation_id"), id);
        assert_eq!((rest.text("message"), rest.text("role")), ("of the process", "run"));
    }
}

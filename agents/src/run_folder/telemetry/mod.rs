//! Logs: lines for people on stderr, JSON lines in the run folder, and a panic hook that ends the
//! process.
//!
//! Every JSON line is flat: `time`, `level`, `message`, `target`, then `agent`, `role` and `run` of
//! the process, then the fields of the open spans and of the event. INFO is once per phase or every
//! few steps; DEBUG is per message.

mod fields;
mod layer;
pub(crate) mod panic;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::OnceLock;

use serde_json::{Map, Value};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::run_folder::logs::Appender;
use layer::Lines;

/// Exit code of a bug: a panic ends the process with it, and the supervisor starts it again.
pub const EXIT_PANIC: i32 = 70;

/// The log file of this process, for the panic hook.
static FILE: OnceLock<Appender> = OnceLock::new();

/// The destination of log lines and the process that writes them.
#[derive(Debug, Clone, Default)]
pub struct Telemetry {
    /// `agent`, `coordinator`, `run`, ...
    pub role: &'static str,
    pub agent: Option<String>,
    pub run: Option<String>,
    /// JSON lines are appended here.
    pub file: Option<PathBuf>,
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
pub struct TelemetryGuard(Option<Appender>);

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            file.flush();
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
    let file = match &telemetry.file {
        None => None,
        Some(path) => Some(Appender::open(path).map_err(|source| TelemetryError::File {
            path: path.clone(),
            source,
        })?),
    };
    let stderr = Lines::people(std::io::stderr().is_terminal()).with_filter(filter(telemetry.stderr.unwrap_or("warn")));
    let lines = file.clone().map(|file| {
        Lines::json(file, telemetry.identity()).with_filter(filter(telemetry.file_level.unwrap_or("info")))
    });
    tracing_subscriber::registry()
        .with(stderr)
        .with(lines)
        .try_init()
        .map_err(|_| TelemetryError::Twice)?;
    if let Some(file) = &file {
        let _ = FILE.set(file.clone());
    }
    Ok(TelemetryGuard(file))
}

/// Writes all pending lines, for an exit that drops nothing. Blocks the thread.
pub fn flush() {
    if let Some(file) = FILE.get() {
        file.flush();
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
    use crate::run_folder::logs::{LogLine, read_json_lines};

    #[test]
    fn lines_carry_the_process_the_spans_and_the_event() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent-a.jsonl");
        let file = Appender::open(&path).unwrap();
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
}

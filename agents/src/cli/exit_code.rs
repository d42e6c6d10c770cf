//! Prints a command's error with its hint, and chooses the exit code.
//!
//! 0 ok, 1 the run or command failed, 2 wrong usage or configuration, 70 a bug, 75 a service is
//! unavailable (try again), 130 stopped by a signal.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};

use broker::bus::{BusError, PublishError};
use broker::store::StoreError;
use broker::tls::TlsError;
use configs::ConfigError;
use rollout::tasks::TasksError;
use rollout::text::TextError;
use rustix::io::Errno;
use trainer::collective::CollectiveError;
use trainer::device::DeviceError;
use trainer::engine::EngineError;
use trainer::model::ModelError;
use trainer::train::TrainError;

use super::shell_word::shell_word;
use crate::base::fault::{Interrupted, LostRank, Unavailable, Usage};
use crate::ledger::LedgerError;
use crate::run_folder::FolderError;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
/// A lost rank of a trainer counts as one: all start again.
const BUG: u8 = 70;
const UNAVAILABLE: u8 = 75;
/// The exit code that a shell reports for a command ended by Ctrl-C.
pub(super) const INTERRUPTED: u8 = 130;
/// The exit code that a shell reports for a command ended by SIGPIPE.
const BROKEN_PIPE: u8 = 141;

/// Prints the error with its causes and a hint. Returns its exit code.
#[must_use]
pub fn tell(error: &anyhow::Error) -> u8 {
    if is_closed_output(error) {
        return BROKEN_PIPE;
    }
    let text = render(error);
    // A closed standard error must not end in a panic.
    let _ = std::io::stderr().write_all(crate::run_folder::logs::printable(&text).as_bytes());
    code(error)
}

/// Names the exit code of a long-lived process for wrong usage or configuration. Docker starts a
/// container again after every code but 0, and it would end the same way.
const USAGE_VARIABLE: &str = "DYAD_USAGE_EXIT";

/// Prints the error of a long-lived process like [`tell`]. Returns its exit code, or that of
/// `DYAD_USAGE_EXIT` in place of 2.
#[must_use]
pub fn tell_of_service(error: &anyhow::Error) -> u8 {
    of_service(tell(error), std::env::var(USAGE_VARIABLE).ok().as_deref())
}

fn of_service(code: u8, wanted: Option<&str>) -> u8 {
    let wanted = wanted.and_then(|wanted| wanted.parse().ok());
    wanted.filter(|_| code == USAGE).unwrap_or(code)
}

/// Returns true if the reader of the output has closed its pipe, as `head` does.
fn is_closed_output(error: &anyhow::Error) -> bool {
    let output = error.downcast_ref::<std::io::Error>();
    output.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// `error: ...`, indented causes, `hint: ...`.
#[must_use]
pub fn render(error: &anyhow::Error) -> String {
    let hint = error.chain().find_map(hint).or_else(|| of_full_disk(error));
    let mut text = format!("error: {error}\n");
    let mut said = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some errors repeat their source in their own words.
        if !said.contains(&cause) {
            let _ = writeln!(text, "  because: {}", cause.replace('\n', "\n  "));
        }
        said = cause;
    }
    if let Some(hint) = hint {
        let _ = writeln!(text, "hint: {hint}");
    }
    text
}

/// Returns the exit code of an error: the first known cause decides.
#[must_use]
pub fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(known_code).unwrap_or(FAILED)
}

fn known_code(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if cause.is::<Usage>() || cause.is::<ConfigError>() || cause.is::<TlsError>() {
        return Some(USAGE);
    }
    if cause.is::<Unavailable>() {
        return Some(UNAVAILABLE);
    }
    if cause.is::<Interrupted>() {
        return Some(INTERRUPTED);
    }
    if let Some(error) = cause.downcast_ref::<FolderError>() {
        return Some(match error {
            FolderError::NotFound { .. } | FolderError::Ambiguous { .. } | FolderError::Config(_) => USAGE,
            FolderError::Io { source, .. } => code_of_folder(source),
            _ => FAILED,
        });
    }
    if let Some(error) = cause.downcast_ref::<ModelError>() {
        // A damaged model, or one of another kind, does not get better by trying again.
        return Some(match error {
            ModelError::Io { source, .. } => code_of_file(source),
            ModelError::Torch(_) => FAILED,
            _ => USAGE,
        });
    }
    if let Some(error) = cause.downcast_ref::<TextError>() {
        return Some(match error {
            TextError::Read { source, .. } | TextError::ChatTemplate { source, .. } => code_of_file(source),
            TextError::NoTemplate { .. }
            | TextError::Jinja { .. }
            | TextError::Template { .. }
            | TextError::Format { .. } => USAGE,
            _ => FAILED,
        });
    }
    if cause.is::<DeviceError>() {
        return Some(USAGE);
    }
    if let Some(EngineError::CacheTooSmall { .. } | EngineError::NotDeterministic(_)) = cause.downcast_ref() {
        return Some(USAGE);
    }
    if let Some(LostRank { status, .. }) = cause.downcast_ref() {
        return Some(match status.code() == Some(USAGE.into()) {
            true => USAGE,
            false => BUG,
        });
    }
    if let Some(CollectiveError::Ways { .. }) = cause.downcast_ref() {
        return Some(USAGE);
    }
    if let Some(TrainError::Ended(_) | TrainError::Lost(_)) = cause.downcast_ref::<TrainError>() {
        return Some(BUG);
    }
    if let Some(error) = cause.downcast_ref::<BusError>() {
        return Some(match error {
            BusError::Url { .. } | BusError::Login { .. } => USAGE,
            BusError::Connect { .. }
            | BusError::Tls { .. }
            | BusError::Declare { .. }
            | BusError::Delete { .. }
            | BusError::Closed => UNAVAILABLE,
        });
    }
    if let Some(error) = cause.downcast_ref::<TasksError>() {
        return Some(match error {
            TasksError::Read { source, .. } => code_of_file(source),
            TasksError::Spool { .. } => FAILED,
            _ => USAGE,
        });
    }
    if let Some(error) = cause.downcast_ref::<StoreError>() {
        return Some(match error {
            StoreError::Login { .. } => USAGE,
            _ => UNAVAILABLE,
        });
    }
    cause.is::<PublishError>().then_some(UNAVAILABLE)
}

/// Returns the code for a run folder that cannot be made or read.
fn code_of_folder(error: &std::io::Error) -> u8 {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::AlreadyExists
        | ErrorKind::NotADirectory
        | ErrorKind::InvalidFilename => USAGE,
        _ => FAILED,
    }
}

/// Returns the code for a file of a model that cannot be read. A missing one does not appear by
/// trying again.
fn code_of_file(error: &std::io::Error) -> u8 {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory | ErrorKind::InvalidData => USAGE,
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => USAGE,
        _ => FAILED,
    }
}

fn hint(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(usage) = cause.downcast_ref::<Usage>() {
        return usage.hint.clone();
    }
    if let Some(error) = cause.downcast_ref::<Unavailable>() {
        return error.hint.clone();
    }
    if let Some(ConfigError::Invalid { path, .. }) = cause.downcast_ref() {
        return Some(format!("`dyad check {}` prints all problems at once", path.display()));
    }
    if let Some(error) = cause.downcast_ref::<BusError>() {
        let text = match error {
            BusError::Connect { .. } => {
                "start it with `docker compose up -d rabbitmq`, let `dyad up` start a private one (run.broker = \"local:\"), \
                 or set DYAD_BROKER; `dyad doctor` checks all of it"
            }
            // The message already says what to do.
            BusError::Tls { .. } | BusError::Login { .. } => return None,
            BusError::Url { .. } => "a broker URL is amqp[s]://user:password@host:port/vhost, or memory: or local:",
            BusError::Declare { forbidden: true, .. } => {
                "each kind of process has its own user: give it its own file of `dyad topology export`"
            }
            BusError::Declare { .. } => "another release may have declared it differently: start a new run",
            BusError::Delete { .. } | BusError::Closed => return None,
        };
        return Some(text.into());
    }
    if let Some(error) = cause.downcast_ref::<StoreError>() {
        // The message of the others already says what to do.
        if !matches!(error, StoreError::Unknown(_)) {
            return None;
        }
        return Some(
            "start it with `docker compose up -d redis`, let `dyad up` start a private one (run.state = \"local:\"), or set \
             DYAD_STATE; `dyad doctor` checks all of it"
                .into(),
        );
    }
    if let Some(FolderError::NotFound { .. }) = cause.downcast_ref() {
        return in_containers(std::env::args().skip(1), std::env::var("DYAD_RUN").ok());
    }
    match cause.downcast_ref::<LedgerError>() {
        Some(LedgerError::InUse { .. }) => Some("`dyad status` shows which processes of the run are alive".into()),
        _ => None,
    }
}

/// Returns the hint for a disk without room.
fn of_full_disk(error: &anyhow::Error) -> Option<String> {
    let found = error.chain().any(|cause| {
        let file = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let ledger = cause.downcast_ref::<LedgerError>();
        matches!(file, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
            || ledger.is_some_and(LedgerError::is_full_disk)
    });
    let hint =
        "make room (`df -h` shows which disk is full), then give the command again; a run goes on with `--resume`";
    found.then(|| hint.into())
}

/// `compare --json FILE` writes a file, which would stay in the container.
const COMPARE: &str = "compare";

/// Commands that write files of a run.
const WRITING: [&str; 4] = [COMPARE, "export", "report", "samples"];

/// Commands that only look at a run, or send it an order.
const LOOKING: [&str; 11] = [
    "audit",
    "checkpoint",
    COMPARE,
    "conversation",
    "conversations",
    "drain",
    "logs",
    "pause",
    "resume",
    "status",
    "tasks",
];

/// Returns the hint for a run in containers, which keep its folder in a volume: the same command in
/// a new container, because the coordinator's ends with the run. Options for this host's servers
/// and folder are left out; a run that this host's environment selects is written out. A command
/// that writes files needs a copy of the folder.
fn in_containers(args: impl Iterator<Item = String>, run: Option<String>) -> Option<String> {
    let mut kept = Vec::new();
    let mut is_value = false;
    for arg in args {
        let is_option = ["--broker", "--state", "--runs"].iter().any(|option| {
            arg.strip_prefix(option)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        });
        if !is_option && !is_value {
            kept.push(shell_word(&arg));
        }
        is_value = is_option && !arg.contains('=');
    }
    let command = kept.first()?.clone();
    let command = command.as_str();
    let names_run = command == COMPARE || kept.iter().any(|arg| arg == "--run" || arg.starts_with("--run="));
    if let Some(run) = run.filter(|_| !names_run) {
        kept.extend(["--run".to_owned(), shell_word(&run)]);
    }
    let prints = command == COMPARE && !kept.iter().any(|arg| arg.starts_with("--json"));
    if WRITING.contains(&command) && !prints {
        return Some(
            "this command reads the run's folder, below --runs FOLDER; if the run is in containers, copy it first: \
             `docker compose cp coordinator:/var/lib/dyad/runs .`"
                .into(),
        );
    }
    if command == "publish" {
        return Some("if the run is elsewhere, as in containers: give --run ID, --broker URL and --config FILE".into());
    }
    LOOKING.contains(&command).then(|| {
        format!(
            "this command reads the run's folder, below --runs FOLDER; if the run is in containers: `docker compose run --rm --no-deps coordinator {}`",
            kept.join(" ")
        )
    })
}

#[cfg(test)]
mod tests;

//! Checks of `kind` values, shared by workflows, graders and tools.

use std::fmt::Display;

use super::advice::nearest;
use super::report::{Report, one_of};
use crate::{ByteSize, PROCESS, ParticipantName, REMOTE};

/// Least memory with which a program can start, in bytes.
const LEAST_MEMORY: u64 = 16 << 20;

/// Returns true if the kind names a program or a remote participant of the user.
pub(super) fn is_external(kind: &str) -> bool {
    kind.starts_with(PROCESS) || kind.starts_with(REMOTE)
}

/// Checks the name of a remote participant, which is part of a queue's name.
pub(super) fn remote(kind: &str, path: &str, report: &mut Report) {
    let Some(name) = kind.strip_prefix(REMOTE) else { return };
    let refused = ParticipantName::new(name).err();
    let why = refused.map_or_else(String::new, |error| error.to_string());
    report.when(
        !why.is_empty(),
        path,
        &[],
        format!("{why}; for example \"{REMOTE}judge\""),
    );
}

/// Checks the memory of a program.
pub(super) fn memory(memory: ByteSize, path: impl Display, report: &mut Report) {
    report.when(
        memory.0 < LEAST_MEMORY,
        path,
        &[],
        format!("is {memory}: a program needs \"16 MiB\" or more"),
    );
}

/// Returns the message for an unknown kind, with the nearest known one. A kind may be the user's
/// own program too.
pub(super) fn unknown(kind: &str, known: &[&str]) -> String {
    let file = [".py", ".sh", "/"].iter().any(|part| kind.contains(part)).then(|| {
        let file = kind.split_once(':').map_or(kind, |(_, file)| file);
        format!("{PROCESS}{file}")
    });
    let near = || nearest(kind, known.iter().copied()).map(str::to_owned);
    let meant = file
        .or_else(near)
        .map_or(String::new(), |meant| format!(" (did you mean {meant:?}?)"));
    let own = [format!("{PROCESS}FILE"), format!("{REMOTE}NAME")];
    let all: Vec<&str> = known.iter().copied().chain(own.iter().map(String::as_str)).collect();
    format!("{kind:?} is not known: write {}{meant}", one_of(&all))
}

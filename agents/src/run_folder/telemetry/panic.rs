//! Crash-only: a panic anywhere is logged and ends the whole process.
//!
//! actix catches a handler's panic: the actor dies, its address goes dead, and the process lives on
//! and later exits 0. So the hook ends the process itself. Queues, ledger and store hold the state,
//! and the supervisor starts the process again. Only readers of damaged files may panic: that panic
//! is caught and reported as an error of the file.

use std::backtrace::Backtrace;
use std::io::Write;
use std::panic::PanicHookInfo;

/// The exit code that a shell reports for a command ended by SIGPIPE.
const BROKEN_PIPE: i32 = 141;

/// Installs the hook: from now on a panic exits with [`super::EXIT_PANIC`].
pub(crate) fn install() {
    std::panic::set_hook(Box::new(|info| {
        if rollout::tasks::reads_a_file() {
            return;
        }
        if is_closed_output(message(info)) {
            // The reader of `dyad ... | head` has closed the pipe: this is not a bug, and no output
            // remains.
            crate::base::fault::leave(BROKEN_PIPE);
        }
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let backtrace = Backtrace::capture();
        tracing::error!(
            error = message(info),
            place,
            thread,
            backtrace = %backtrace,
            "panic: this is a bug; the process ends"
        );
        let _ = writeln!(
            std::io::stderr(),
            "error: a bug ended this process: {} at {place}",
            message(info)
        );
        super::end_for_a_bug();
    }));
}

/// Returns true for the panic of `println!` on a pipe after its reader has gone.
fn is_closed_output(message: &str) -> bool {
    message.starts_with("failed printing to std") && message.contains("Broken pipe")
}

fn message<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    info.payload_as_str().unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_output_is_not_reported_as_a_bug() {
        assert!(is_closed_output("failed printing to stdout: Broken pipe (os error 32)"));
        assert!(!is_closed_output(
            "failed printing to stdout: No space left on device (os error 28)"
        ));
        assert!(!is_closed_output("the actor sent to a Broken pipe"));
    }
}

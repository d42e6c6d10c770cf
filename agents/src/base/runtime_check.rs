//! Detects that an actor's `started` runs after its runtime has ended.

/// Returns true if this thread no longer has a runtime. When a thread ends, actix still calls
/// `started` on actors that never started. An actor that spawns a task there would panic.
pub(crate) fn is_over() -> bool {
    tokio::runtime::Handle::try_current().is_err()
}

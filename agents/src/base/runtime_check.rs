//! Detects actors that are dropped before they started.

/// Returns true if the runtime of this thread is gone. While a thread is torn down, actix calls
/// `started` of an actor that had not started yet. Spawning a task at that moment would panic.
pub(crate) fn is_over() -> bool {
    tokio::runtime::Handle::try_current().is_err()
}

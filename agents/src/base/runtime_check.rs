//! Actors that are dropped before they began.

/// Whether the runtime of this thread is gone. actix tells an actor that was not begun yet that it begins while it is dropped with the
/// rest of its thread: nothing can be spawned then, and trying to would panic.
pub(crate) fn is_over() -> bool {
    tokio::runtime::Handle::try_current().is_err()
}

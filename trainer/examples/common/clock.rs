//! Processor time: what a bench measures where other work disturbs the clock on the wall.

use std::time::Duration;

/// What the kernel says this thread has computed.
pub(crate) fn on_processor() -> std::io::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    nanoseconds
        .map(Duration::from_nanos)
        .ok_or_else(|| std::io::Error::other(format!("/proc/thread-self/schedstat says {text:?}")))
}

//! Processor time, for benches on machines where other work disturbs wall-clock time.

use std::time::Duration;

/// This thread's processor time according to the kernel.
pub(crate) fn on_processor() -> std::io::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    nanoseconds
        .map(Duration::from_nanos)
        .ok_or_else(|| std::io::Error::other(format!("/proc/thread-self/schedstat holds {text:?}")))
}

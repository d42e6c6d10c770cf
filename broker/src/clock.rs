//! Times in a form for people. Nothing is ordered by them.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, Utc};

/// Returns a time as RFC 3339 in UTC with milliseconds: `2026-11-20T12:00:01.250Z`.
/// A time before 1970 becomes 1970; one beyond the calendar's end becomes that end.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = i64::try_from(since.as_millis()).ok();
    // A message may name any second, and chrono's conversion of a `SystemTime` panics beyond its
    // calendar.
    let time = millis.and_then(DateTime::from_timestamp_millis);
    time.unwrap_or(DateTime::<Utc>::MAX_UTC)
        .to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_calendar_times() {
        let at = |seconds: u64| rfc3339(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7));
        assert_eq!(at(0), "1970-01-01T00:00:00.007Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59.007Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.007Z");
        assert_eq!(at(1_795_176_000), "2026-11-20T12:00:00.007Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.007Z");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
        // The largest second that a timestamp of AMQP can hold here.
        assert!(at(i64::MAX as u64 / 1000).ends_with('Z'));
    }
}

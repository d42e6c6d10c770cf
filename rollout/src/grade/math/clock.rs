//! Reads times of day.

/// A time of day in minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    minutes: u32,
    /// The hour as it was written, if no minutes were.
    hour: Option<u32>,
}

impl Clock {
    /// Reads `10:30 a.m.`, `3 PM` and `09:05`. Without a half of the day, `10:30` is a ratio too,
    /// so only minutes that begin with a zero make it a time.
    pub(super) fn read(text: &str) -> Option<Self> {
        if text.len() > 64 || !text.starts_with(|c: char| c.is_ascii_digit() || c == '\\' || c == '{') {
            return None;
        }
        let mut plain = text.to_lowercase();
        for look in [
            "\\text", "\\mathrm", "\\textrm", "{", "}", "\\ ", "\\,", "\\;", "~", ".", "$",
        ] {
            plain = plain.replace(look, "");
        }
        let plain: String = plain.chars().filter(|c| !c.is_whitespace()).collect();
        let half = ["am", "pm"].into_iter().find(|half| plain.ends_with(half));
        let time = half.map_or(plain.as_str(), |half| plain.trim_end_matches(half));
        let (hours, minutes) = match time.split_once(':') {
            Some((hours, minutes)) => (hours, Some(minutes)),
            None => (time, None),
        };
        let number = |digits: &str| {
            let short = (1..=2).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse::<u32>().ok().filter(|_| short)
        };
        let written = number(hours)?;
        let past = minutes.map_or(Some(0), |minutes| number(minutes).filter(|_| minutes.len() == 2))?;
        let is_time = half.is_some() || minutes.is_some_and(|minutes| minutes.starts_with('0'));
        let most = if half.is_some() { 12 } else { 23 };
        if !is_time || written > most || past > 59 {
            return None;
        }
        let hour = match half {
            Some("pm") => written % 12 + 12,
            Some(_) => written % 12,
            None => written,
        };
        Some(Self {
            minutes: hour * 60 + past,
            hour: (past == 0 && half.is_some()).then_some(written),
        })
    }

    pub(super) fn same(self, other: Self) -> bool {
        self.minutes == other.minutes
    }

    /// Returns the hour that a bare number would name: 3 for `3 p.m.`.
    pub(super) fn hour(self) -> Option<u32> {
        self.hour
    }
}

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
        let plain = plain(text)?;
        let half = ["am", "pm"].into_iter().find(|half| plain.ends_with(half));
        let time = half.map_or(plain.as_str(), |half| plain.trim_end_matches(half));
        let (hours, minutes) = match time.split_once(':') {
            Some((hours, minutes)) => (hours, Some(minutes)),
            None => (time, None),
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

    /// Reads hours and minutes without a half of the day: `3:45`, `18:15`.
    pub(super) fn bare(text: &str) -> Option<Self> {
        let plain = plain(text)?;
        let (hours, minutes) = plain.split_once(':')?;
        let (hour, past) = (number(hours)?, number(minutes)?);
        (hour <= 23 && past <= 59 && minutes.len() == 2).then_some(Self {
            minutes: hour * 60 + past,
            hour: None,
        })
    }

    /// Returns true if a clock of twelve hours, or one of twenty-four, shows this time so.
    pub(super) fn is_at(self, bare: Self) -> bool {
        const HALF: u32 = 12 * 60;
        self.minutes == bare.minutes || (bare.minutes <= HALF + 59 && self.minutes % HALF == bare.minutes % HALF)
    }

    pub(super) fn same(self, other: Self) -> bool {
        self.minutes == other.minutes
    }

    /// Returns the hour that a bare number would name: 3 for `3 p.m.`.
    pub(super) fn hour(self) -> Option<u32> {
        self.hour
    }
}

/// Returns a short text that begins like a time, without typesetting and in lower case.
fn plain(text: &str) -> Option<String> {
    if text.len() > 64 || !text.starts_with(|c: char| c.is_ascii_digit() || c == '\\' || c == '{') {
        return None;
    }
    let mut plain = text.to_lowercase();
    for look in [
        "\\displaystyle",
        "\\text",
        "\\mathrm",
        "\\textrm",
        "{",
        "}",
        "\\ ",
        "\\,",
        "\\;",
        "~",
        ".",
        "$",
    ] {
        plain = plain.replace(look, "");
    }
    Some(plain.chars().filter(|c| !c.is_whitespace()).collect())
}

fn number(digits: &str) -> Option<u32> {
    let short = (1..=2).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| short)
}

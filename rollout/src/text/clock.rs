//! Dates for the templates' `strftime_now`, from seconds that the caller gives.

use std::fmt::Write;

use chrono::{DateTime, Utc};

/// Directives that print numbers: `%-d` prints them without leading zeros and blanks.
const NUMBERS: &str = "YymdejHIMS";
/// Other directives. A dash after the percent sign changes nothing there.
const TEXTS: &str = "BbhAapFDTR%";

/// Formats a moment in UTC, in seconds since 1970, as C's `strftime` does in English. Directives
/// other than those of dates and times stay as they are written.
pub(super) fn strftime(seconds: i64, format: &str) -> String {
    let moment: DateTime<Utc> = DateTime::from_timestamp(seconds, 0).unwrap_or(DateTime::<Utc>::MAX_UTC);
    let (mut out, mut rest) = (String::new(), format);
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let (dash, after) = after.strip_prefix('-').map_or(("", after), |after| ("-", after));
        let mut chars = after.chars();
        // Writing to a string never fails, and the directive is one that chrono knows.
        let _ = match chars.next() {
            Some(c) if NUMBERS.contains(c) => write!(out, "{}", moment.format(&format!("%{dash}{c}"))),
            Some(c) if TEXTS.contains(c) => write!(out, "{}", moment.format(&format!("%{c}"))),
            Some(c) => write!(out, "%{c}"),
            None => write!(out, "%"),
        };
        rest = chars.as_str();
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_python_does() {
        for (seconds, format, expected) in [
            (0, "%d %b %Y", "01 Jan 1970"),
            (
                1_795_176_000,
                "%A, %B %-d, %Y %H:%M:%S",
                "Friday, November 20, 2026 12:00:00",
            ),
            (951_782_399, "%Y-%m-%d %y %a", "2000-02-28 00 Mon"),
            (951_782_400, "%Y-%m-%d", "2000-02-29"),
            (-1, "%d/%m/%Y %%q %q %", "31/12/1969 %q %q %"),
            (
                1_772_582_400,
                "%e|%-e|%j|%-j|%h|%F|%D",
                " 4|4|063|63|Mar|2026-03-04|03/04/26",
            ),
            (1_709_164_801, "%j %I %p %T %R %-I", "060 12 AM 00:00:01 00:00 12"),
            (1_735_646_400, "%j %I %p %-I", "366 12 PM 12"),
            (1_795_471_199, "%I:%M %p %-I", "09:59 PM 9"),
        ] {
            assert_eq!(strftime(seconds, format), expected);
        }
    }

    #[test]
    fn a_configured_date_is_printed_as_written() {
        for text in ["1000-01-01", "1970-01-01", "2000-02-29", "2026-11-23", "9999-12-31"] {
            let date: configs::Date = text.parse().unwrap();
            assert_eq!(strftime(date.seconds(), "%F %T"), format!("{text} 00:00:00"));
        }
    }
}

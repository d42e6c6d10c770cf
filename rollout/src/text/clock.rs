//! Dates for `strftime_now`, from seconds that the caller gives.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// `strftime` of a moment in UTC, in seconds since 1970, for the directives that chat templates use; others stay.
pub(super) fn strftime(seconds: i64, format: &str) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let month_name = MONTHS[(month - 1) as usize];
    let day_name = DAYS[days.rem_euclid(7) as usize];
    let (mut out, mut chars) = (String::new(), format.chars());
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let directive = chars.next();
        let (plain, directive) = if directive == Some('-') {
            (true, chars.next())
        } else {
            (false, directive)
        };
        let two = |n: i64| if plain { n.to_string() } else { format!("{n:02}") };
        match directive {
            Some('Y') => out.push_str(&year.to_string()),
            Some('y') => out.push_str(&two(year.rem_euclid(100))),
            Some('m') => out.push_str(&two(month)),
            Some('d') => out.push_str(&two(day)),
            Some('H') => out.push_str(&two(second / 3600)),
            Some('M') => out.push_str(&two(second / 60 % 60)),
            Some('S') => out.push_str(&two(second % 60)),
            Some('B') => out.push_str(month_name),
            Some('b') => out.push_str(&month_name[..3]),
            Some('A') => out.push_str(day_name),
            Some('a') => out.push_str(&day_name[..3]),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

/// Year, month and day of a day since 1970 (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
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
        ] {
            assert_eq!(strftime(seconds, format), expected);
        }
    }
}

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

/// Days of a year before each of its months, but for the leap day.
const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// `strftime` of a moment in UTC, in seconds since 1970, as C has it in English, for the directives of dates and times; others stay.
pub(super) fn strftime(seconds: i64, format: &str) -> String {
    let moment = Moment::of(seconds);
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
        match directive {
            Some(directive) => match moment.told(directive, plain) {
                Some(text) => out.push_str(&text),
                None => out.extend(['%', directive]),
            },
            None => out.push('%'),
        }
    }
    out
}

struct Moment {
    seconds: i64,
    /// Since 1970.
    days: i64,
    /// Of its day.
    second: i64,
    year: i64,
    month: i64,
    day: i64,
}

impl Moment {
    fn of(seconds: i64) -> Self {
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        Self {
            seconds,
            days,
            second,
            year,
            month,
            day,
        }
    }

    /// What a directive stands for, without leading zeros and blanks if it is to be `plain`; `None` for one that is not known.
    fn told(&self, directive: char, plain: bool) -> Option<String> {
        let two = |n: i64| if plain { n.to_string() } else { format!("{n:02}") };
        let all = |format: &str| strftime(self.seconds, format);
        let hour = self.second / 3600;
        Some(match directive {
            'Y' => self.year.to_string(),
            'y' => two(self.year.rem_euclid(100)),
            'm' => two(self.month),
            'd' => two(self.day),
            'e' if plain => self.day.to_string(),
            'e' => format!("{:2}", self.day),
            'j' if plain => self.day_of_year().to_string(),
            'j' => format!("{:03}", self.day_of_year()),
            'H' => two(hour),
            'I' => two((hour + 11) % 12 + 1),
            'p' => (if hour < 12 { "AM" } else { "PM" }).into(),
            'M' => two(self.second / 60 % 60),
            'S' => two(self.second % 60),
            'B' => self.month_name().into(),
            'b' | 'h' => self.month_name()[..3].to_owned(),
            'A' => self.day_name().into(),
            'a' => self.day_name()[..3].to_owned(),
            'F' => all("%Y-%m-%d"),
            'D' => all("%m/%d/%y"),
            'T' => all("%H:%M:%S"),
            'R' => all("%H:%M"),
            '%' => "%".into(),
            _ => return None,
        })
    }

    fn day_of_year(&self) -> i64 {
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        BEFORE[(self.month - 1) as usize] + i64::from(leap && self.month > 2) + self.day
    }

    fn month_name(&self) -> &'static str {
        MONTHS[(self.month - 1) as usize]
    }

    fn day_name(&self) -> &'static str {
        DAYS[self.days.rem_euclid(7) as usize]
    }
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
    fn a_date_of_the_configuration_is_told_as_it_is_written() {
        for text in ["1000-01-01", "1970-01-01", "2000-02-29", "2026-11-23", "9999-12-31"] {
            let date: configs::Date = text.parse().unwrap();
            assert_eq!(strftime(date.seconds(), "%F %T"), format!("{text} 00:00:00"));
        }
    }
}

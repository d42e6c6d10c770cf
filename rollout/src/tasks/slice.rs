//! `slice`: a part of a source's rows, in the notation of Python's slices and Hugging Face's split
//! slices.

use std::ops::Range;

/// One end of a slice: a row, or hundredths of all rows; negative values count from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Row(i64),
    Percent(i64),
}

/// `FROM:TO`; an empty end is open. `TO` itself is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    from: Option<End>,
    to: Option<End>,
}

impl Slice {
    /// Parses `100:2000`, `-500:`, `:10%`, `10%:-5`. The error gives the notation.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let known =
            "write \"FROM:TO\", each a row, a row from the end such as -100, a percentage such as 10%, or nothing";
        let wrong = || format!("{text:?} is no slice: {known}");
        let (from, to) = text.split_once(':').ok_or_else(wrong)?;
        let end = |text: &str| match text.trim() {
            "" => Ok(None),
            text => End::parse(text).map(Some).ok_or_else(wrong),
        };
        Ok(Self {
            from: end(from)?,
            to: end(to)?,
        })
    }

    /// Returns the rows of the slice out of `rows`; ends beyond them become the first and the last
    /// row.
    pub(super) fn of(self, rows: u64) -> Range<u64> {
        let at = |end: Option<End>, open: u64| end.map_or(open, |end| end.of(rows));
        let (from, to) = (at(self.from, 0), at(self.to, rows));
        from..to.max(from)
    }
}

impl End {
    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(percent) => percent
                .trim()
                .parse()
                .ok()
                .filter(|percent| (-100..=100).contains(percent))
                .map(Self::Percent),
            None => text.parse().ok().map(Self::Row),
        }
    }

    fn of(self, rows: u64) -> u64 {
        let from_the_end = |negative: bool, distance: u64| {
            if negative {
                rows.saturating_sub(distance)
            } else {
                distance.min(rows)
            }
        };
        match self {
            Self::Row(row) => from_the_end(row < 0, row.unsigned_abs()),
            Self::Percent(percent) => from_the_end(percent < 0, share(rows, percent.unsigned_abs())),
        }
    }
}

/// Returns the nearest whole number of rows; a half rounds to even, as `datasets` does.
fn share(rows: u64, percent: u64) -> u64 {
    let product = u128::from(rows) * u128::from(percent);
    let (whole, rest) = ((product / 100) as u64, product % 100);
    let up = rest > 50 || (rest == 50 && whole % 2 == 1);
    whole + u64::from(up)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, rows: u64) -> Range<u64> {
        Slice::parse(text).unwrap().of(rows)
    }

    #[test]
    fn slices_are_those_of_python_and_of_datasets() {
        assert_eq!(of("100:2000", 5000), 100..2000);
        assert_eq!(of("100:2000", 150), 100..150);
        assert_eq!(of("-500:", 5000), 4500..5000);
        assert_eq!(of("-500:", 20), 0..20);
        assert_eq!(of(":-1", 20), 0..19);
        assert_eq!(of(":", 7), 0..7);
        assert_eq!(of("10%:", 999), 100..999);
        assert_eq!(of(" :10% ", 30), 0..3);
        assert_eq!(of("-10%:", 30), 27..30);
        assert_eq!((of(":1%", 50), of(":1%", 150)), (0..0, 0..2), "half is rounded to even");
        assert!(of("5:3", 10).is_empty() && of("20:", 10).is_empty());
        for wrong in ["", "5", "a:", "1:2:3", "1.5:", "101%:", "5 %%:"] {
            assert!(Slice::parse(wrong).unwrap_err().contains("is no slice"), "{wrong}");
        }
    }
}

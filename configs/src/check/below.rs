//! Reports on the keys below one path.

use super::report::Report;

/// A report on the keys below one path.
pub(super) struct Below<'a> {
    /// Report that receives the problems.
    pub(super) report: &'a mut Report,
    /// Path above the keys.
    pub(super) path: String,
}

impl Below<'_> {
    /// Adds `message` for `key` if `wrong`.
    pub(super) fn when(&mut self, wrong: bool, key: &str, message: impl Into<String>) {
        self.compared(wrong, key, &[], message);
    }

    /// Adds `message` for `key` if `wrong`, unless one of `others` was repaired. `others` are keys
    /// below the same path.
    pub(super) fn compared(&mut self, wrong: bool, key: &str, others: &[&str], message: impl Into<String>) {
        let others: Vec<String> = others.iter().map(|other| format!("{}.{other}", self.path)).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        self.report
            .when(wrong, format!("{}.{key}", self.path), &others, message);
    }

    /// Checks that the value is 1 or more.
    pub(super) fn at_least_one(&mut self, value: usize, key: &str) {
        self.when(value == 0, key, "is 0: write 1 or more");
    }

    /// Checks that the value is `most` or less.
    pub(super) fn at_most(&mut self, value: usize, most: usize, key: &str) {
        self.when(value > most, key, format!("is {value}: write {most} or less"));
    }

    /// Checks that the value is finite and above 0.
    pub(super) fn positive(&mut self, value: f64, key: &str) {
        self.when(
            !(value.is_finite() && value > 0.0),
            key,
            format!("is {value}: write a number above 0"),
        );
    }

    /// Checks that the value is finite and 0 or more.
    pub(super) fn not_negative(&mut self, value: f64, key: &str) {
        self.when(
            !(value.is_finite() && value >= 0.0),
            key,
            format!("is {value}: write 0 or more"),
        );
    }
}

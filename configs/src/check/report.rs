//! The report that rules add problems to, and the wording of alternatives.

use std::fmt::Display;

use crate::Problem;

/// Collects problems, except those that follow from an earlier flaw.
pub(super) struct Report {
    /// Paths at which a value was removed or filled in. The values there are not the user's.
    pub(super) repaired: Vec<Vec<String>>,
    /// Problems found so far.
    pub(super) problems: Vec<Problem>,
}

impl Report {
    /// Returns true if the value at `path` is the user's.
    pub(super) fn trusts(&self, path: &str) -> bool {
        let path: Vec<&str> = path.split('.').collect();
        self.repaired.iter().all(|repaired| {
            let shared = repaired.len().min(path.len());
            // A key removed from a table makes that key unreliable, and not its neighbours.
            !(repaired.len() <= path.len() && repaired.iter().zip(&path).take(shared).all(|(a, b)| a == b))
        })
    }

    /// Returns true if nothing was removed from the table or list at `path`, or filled in there.
    pub(super) fn is_whole(&self, path: &str) -> bool {
        let path: Vec<&str> = path.split('.').collect();
        !self
            .repaired
            .iter()
            .any(|repaired| repaired.len() > path.len() && repaired.iter().zip(&path).all(|(a, b)| a == b))
    }

    /// Adds `message` if `wrong`. Skips it if `path` or a path in `compared` was repaired.
    pub(super) fn when(&mut self, wrong: bool, path: impl Display, compared: &[&str], message: impl Into<String>) {
        let path = path.to_string();
        if wrong && self.trusts(&path) && compared.iter().all(|other| self.trusts(other)) {
            self.problems.push(Problem {
                path,
                message: message.into(),
            });
        }
    }
}

/// Returns the names as a choice: `"a", "b" or "c"`.
pub(super) fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    match &quoted[..] {
        [] => "an existing name".into(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

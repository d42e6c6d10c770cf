//! Where rules tell what is wrong, and how they name what may stand instead.

use std::fmt::Display;

use crate::run::Problem;

/// Gathers problems, but for those that follow from a flaw found before.
pub(super) struct Report {
    /// Paths at which something was removed or filled in: what stands there is not what the person wrote.
    pub(super) mended: Vec<Vec<String>>,
    pub(super) problems: Vec<Problem>,
}

impl Report {
    /// Whether the value at `path` is what the person wrote.
    pub(super) fn trusts(&self, path: &str) -> bool {
        let path: Vec<&str> = path.split('.').collect();
        self.mended.iter().all(|mended| {
            let shared = mended.len().min(path.len());
            // A key removed from a table taints the key, not its neighbours; the table itself lacks something.
            !(mended.len() <= path.len() && mended.iter().zip(&path).take(shared).all(|(a, b)| a == b))
        })
    }

    /// `message` if `wrong`, unless `path` or one of what it is `compared` with was already at fault.
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

pub(super) fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    match &quoted[..] {
        [] => "one that exists".into(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

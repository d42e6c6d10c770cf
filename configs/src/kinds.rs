//! Kinds of workflows and graders: shipped, or registered by a program built on dyad.
//!
//! The kinds that a configuration may use depend on the program that reads it. The program
//! registers its kinds once, before it reads a configuration. They are process-wide because they
//! belong to the program and not to a run.

use std::sync::OnceLock;

use crate::{JUDGE, ParticipantName};

/// Workflows that are shipped.
pub const WORKFLOWS: [&str; 10] = [
    "signal",
    "guess-number",
    "doctor-patient",
    "self-reward",
    "sequential",
    "solo",
    "solve-verify",
    "solve-rewrite-select",
    "adversarial",
    "deep-research",
];
/// Graders that are shipped.
const GRADERS: [&str; 8] = ["exact", "match", "integer", "gsm8k", "math", "choice", "f1", "format"];

/// Kinds that a program adds to the shipped ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnKinds {
    pub workflows: Vec<String>,
    pub graders: Vec<String>,
}

/// An error for a kind that cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnKindError {
    #[error("{kind:?} is not a name of a kind: use 1 to 32 of a-z, 0-9, '-' and '_', beginning with a letter or digit")]
    Name { kind: String },
    #[error("{kind:?} is a shipped {what}: choose another name")]
    Shipped { what: &'static str, kind: String },
    #[error("{kind:?} is registered twice: give each {what} its own name")]
    Twice { what: &'static str, kind: String },
    #[error("kinds are registered twice in one process: put all into one registry")]
    Installed,
}

static INSTALLED: OnceLock<OwnKinds> = OnceLock::new();
static NONE: OwnKinds = OwnKinds {
    workflows: Vec::new(),
    graders: Vec::new(),
};

impl OwnKinds {
    /// Returns the kinds of this program; empty before [`OwnKinds::install`].
    #[must_use]
    pub fn installed() -> &'static Self {
        INSTALLED.get().unwrap_or(&NONE)
    }

    /// Registers the kinds for this process, once.
    ///
    /// # Errors
    /// The errors of [`OwnKinds::check`], and [`OwnKindError::Installed`] on a second call.
    pub fn install(self) -> Result<(), OwnKindError> {
        self.check()?;
        INSTALLED.set(self).map_err(|_| OwnKindError::Installed)
    }

    /// Checks that these kinds may be registered.
    ///
    /// # Errors
    /// [`OwnKindError`] for a kind with an illegal name, a shipped kind, or a kind listed twice.
    pub fn check(&self) -> Result<(), OwnKindError> {
        let judged = [
            ("workflow", &self.workflows, &WORKFLOWS[..]),
            ("grader", &self.graders, &GRADERS[..]),
        ];
        for (what, own, shipped) in judged {
            for (at, kind) in own.iter().enumerate() {
                let kind = kind.clone();
                let judge = what == "grader" && kind == JUDGE;
                if judge || shipped.contains(&kind.as_str()) {
                    return Err(OwnKindError::Shipped { what, kind });
                }
                if ParticipantName::new(&kind).is_err() {
                    return Err(OwnKindError::Name { kind });
                }
                if own[..at].contains(&kind) {
                    return Err(OwnKindError::Twice { what, kind });
                }
            }
        }
        Ok(())
    }

    /// Returns true if the program registered this workflow.
    #[must_use]
    pub fn has_workflow(&self, kind: &str) -> bool {
        self.workflows.iter().any(|own| own == kind)
    }

    /// Returns true if the program registered this grader.
    #[must_use]
    pub fn has_grader(&self, kind: &str) -> bool {
        self.graders.iter().any(|own| own == kind)
    }

    /// Returns the workflows that a configuration may use: shipped ones first, then these.
    pub(crate) fn known_workflows(&self) -> Vec<&str> {
        let own = self.workflows.iter().map(String::as_str);
        WORKFLOWS.into_iter().chain(own).collect()
    }

    /// Returns the graders that a configuration may use: shipped ones first, then these.
    pub(crate) fn known_graders(&self) -> Vec<&str> {
        let own = self.graders.iter().map(String::as_str);
        GRADERS.into_iter().chain(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(workflows: &[&str], graders: &[&str]) -> OwnKinds {
        let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        OwnKinds {
            workflows: owned(workflows),
            graders: owned(graders),
        }
    }

    #[test]
    fn kinds_with_new_names_are_accepted() {
        let own = kinds(&["debate", "double-check"], &["last-number", "debate"]);
        assert_eq!(own.check(), Ok(()));
        assert!(own.has_workflow("debate") && !own.has_workflow("last-number") && own.has_grader("last-number"));
        let known = own.known_workflows();
        assert!(known.contains(&"signal") && known.contains(&"double-check"));
        assert!(own.known_graders().contains(&"last-number") && !own.known_graders().contains(&"double-check"));
    }

    #[test]
    fn shipped_kinds_and_illegal_names_are_rejected() {
        for (own, kind) in [
            (kinds(&["signal"], &[]), "signal"),
            (kinds(&[], &["math"]), "math"),
            (kinds(&[], &["judge"]), "judge"),
        ] {
            let error = own.check().unwrap_err();
            assert!(
                matches!(&error, OwnKindError::Shipped { kind: found, .. } if found == kind),
                "{error}"
            );
        }
        for kind in ["", "My Workflow", "process:x", "remote:x"] {
            let name = || OwnKindError::Name { kind: kind.into() };
            assert_eq!(kinds(&[kind], &[]).check(), Err(name()));
            assert_eq!(kinds(&[], &[kind]).check(), Err(name()));
        }
        assert_eq!(
            kinds(&["a", "b", "a"], &[]).check(),
            Err(OwnKindError::Twice {
                what: "workflow",
                kind: "a".into()
            })
        );
    }
}

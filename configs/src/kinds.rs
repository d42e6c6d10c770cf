//! Kinds of workflows and graders that a program built on dyad has of its own.
//!
//! What a configuration may say depends on the program that reads it. So the program names its kinds once, before it reads anything;
//! every configuration of the process is judged with them. They are process-wide, since they belong to the program and not to a run.

use std::sync::OnceLock;

use crate::check::{GRADERS, WORKFLOWS};
use crate::{JUDGE, ParticipantName};

/// Kinds beside those that are shipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnKinds {
    pub workflows: Vec<String>,
    pub graders: Vec<String>,
}

/// Why a kind cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnKindError {
    #[error("{kind:?} is no name of a kind: use 1 to 32 of a-z, 0-9, '-' and '_', beginning with a letter or digit")]
    Name { kind: String },
    #[error("{kind:?} is the kind of a {what} that is shipped: take another name")]
    Shipped { what: &'static str, kind: String },
    #[error("{kind:?} is registered twice: give each {what} a name of its own")]
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
    /// Those of this program; none before [`OwnKinds::install`].
    #[must_use]
    pub fn installed() -> &'static Self {
        INSTALLED.get().unwrap_or(&NONE)
    }

    /// Makes them known to this process, once.
    ///
    /// # Errors
    /// As [`OwnKinds::check`], and [`OwnKindError::Installed`] the second time.
    pub fn install(self) -> Result<(), OwnKindError> {
        self.check()?;
        INSTALLED.set(self).map_err(|_| OwnKindError::Installed)
    }

    /// Whether these kinds may be.
    ///
    /// # Errors
    /// A kind that is no name, is shipped, or is there twice.
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

    /// Whether a workflow is of the program's own.
    #[must_use]
    pub fn has_workflow(&self, kind: &str) -> bool {
        self.workflows.iter().any(|own| own == kind)
    }

    /// Whether a grader is of the program's own.
    #[must_use]
    pub fn has_grader(&self, kind: &str) -> bool {
        self.graders.iter().any(|own| own == kind)
    }

    /// Kinds of workflows that a configuration may name: those that are shipped, then these.
    pub(crate) fn known_workflows(&self) -> Vec<&str> {
        let own = self.workflows.iter().map(String::as_str);
        WORKFLOWS.into_iter().chain(own).collect()
    }

    /// Kinds of graders that a configuration may name: those that are shipped, then these.
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
    fn kinds_have_names_of_their_own() {
        let own = kinds(&["debate", "double-check"], &["last-number", "debate"]);
        assert_eq!(own.check(), Ok(()));
        assert!(own.has_workflow("debate") && !own.has_workflow("last-number") && own.has_grader("last-number"));
        let known = own.known_workflows();
        assert!(known.contains(&"signal") && known.contains(&"double-check"));
        assert!(own.known_graders().contains(&"last-number") && !own.known_graders().contains(&"double-check"));
    }

    #[test]
    fn what_is_shipped_or_no_name_is_refused() {
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

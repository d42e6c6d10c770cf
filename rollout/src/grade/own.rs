//! Graders that a program registers as Rust types. `[graders.NAME] kind` names them like shipped
//! graders.

use std::fmt;
use std::sync::OnceLock;

use serde_json::Value;

static INSTALLED: OnceLock<Vec<Own>> = OnceLock::new();

/// A way of comparing an answer with a label. Implementations must be pure: the same text and label
/// always give the same grade, in every process.
pub trait OwnGrader: Send + Sync {
    /// Grades the answer in `text` (its last 64 KiB), from 0 to 1. Values outside are clamped, and
    /// NaN counts as 0.
    fn grade(&self, text: &str, label: &Value) -> f32;

    /// Returns `Some(true)` if both texts have the same answer. A vote among several conversations
    /// of a task uses it. `None` means that the grader does not compare answers with each other.
    fn same(&self, _a: &str, _b: &str) -> Option<bool> {
        None
    }

    /// Checks that the grader can compare with the label.
    ///
    /// # Errors
    /// Says what is wrong with the label, for the publisher of the task.
    fn check_label(&self, _label: &Value) -> Result<(), String> {
        Ok(())
    }
}

/// A registered grader with its kind. It lives until the process ends.
#[derive(Clone, Copy)]
pub struct Own {
    kind: &'static str,
    grader: &'static dyn OwnGrader,
}

impl Own {
    /// Keeps a grader until the process ends.
    pub(crate) fn keep(kind: &'static str, grader: impl OwnGrader + 'static) -> Self {
        let grader = Box::leak(Box::new(grader));
        Self { kind, grader }
    }

    pub(crate) fn kind(self) -> &'static str {
        self.kind
    }

    pub(super) fn grade(self, text: &str, label: &Value) -> f32 {
        let worth = self.grader.grade(text, label);
        if worth.is_nan() { 0.0 } else { worth.clamp(0.0, 1.0) }
    }

    pub(super) fn same(self, a: &str, b: &str) -> Option<bool> {
        self.grader.same(a, b)
    }

    pub(super) fn check_label(self, label: &Value) -> Result<(), String> {
        self.grader.check_label(label)
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Own").field(&self.kind).finish()
    }
}

/// A kind is registered once, so it identifies the grader.
impl PartialEq for Own {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for Own {}

/// Registers the graders of this program, once for the process. Returns false if a program already
/// did.
pub(crate) fn install(graders: Vec<Own>) -> bool {
    INSTALLED.set(graders).is_ok()
}

/// Returns the program's grader of this kind.
pub(super) fn installed(kind: &str) -> Option<Own> {
    INSTALLED.get()?.iter().find(|own| own.kind() == kind).copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grade::Grader;

    /// Grades with the value of the label.
    struct LabelIsGrade;

    impl OwnGrader for LabelIsGrade {
        fn grade(&self, text: &str, label: &Value) -> f32 {
            match text {
                "nothing" => f32::NAN,
                _ => label.as_f64().map_or(f32::INFINITY, |worth| worth as f32),
            }
        }

        fn check_label(&self, label: &Value) -> Result<(), String> {
            label
                .as_f64()
                .map(drop)
                .ok_or_else(|| format!("the label is {label}, and no number"))
        }
    }

    #[test]
    fn a_registered_graders_value_is_clamped_to_0_to_1() {
        let grader = Grader::Own(Own::keep("label-is-grade", LabelIsGrade));
        for (text, label, worth) in [
            ("x", json!(0.25), 0.25),
            ("x", json!(-3), 0.0),
            ("x", json!(7), 1.0),
            ("x", json!("a"), 1.0),
            ("nothing", json!(1), 0.0),
        ] {
            assert!((grader.grade(text, &label) - worth).abs() < 1e-9, "{text} {label}");
        }
        assert_eq!(grader.same("a", "a"), None);
        assert!(grader.check_label(&json!(1)).is_ok());
        let doubt = grader.check_label(&json!("a")).unwrap_err();
        assert!(doubt.to_string().contains("no number"));
        assert_eq!(grader, Grader::Own(Own::keep("label-is-grade", LabelIsGrade)));
        assert_ne!(grader, Grader::Exact);
    }
}

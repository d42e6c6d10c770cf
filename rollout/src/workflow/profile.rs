//! Profiles: variants of a workflow that copy a reference. Each workflow has its own list.

use configs::WORKFLOWS;
use configs::{PROCESS, Problem, REMOTE, WorkflowConfig};

/// The profile that every workflow has.
const OURS: &str = "dyad";

/// Reports a profile that the workflow of this kind does not have. A type of the user's own reads
/// its profile itself.
pub(crate) fn unknown(config: &WorkflowConfig) -> Option<Problem> {
    let (kind, given) = (config.kind.as_str(), config.profile.as_str());
    let asked = kind.starts_with(PROCESS) || kind.starts_with(REMOTE);
    if !asked && !WORKFLOWS.contains(&kind) {
        return None;
    }
    let copy = copy_of(kind);
    if given == OURS || copy == Some(given) {
        return None;
    }
    let known = copy.map_or_else(|| OURS.to_owned(), |copy| format!("{OURS} or {copy}"));
    Some(Problem {
        path: "workflow.profile".into(),
        message: format!("{given:?} is no profile of {kind}: use {known}"),
    })
}

/// Returns the profile that copies this workflow's reference.
fn copy_of(kind: &str) -> Option<&'static str> {
    match kind {
        "solve-verify" | "solo" => Some("astraflow"),
        "solve-rewrite-select" => Some("miles"),
        "doctor-patient" | "deep-research" => Some("mrlx"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::config;
    use super::*;

    fn refused(kind: &str, profile: &str) -> Option<String> {
        let mut config = config(kind, &[], "");
        config.profile = profile.into();
        unknown(&config).map(|problem| format!("{}: {}", problem.path, problem.message))
    }

    #[test]
    fn every_workflow_names_a_profile_that_it_does_not_have() {
        for kind in WORKFLOWS.into_iter().chain(["process:a.py", "remote:a"]) {
            assert_eq!(refused(kind, OURS), None);
            let said = refused(kind, "nonsense").unwrap();
            assert!(
                said.starts_with("workflow.profile: \"nonsense\" is no profile of "),
                "{said}"
            );
        }
        let said = refused("self-reward", "mrlx").unwrap();
        assert!(said.ends_with("no profile of self-reward: use dyad"), "{said}");
        for (kind, copy) in [
            ("solve-verify", "astraflow"),
            ("solo", "astraflow"),
            ("deep-research", "mrlx"),
        ] {
            assert_eq!(refused(kind, copy), None);
        }
        assert_eq!(
            refused("double-check", "mine"),
            None,
            "a type of the user's own reads it itself"
        );
    }
}

//! Findings of a check about models and data sets. All their texts are here.

use std::fmt;

use crate::cli::devices::DeviceReport;
use crate::run_folder::models::{FoundModel, Reads};

/// A finding about the model, data set or device that `key` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// It is on this machine, at `place`.
    Here { key: String, place: String },
    /// It is missing or incomplete; `why` says the reason and the fix.
    NotHere { key: String, why: String },
}

impl Finding {
    /// A finding about a model.
    pub(super) fn model(found: FoundModel) -> Self {
        let (key, model) = (found.key, found.model.display());
        let unread = match found.reads {
            Reads::Whole => "",
            Reads::NoWeights => "; its weights are not read: its servers were started with their own",
        };
        match found.folder {
            Ok(folder) if folder == found.model => Self::Here {
                key,
                place: format!("{model} is a folder here{unread}"),
            },
            Ok(folder) => Self::Here {
                key,
                place: format!("{model} is {}{unread}", folder.display()),
            },
            Err(why) => Self::NotHere {
                key,
                why: why.to_string(),
            },
        }
    }

    /// A finding about a device, or `None` if this machine has it.
    pub(super) fn device(report: &DeviceReport) -> Option<Self> {
        let why = report.missing.clone()?;
        Some(Self::NotHere {
            key: format!("device {} of {}", report.device, report.agents()),
            why,
        })
    }

    /// Returns true if this machine does not have it.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::NotHere { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here { key, place } => write!(f, "{key}: {place}"),
            Self::NotHere { key, why } => write!(f, "{key}: NOT HERE: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use configs::AgentName;

    use super::*;
    use crate::run_folder::models::NotHere;

    #[test]
    fn model_finding_names_the_place_or_what_is_missing() {
        let described = |model: &str, folder: Result<&str, &str>, reads: Reads| {
            let found = FoundModel {
                agent: AgentName::new("a").unwrap(),
                key: "agents.a.model".into(),
                model: model.into(),
                folder: folder.map(PathBuf::from).map_err(|why| NotHere::Absent {
                    why: why.into(),
                    command: "hf download".into(),
                }),
                reads,
            };
            let finding = Finding::model(found);
            (finding.to_string(), finding.is_absent())
        };
        for (model, folder, line, absent) in [
            ("own", Ok("own"), "agents.a.model: own is a folder here", false),
            ("a/b", Ok("/hub/b"), "agents.a.model: a/b is /hub/b", false),
            // The path alone proves nothing: a folder may have that name.
            (
                "a: NOT HERE: b",
                Ok("/hub/b"),
                "agents.a.model: a: NOT HERE: b is /hub/b",
                false,
            ),
            ("a/b", Err("nowhere"), "agents.a.model: NOT HERE: nowhere", true),
        ] {
            assert_eq!(
                described(model, folder, Reads::Whole),
                (line.to_owned(), absent),
                "{model}"
            );
        }
        let (line, _) = described("a/b", Ok("/hub/b"), Reads::NoWeights);
        assert!(line.contains("/hub/b; its weights are not read"), "{line}");
    }
}

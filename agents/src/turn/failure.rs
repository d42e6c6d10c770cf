//! Why a generation failed: words for people, led by a code by which failures are counted.

use std::fmt::Display;

use broker::ids::WeightVersion;

/// The prompt leaves no room for an answer in the model's context.
pub const CONTEXT: &str = "context";
/// The request can never be generated.
pub const REQUEST: &str = "request";
/// The machinery failed; the same request may succeed.
pub const ENGINE: &str = "engine";
/// The machinery failed: the weights' logits are not finite. The version of the weights follows.
pub const NOT_FINITE: &str = "not_finite";
/// What was made does not fit into a message.
pub const TOO_LARGE: &str = "too_large";
/// It was being worked on each time its process died.
pub const CRASHED: &str = "crashed";

const CODES: [&str; 6] = [CONTEXT, REQUEST, ENGINE, NOT_FINITE, TOO_LARGE, CRASHED];

pub fn context(why: impl Display) -> String {
    format!("{CONTEXT}: {why}")
}

pub fn request(why: impl Display) -> String {
    format!("{REQUEST}: {why}")
}

/// Of a turn whose prompt the agent cannot be told.
pub fn prompt(agent: &str, role: &str, why: impl Display) -> String {
    request(format_args!("agent {agent} as {role}: {why}"))
}

pub fn engine(why: impl Display) -> String {
    format!("{ENGINE}: {why}")
}

pub fn not_finite(version: WeightVersion, why: impl Display) -> String {
    format!("{NOT_FINITE}: {version}: {why}")
}

/// Returns the version of the weights with logits that were not finite; `None` for other reasons.
#[must_use]
pub fn not_finite_version(reason: &str) -> Option<&str> {
    let rest = reason.strip_prefix(NOT_FINITE)?.strip_prefix(": ")?;
    rest.split(':').next()
}

/// Whether the machinery failed, and neither what was asked for nor who was asked.
#[must_use]
pub fn is_of_machinery(reason: &str) -> bool {
    [ENGINE, NOT_FINITE].contains(&code(reason))
}

pub fn too_large(size: usize, limit: usize, advice: &str) -> String {
    format!("{TOO_LARGE}: {size} bytes, and a message may have {limit}: {advice}")
}

pub fn crashed(why: impl Display) -> String {
    format!("{CRASHED}: {why}")
}

/// The code of a reason; `other` for reasons that have none.
#[must_use]
pub fn code(reason: &str) -> &'static str {
    let lead = reason.split(':').next().unwrap_or_default();
    CODES.into_iter().find(|code| *code == lead).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_by_their_code() {
        assert_eq!(code(&context("70 tokens")), "context");
        assert_eq!(code(&too_large(9, 8, "shorten it")), "too_large");
        assert_eq!(code(&prompt("a", "reader", "it has an image")), "request");
        assert_eq!(code("the workflow asks for nothing"), "other");
        assert_eq!(code("contexts: no code"), "other");
    }

    #[test]
    fn weights_whose_logits_are_not_finite_are_named() {
        let version = WeightVersion { lineage: 2, step: 31 };
        let reason = not_finite(version, "the logits are not finite: look");
        assert_eq!(code(&reason), NOT_FINITE);
        assert_eq!(not_finite_version(&reason), Some("2.31"));
        assert_eq!(not_finite_version(&engine("out of memory")), None);
        assert_eq!(not_finite_version("not_finite"), None);
        assert!(is_of_machinery(&reason) && is_of_machinery(&engine("out of memory")));
        assert!(!is_of_machinery(&context("70 tokens")) && !is_of_machinery("the workflow gave it up"));
    }
}

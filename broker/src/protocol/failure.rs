//! Failures of generations and conversations: a code for programs and a reason for people.

use std::fmt;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::ids::WeightVersion;

/// The kind of a failure. Metrics count by its [name](Self::name).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// A failure of a workflow, a program or a tool, which has no code.
    #[default]
    Other,
    /// The prompt leaves no room for an answer in the model's context.
    Context,
    /// The request can never be generated.
    Request,
    /// The machinery failed; the same request may succeed.
    Engine,
    /// The machinery failed: no token can be sampled from the logits of these weights.
    NotFinite { version: WeightVersion },
    /// A message is too small for the request or its answer.
    TooLarge,
    /// The process died each time it worked on the request.
    Crashed,
    /// The conversation was given up because too many others of its group failed.
    Abandoned,
}

impl FailureCode {
    /// Returns the word that metrics and logs use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other | Self::Abandoned => "other",
            Self::Context => "context",
            Self::Request => "request",
            Self::Engine => "engine",
            Self::NotFinite { .. } => "not_finite",
            Self::TooLarge => "too_large",
            Self::Crashed => "crashed",
        }
    }

    /// Returns true if the machinery failed, and neither the request nor the agent is at fault.
    #[must_use]
    pub const fn is_of_machinery(self) -> bool {
        matches!(self, Self::Engine | Self::NotFinite { .. })
    }
}

/// A failure. Programs decide by `code` alone; `reason` is text for people.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize, thiserror::Error,
)]
pub struct Failure {
    pub code: FailureCode,
    /// The text behind the code's name.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, reason } = self;
        match code {
            FailureCode::Other | FailureCode::Abandoned => f.write_str(reason),
            FailureCode::NotFinite { version } => write!(f, "{}: {version}: {reason}", code.name()),
            _ => write!(f, "{}: {reason}", code.name()),
        }
    }
}

impl Failure {
    #[must_use]
    pub fn new(code: FailureCode, reason: impl fmt::Display) -> Self {
        let reason = reason.to_string();
        Self { code, reason }
    }

    #[must_use]
    pub fn other(reason: impl fmt::Display) -> Self {
        Self::new(FailureCode::Other, reason)
    }

    #[must_use]
    pub fn context(reason: impl fmt::Display) -> Self {
        Self::new(FailureCode::Context, reason)
    }

    #[must_use]
    pub fn request(reason: impl fmt::Display) -> Self {
        Self::new(FailureCode::Request, reason)
    }

    #[must_use]
    pub fn engine(reason: impl fmt::Display) -> Self {
        Self::new(FailureCode::Engine, reason)
    }

    #[must_use]
    pub fn not_finite(version: WeightVersion, reason: impl fmt::Display) -> Self {
        Self::new(FailureCode::NotFinite { version }, reason)
    }

    /// `size` and `limit` are in bytes.
    #[must_use]
    pub fn too_large(size: usize, limit: usize, advice: &str) -> Self {
        let reason = format_args!("{size} bytes, and a message may have {limit}: {advice}");
        Self::new(FailureCode::TooLarge, reason)
    }

    #[must_use]
    pub fn crashed(reason: impl fmt::Display) -> Self {
        Self::new(FailureCode::Crashed, reason)
    }

    /// Returns the same failure with more text behind its reason.
    #[must_use]
    pub fn followed_by(mut self, more: impl fmt::Display) -> Self {
        self.reason = format!("{}{more}", self.reason);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    const VERSION: WeightVersion = WeightVersion { lineage: 2, step: 31 };

    fn all() -> [Failure; 8] {
        [
            Failure::other("no grade"),
            Failure::context("70 tokens"),
            Failure::request("an image"),
            Failure::engine("out of memory"),
            Failure::not_finite(VERSION, "the logits are not finite: look"),
            Failure::too_large(9, 8, "shorten it"),
            Failure::crashed("3 deaths"),
            Failure::new(FailureCode::Abandoned, "others failed"),
        ]
    }

    #[test]
    fn the_text_begins_with_the_code_if_it_has_one() {
        let texts = [
            "no grade",
            "context: 70 tokens",
            "request: an image",
            "engine: out of memory",
            "not_finite: 2.31: the logits are not finite: look",
            "too_large: 9 bytes, and a message may have 8: shorten it",
            "crashed: 3 deaths",
            "others failed",
        ];
        assert_eq!(all().map(|failure| failure.to_string()), texts);
    }

    #[test]
    fn metrics_names_are_these() {
        let names = all().map(|failure| failure.code.name());
        assert_eq!(
            names,
            [
                "other",
                "context",
                "request",
                "engine",
                "not_finite",
                "too_large",
                "crashed",
                "other"
            ]
        );
    }

    #[test]
    fn a_code_inside_a_reason_decides_nothing() {
        let failure = Failure::other("engine: out of memory");
        assert_eq!(failure.to_string(), Failure::engine("out of memory").to_string());
        assert_eq!(failure.code.name(), "other");
        assert!(!failure.code.is_of_machinery());
    }

    #[test]
    fn only_engines_and_their_weights_are_machinery() {
        let machinery = all().map(|failure| failure.code.is_of_machinery());
        assert_eq!(machinery, [false, false, false, true, true, false, false, false]);
    }

    #[test]
    fn json_has_the_code_and_the_reason() {
        let json = |failure: &Failure| serde_json::to_string(failure).unwrap();
        let [other, context, .., not_finite, _, _, _] = all();
        assert_eq!(json(&other), r#"{"code":"other","reason":"no grade"}"#);
        assert_eq!(json(&context), r#"{"code":"context","reason":"70 tokens"}"#);
        assert_eq!(
            json(&not_finite),
            r#"{"code":{"not_finite":{"version":{"lineage":2,"step":31}}},"reason":"the logits are not finite: look"}"#
        );
    }

    #[test]
    fn more_text_keeps_the_code() {
        let failure = Failure::not_finite(VERSION, "x").followed_by(" (the last of 3 tries)");
        assert_eq!(failure.to_string(), "not_finite: 2.31: x (the last of 3 tries)");
        assert_eq!(failure.code, FailureCode::NotFinite { version: VERSION });
    }

    proptest::proptest! {
        #[test]
        fn every_failure_survives_the_wire_and_json(
            at in 0usize..8, lineage in proptest::num::u32::ANY, step in proptest::num::u64::ANY, reason in ".{0,40}",
        ) {
            let code = match all()[at].code {
                FailureCode::NotFinite { .. } => FailureCode::NotFinite { version: WeightVersion { lineage, step } },
                code => code,
            };
            let failure = Failure { code, reason };
            proptest::prop_assert_eq!(&codec::decode::<Failure>(&codec::encode(&failure)).unwrap(), &failure);
            let json = codec::encode_json(&failure);
            proptest::prop_assert_eq!(codec::decode_json::<Failure>(&json).unwrap(), failure);
        }
    }
}

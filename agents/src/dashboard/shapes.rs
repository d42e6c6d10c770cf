//! Types of queries, and of answers that no reader in [`super::api`] makes alone.

use std::collections::BTreeMap;

use configs::notes::KeyNote;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::audit::RunAudit;

/// The query of `series`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SeriesQuery {
    /// Patterns `KIND:NAME`, separated by commas; one `*` in each stands for any text.
    pub(super) name: String,
    /// Only figures of this agent, or of this process.
    pub(super) agent: Option<String>,
    /// Only points of this step and later ones.
    #[schemars(range(max = 1_000_000_000_000_u64))]
    pub(super) from: Option<u64>,
    #[schemars(range(max = 1_000_000))]
    pub(super) points: Option<usize>,
    pub(super) format: Option<Format>,
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    Json,
    Csv,
}

/// The two runs of a comparison.
#[derive(Deserialize, JsonSchema)]
pub(super) struct CompareQuery {
    pub(super) a: String,
    pub(super) b: String,
}

/// The query of `evaluations`: the figure that its tasks show.
#[derive(Deserialize, JsonSchema)]
pub(super) struct EvaluationsQuery {
    pub(super) metric: Option<String>,
}

/// The query of a stream.
#[derive(Deserialize, JsonSchema)]
pub(super) struct StreamQuery {
    /// A list of `turns`, `beats`, `ended`, `metrics` and `logs:PROCESS`.
    pub(super) topics: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct AuditAnswer {
    /// The output of `dyad audit --json`.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub(super) audit: RunAudit,
    pub(super) violations: Vec<String>,
    /// True if the broker's counts are included.
    pub(super) broker: bool,
    pub(super) at_ms: u64,
}

/// The resolved configuration without secrets.
#[derive(Serialize, JsonSchema)]
pub(super) struct ConfigAnswer {
    pub(super) toml: String,
    pub(super) path: String,
    /// The keys by dotted path: their meaning, and whether their value is the default. Empty if the
    /// configuration cannot be read.
    pub(super) keys: BTreeMap<String, KeyNote>,
}

//! `[tools]`: what agents may call in their turns, and `[workflow.tool_limits]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ByteSize, HumanDuration};

/// `[tools.NAME]`: one thing that agents may call.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolConfig {
    /// `corpus:FOLDER` (documents; the name says what of it: `search` or `visit`), `process:FILE` (a program), or the URL of a
    /// server that takes a POST of JSON.
    pub kind: String,
    /// What the model reads about it. A corpus brings its own.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments: an object. A corpus brings its own.
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub parameters: toml::Table,
    /// For one answer.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// Calls answered at once; of a program, copies that run beside each other.
    #[serde(default = "default_workers")]
    pub workers: u16,
    /// Tries after the first one that failed.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// Of a program: address space of one copy.
    #[serde(default = "default_memory")]
    pub memory: ByteSize,
    /// Longest answer; what is more is cut.
    #[serde(default = "default_answer")]
    pub answer: ByteSize,
    /// What becomes of a call whose last try failed.
    #[serde(default)]
    pub failure: ToolFailure,
}

/// What becomes of a call that no try answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolFailure {
    /// The agent reads that it failed, and goes on.
    #[default]
    Tell,
    /// Its conversation is given up, as for any failure of the machinery.
    Drop,
}

/// `[workflow.tool_limits]`: how much one seat may call before it has to answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLimits {
    /// Turns with calls for one answer; the next one is the answer, whatever it says.
    pub turns: u16,
    /// Calls of one seat in one conversation; more are refused.
    pub calls: u16,
    /// Tokens of the model's context. When the answers of tools would leave less of it than `reserve`, the agent reads `hurry`
    /// in their place, and its next turn is its last. 0: it is not watched.
    pub context: u32,
    /// Tokens that the last turn is to have.
    pub reserve: u32,
    /// What is said when there are no more turns or no more context.
    pub hurry: String,
}

impl Default for ToolLimits {
    fn default() -> Self {
        Self {
            turns: 8,
            calls: 32,
            context: 0,
            reserve: 1024,
            hurry: "No more calls can be made. Answer now, from what you know.".into(),
        }
    }
}

fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(30)
}
fn default_workers() -> u16 {
    4
}
fn default_retries() -> u32 {
    1
}
fn default_memory() -> ByteSize {
    ByteSize(2 << 30)
}
fn default_answer() -> ByteSize {
    ByteSize(8 << 10)
}

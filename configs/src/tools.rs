//! `[tools]` and `[workflow.tool_limits]`: the tools of agents, and limits on their calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ByteSize, HumanDuration};

/// `[tools.NAME]`: a tool that agents may call.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolConfig {
    /// Tool: `corpus:FOLDER` (documents; the tool's name must be `search` or `visit`),
    /// `process:FILE` (a program), or a URL that accepts a POST of JSON.
    pub kind: String,
    /// Description for the model, required unless the tool is a corpus.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments, an object. Required unless the tool is a corpus.
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub parameters: toml::Table,
    /// Longest wait for one answer.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// Calls answered in parallel; for a program, the number of copies. 1 or more.
    #[serde(default = "default_workers")]
    pub workers: u16,
    /// Retries of a failed call, 0 to 20.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// Address space of one copy of a program, 16 MiB or more.
    #[serde(default = "default_memory")]
    pub memory: ByteSize,
    /// Longest answer, 64 B to 256 KiB; the rest is cut.
    #[serde(default = "default_answer")]
    pub answer: ByteSize,
    /// Treatment of a call after its last failed try.
    #[serde(default)]
    pub failure: ToolFailure,
}

/// The treatment of a call after its last failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolFailure {
    /// Reports the failure to the agent, which continues.
    #[default]
    Tell,
    /// Gives up the conversation, like any other infrastructure failure.
    Drop,
}

/// `[workflow.tool_limits]`: limits on the calls of one seat.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLimits {
    /// Turns with calls for one answer, 0 to 1000; the next turn is the answer in any case.
    pub turns: u16,
    /// Calls of one seat in one conversation, 1 to 256; further calls are rejected.
    pub calls: u16,
    /// Tokens of the model's context. If tool answers leave fewer than `reserve`, the agent reads
    /// `hurry` instead and answers. 0 turns this off.
    pub context: u32,
    /// Tokens kept free for the last turn.
    pub reserve: u32,
    /// Text that the agent reads when no turns or no context remain.
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

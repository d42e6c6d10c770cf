//! `[agents.NAME.http]`: the HTTP front of an agent, and its limits.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::ByteSize;

/// `http`: the HTTP front of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// IP address and port, for example `"127.0.0.1:8001"`; port 0 takes a free one.
    pub listen: String,
    /// Largest body of a request, 1 KiB to 64 MiB.
    #[serde(default = "default_body")]
    pub body: ByteSize,
    /// Most tokens of a prompt plus its answer. The engine's cache is as long as its longest row,
    /// for all rows.
    #[serde(default = "default_context")]
    pub context: usize,
    /// Control tokens that a client spells in a text prompt become these tokens, as for prompts
    /// rendered by the client. By default they stay text.
    #[serde(default)]
    pub control_tokens: bool,
    /// Requests answered in parallel, 1 or more; further clients are asked to retry.
    #[serde(default = "default_at_once")]
    pub requests: usize,
    /// Generations running in parallel, 1 to below `engine.slots`. Each choice of each prompt is
    /// one.
    #[serde(default = "default_at_once")]
    pub generations: usize,
    /// Requests started per minute, 1 or more; default: no limit.
    #[serde(default)]
    pub requests_per_minute: Option<u64>,
    /// Tokens of prompts and answers per minute, above one answer's limit; default: no limit.
    #[serde(default)]
    pub tokens_per_minute: Option<u64>,
}

fn default_body() -> ByteSize {
    ByteSize(1 << 20)
}
fn default_context() -> usize {
    8192
}
fn default_at_once() -> usize {
    32
}

impl HttpConfig {
    /// Returns the address of `listen`, or `None` if it is not an address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}

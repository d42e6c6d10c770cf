//! `[agents.NAME.http]`: where an agent answers anybody over HTTP, and how much at once.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::ByteSize;

/// The HTTP front of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// IP address and port, such as `"127.0.0.1:8001"`; port 0 takes any that is free.
    pub listen: String,
    /// Largest body of a request.
    #[serde(default = "default_body")]
    pub body: ByteSize,
    /// Tokens of a prompt and its answer together: the engine's cache is as long as its longest row, for all rows.
    #[serde(default = "default_context")]
    pub context: usize,
    /// Requests answered at once; more are told to come again.
    #[serde(default = "default_at_once")]
    pub requests: usize,
    /// Generations under way at once: each choice of each prompt is one.
    #[serde(default = "default_at_once")]
    pub generations: usize,
    /// Requests begun in a minute; as many as come if not given.
    #[serde(default)]
    pub requests_per_minute: Option<u64>,
    /// Tokens of prompts and answers in a minute; as many as come if not given.
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
    /// Where it listens, if that is an address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}

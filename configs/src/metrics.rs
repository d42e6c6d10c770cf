//! `[run.metrics]`: metrics of a run's processes for Prometheus.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `metrics`: the address at which each process of the run shows its metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsConfig {
    /// IP address and port; port 0: a free one, named in `prometheus.json`.
    pub listen: String,
}

impl MetricsConfig {
    /// Returns the address of `listen`, or `None` if it is not an address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}

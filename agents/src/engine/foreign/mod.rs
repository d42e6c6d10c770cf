//! Engines that are foreign servers: SGLang and vLLM, driven over HTTP.
//!
//! - [`server`]: the interface of a server; [`sglang`] and [`vllm`] implement it
//! - [`fleet`]: distributes jobs over an agent's servers
//! - [`driver`]: makes one call
//! - [`keeper`]: keeps one server serving the newest weights
//! - [`progress`]: assembles an answer from its pieces
//! - [`visits`]: serves an agent's HTTP front
//! - [`openai`]: servers that take messages and return no tokens; [`dialect`]: fields that they
//!   reject
//! - [`probe`]: determines the meaning of log-probs
//! - [`http`]: the HTTP client; [`trouble`]: decides about retries
//!
//! A call's tokens are of one version, because whole weights change only between calls. Calls in
//! progress are aborted (`swap = "in_place"` and `"retract"`) or finish (`"drain"`). An aborted
//! call keeps its tokens, and the next one continues behind them, recomputed with the new weights.
//! So a token's version is known, never guessed. Each version's adapter has a unique name, which
//! the call contains; no call needs to end for it.

pub(crate) mod dialect;
pub mod driver;
pub mod fleet;
mod http;
mod keeper;
pub mod openai;
mod probe;
mod progress;
mod server;
mod sglang;
mod trouble;
mod visits;
mod vllm;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use broker::ids::RunId;
use configs::{AgentName, EngineKind};
use trainer::weights::disk::Written;
use uuid::Uuid;

use http::Http;
use server::Server;

/// Returns the server at `url`.
///
/// # Errors
/// The same as for [`Http::from_environment`].
pub fn server(kind: EngineKind, url: &str) -> anyhow::Result<Arc<dyn Server>> {
    let http = Http::from_environment(url)?;
    Ok(match kind {
        EngineKind::Vllm => Arc::new(vllm::Vllm::new(http)),
        _ => Arc::new(sglang::Sglang::new(http)),
    })
}

/// Characters of the weights' digest in a label.
const SHORT: usize = 12;

/// Returns the name of weights in a server. It is unique to the run, agent and version, and to
/// their content: a repaired ledger may give a version again.
#[must_use]
pub fn label(run: &RunId, agent: &AgentName, written: &Written) -> String {
    let digest = written.digest.to_hex();
    let short: String = digest.chars().take(SHORT).collect();
    format!("dyad-{run}-{agent}-{}-{short}", written.version)
}

/// Waiting times; shorter in tests.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The interval of health checks, and the longest wait for an answer to one.
    pub look: Duration,
    pub patience: Duration,
    /// The first pause before a retry; the longest is 50 times as long.
    pub pause: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            look: Duration::from_secs(5),
            patience: Duration::from_secs(30),
            pause: Duration::from_millis(100),
        }
    }
}

impl Pace {
    /// Returns the pause after `tries` successive failures. It doubles each time, and is random
    /// between half of that and all of it, so that clients do not return at once.
    fn pause_after(&self, tries: u32) -> Duration {
        let most = self.pause.saturating_mul(2u32.saturating_pow(tries).min(50));
        let noise = f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        most.mul_f64(0.5 + 0.5 * noise)
    }
}

//! Engines that are other people's servers: SGLang and vLLM, driven over HTTP.
//!
//! [`server`] says what a server is asked for, [`sglang`] and [`vllm`] how each is asked. What both share: [`fleet`] shares jobs out
//! among an agent's servers, [`driver`] makes one call, [`keeper`] keeps one server serving the newest weights, [`progress`] puts an
//! answer together from its pieces, [`visits`] serves an agent's HTTP front, [`openai`] asks servers that take messages and show no tokens, [`probe`] finds out what log-probs mean, [`http`] speaks, [`trouble`] says what may be tried again.
//!
//! A call's tokens are of one version, because whole weights change between calls only: those under way are ended (`swap = "in_place"`
//! and `"retract"`) or finish (`"drain"`). A call that was ended keeps its tokens, and the next one begins behind them, computed anew
//! with the new weights. So a token's version is known, and never guessed. An adapter of each version has a name of its own, which a
//! call says; nothing needs to end for it.

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

/// The server at `url`.
///
/// # Errors
/// As [`Http::from_environment`].
pub fn server(kind: EngineKind, url: &str) -> anyhow::Result<Arc<dyn Server>> {
    let http = Http::from_environment(url)?;
    Ok(match kind {
        EngineKind::Vllm => Arc::new(vllm::Vllm::new(http)),
        _ => Arc::new(sglang::Sglang::new(http)),
    })
}

/// Characters of the weights' digest in a label.
const SHORT: usize = 12;

/// By which a server names weights: of no other run, agent or version, and of no others that had the same version before the ledger was
/// repaired.
#[must_use]
pub fn label(run: &RunId, agent: &AgentName, written: &Written) -> String {
    let digest = written.digest.to_hex();
    let short: String = digest.chars().take(SHORT).collect();
    format!("dyad-{run}-{agent}-{}-{short}", written.version)
}

/// How long is waited for what; tests wait less.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two looks at a server's health, and the longest wait for its answer to one.
    pub look: Duration,
    pub patience: Duration,
    /// The first pause before something is tried again; the longest is 50 times as long.
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
    /// The pause before the next try, after so many in succession: twice as long each time, and at random from half of that to all of
    /// it, so that many do not come back at once.
    fn pause_after(&self, tries: u32) -> Duration {
        let most = self.pause.saturating_mul(2u32.saturating_pow(tries).min(50));
        let noise = f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        most.mul_f64(0.5 + 0.5 * noise)
    }
}

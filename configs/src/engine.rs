//! `[agents.NAME.engine]`: the engine of an agent, in its process or in others.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{DeviceName, HumanDuration};

/// The treatment of running generations when new weights arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Swap {
    /// Continues with the old cache. Each token records the version that sampled it.
    #[default]
    InPlace,
    /// Computes the cache again with the new weights.
    Retract,
    /// Finishes running generations first.
    Drain,
}

/// The engine that generates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    /// libtorch in the agent's process.
    #[default]
    Embedded,
    /// Answers made from the request's seed, without a model.
    Scripted,
    /// `dyad engine`: libtorch in separate processes.
    Dyad,
    /// SGLang servers.
    Sglang,
    /// vLLM servers.
    Vllm,
    /// Servers that take messages and return text, like OpenAI's: a partner that never trains and
    /// may see images.
    Openai,
}

impl EngineKind {
    /// Returns true if the engine is a server of another project, driven over HTTP.
    #[must_use]
    pub fn is_foreign(self) -> bool {
        matches!(self, Self::Sglang | Self::Vllm | Self::Openai)
    }

    /// Returns the name that the configuration uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Scripted => "scripted",
            Self::Dyad => "dyad",
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
            Self::Openai => "openai",
        }
    }

    /// Returns true if the engine accepts messages with images.
    #[must_use]
    pub fn sees(self) -> bool {
        self == Self::Openai
    }
}

/// `engine`: the engine of an agent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Kind of engine.
    pub kind: EngineKind,
    /// URLs of engines that run as separate processes, one URL per engine.
    pub urls: Vec<String>,
    /// Devices of these engines under `dyad up`, one per URL; default: the agent's `device`.
    pub devices: Vec<DeviceName>,
    /// IP address and port where separate engines fetch the weights; port 0 takes a free one.
    pub weights_listen: String,
    /// URL at which engines reach `weights_listen`, if it differs, as for `"0.0.0.0:PORT"`.
    pub weights_url: Option<String>,
    /// Treatment of running generations when new weights arrive.
    pub swap: Swap,
    /// Engines in the agent's process, each with a copy of the weights. Conversations are shared
    /// among them.
    pub replicas: usize,
    /// Generations that one engine decodes together.
    pub slots: usize,
    /// Most prompt tokens computed in one step, so that long prompts do not delay decoding.
    pub prefill_tokens: usize,
    /// MiB of keys and values kept for a conversation's next turn; 0 keeps none. Unused in
    /// synchronous rounds.
    pub prefix_cache_mib: usize,
    /// MiB of keys and values for generations, allocated at the engine's start; requests beyond it
    /// wait. 0 sets no bound.
    pub cache_mib: usize,
    /// Gives a request the same bits (tokens and log-probs) in any batch. Slower; CPU only.
    pub deterministic: bool,
    /// Keeps a second, reordered copy of the matrices on a CPU: several times faster.
    pub prepack: bool,
    /// Time without a step after which a busy or stopped process is ended, 1s or more. 0: off;
    /// ranks wait 10 minutes.
    pub stuck_after: HumanDuration,
    /// Folder for the weights of SGLang and vLLM, which must see it under the same path; default:
    /// `weights` in the run's folder.
    pub weights_folder: Option<PathBuf>,
}

impl EngineConfig {
    /// Returns the engines of kind `dyad` that run on this machine: the index of each in `urls`,
    /// its address, and its device if it is not the agent's.
    pub fn here(&self) -> impl Iterator<Item = (usize, SocketAddr, Option<DeviceName>)> {
        let urls = self.urls.iter().filter(|_| self.kind == EngineKind::Dyad).enumerate();
        urls.filter_map(|(index, url)| Some((index, loopback(url)?, self.devices.get(index).copied())))
    }
}

/// Returns the address of a URL if it names this machine only.
fn loopback(url: &str) -> Option<SocketAddr> {
    let authority = url.strip_prefix("http://")?.trim_end_matches('/');
    let address: SocketAddr = authority.replace("localhost", "127.0.0.1").parse().ok()?;
    address.ip().is_loopback().then_some(address)
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            kind: EngineKind::Embedded,
            urls: Vec::new(),
            devices: Vec::new(),
            weights_listen: "127.0.0.1:0".into(),
            weights_url: None,
            swap: Swap::InPlace,
            replicas: 1,
            slots: 256,
            prefill_tokens: 4096,
            prefix_cache_mib: 1024,
            cache_mib: 0,
            deterministic: false,
            prepack: true,
            stuck_after: HumanDuration::from_secs(600),
            weights_folder: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_of_this_machine_are_those_with_a_loopback_address() {
        for (url, address) in [
            ("http://127.0.0.1:8101", Some("127.0.0.1:8101")),
            ("http://localhost:8101/", Some("127.0.0.1:8101")),
            ("http://[::1]:8101", Some("[::1]:8101")),
            ("http://10.0.0.4:8101", None),
            ("http://engine-a:8101", None),
            ("https://127.0.0.1:8101", None),
        ] {
            assert_eq!(loopback(url), address.map(|address| address.parse().unwrap()), "{url}");
        }
    }
}

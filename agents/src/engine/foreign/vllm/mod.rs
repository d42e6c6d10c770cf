//! vLLM, over its OpenAI routes and those of its development mode.
//!
//! The interface is that of releases 0.32, which `make test-vllm` runs, and 0.33, from its
//! documentation and sources. It uses `/health`, `/v1/models`, `/v1/completions` with ids,
//! `/v1/load_lora_adapter` and `/v1/unload_lora_adapter` (VLLM_ALLOW_RUNTIME_LORA_UPDATING=1).
//! Whole weights (VLLM_SERVER_DEV_MODE=1) also use `/abort_requests`, `/collective_rpc` with
//! `reload_weights`, `/reset_prefix_cache`, `/update_weight_version` and `/weight_info`. [`wire`]
//! has the bodies. Release 0.32 reports no versions with an answer: its label is asked for
//! afterwards.
//!
//! `/pause` is not used, for the same reason as SGLang's.

mod wire;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::http::Http;
use super::server::{About, Reply, Server, ServerCall};
use super::trouble::Trouble;

/// One vLLM server.
pub(super) struct Vllm {
    http: Http,
    /// Its name for the model that it was started with.
    model: Mutex<String>,
}

impl Vllm {
    pub(super) fn new(http: Http) -> Self {
        Self {
            http,
            model: Mutex::default(),
        }
    }

    async fn post_in_dev_mode(&self, path: &str, body: &Value) -> Result<String, Trouble> {
        self.http.post(path, body).await.map_err(needs_dev_mode)
    }

    /// Empties the prefix cache: keys and values of the old weights must not be used again. The
    /// HTTP status does not show if they are gone.
    async fn forget_prefixes(&self) -> Result<(), Trouble> {
        let path = "/reset_prefix_cache?reset_running_requests=true&reset_external=true";
        wire::emptied(&self.post_in_dev_mode(path, &json!({})).await?)
    }

    async fn say_label(&self, label: &str) -> Result<(), Trouble> {
        let body = json!({ "new_version": label });
        self.post_in_dev_mode("/update_weight_version", &body).await.map(drop)
    }
}

/// Adds a hint: these routes exist only in development mode.
fn needs_dev_mode(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Missing(said) => Trouble::Missing(format!(
            "{said}; whole weights need release 0.32 or later, started with VLLM_SERVER_DEV_MODE=1"
        )),
        other => other,
    }
}

/// Adds a hint: the server's own error says that a worker failed, and no more.
fn may_be_another_model(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Failing(said) => Trouble::Failing(format!(
            "{said}; was it started with this agent's model? Its log has the reason"
        )),
        other => other,
    }
}

fn needs_adapters(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Missing(said) => Trouble::Missing(format!(
            "{said}; adapters need --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
        )),
        other => other,
    }
}

#[async_trait]
impl Server for Vllm {
    fn name(&self) -> &'static str {
        "vLLM"
    }

    fn url(&self) -> &str {
        self.http.url()
    }

    fn fix_for_raw(&self) -> &'static str {
        "start it with --logprobs-mode processed_logprobs"
    }

    async fn is_well(&self) -> Result<(), Trouble> {
        self.http.get("/health").await.map(drop)
    }

    async fn about(&self) -> Result<About, Trouble> {
        let (name, about) = wire::about(&self.http.get_json("/v1/models").await?)?;
        *self.model.lock().unwrap_or_else(PoisonError::into_inner) = name;
        Ok(about)
    }

    async fn generate(&self, ask: &ServerCall) -> Result<Reply, Trouble> {
        let model = ask.adapter.clone();
        let model = model.unwrap_or_else(|| self.model.lock().unwrap_or_else(PoisonError::into_inner).clone());
        match self
            .http
            .post_for("/v1/completions", &wire::request(ask, &model), ask.longest_answer())
            .await
        {
            Ok(answer) => wire::reply(&answer, ask.top),
            Err(Trouble::Missing(said)) if ask.adapter.is_some() => Err(Trouble::Stranger(said)),
            Err(trouble) => Err(trouble),
        }
    }

    async fn label(&self) -> Result<String, Trouble> {
        let answer = self.http.get_json("/weight_info").await.map_err(needs_dev_mode)?;
        wire::label(&answer)
    }

    async fn abort_all(&self) -> Result<(), Trouble> {
        self.post_in_dev_mode("/abort_requests", &json!({})).await.map(drop)
    }

    async fn load(&self, folder: &Path, label: &str) -> Result<(), Trouble> {
        // Until they are complete they have this label: an interrupted load leaves no label that is
        // accepted.
        self.say_label("loading").await?;
        let body = json!({ "method": "reload_weights", "kwargs": { "weights_path": folder } });
        self.post_in_dev_mode("/collective_rpc", &body)
            .await
            .map_err(may_be_another_model)?;
        self.forget_prefixes().await?;
        self.say_label(label).await
    }

    async fn load_adapter(&self, name: &str, folder: &Path) -> Result<(), Trouble> {
        let body = json!({ "lora_name": name, "lora_path": folder });
        match self.http.post("/v1/load_lora_adapter", &body).await {
            Err(Trouble::Refused(said)) if said.contains("already") => Ok(()),
            Err(trouble) => Err(needs_adapters(trouble)),
            Ok(_) => Ok(()),
        }
    }

    async fn unload_adapter(&self, name: &str) -> Result<(), Trouble> {
        let body = json!({ "lora_name": name });
        self.http.post("/v1/unload_lora_adapter", &body).await.map(drop)
    }
}

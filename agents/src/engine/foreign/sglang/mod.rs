//! SGLang, over its native routes.
//!
//! The interface is that of release 0.5.23. `make test-sglang` runs it with whole weights; the
//! routes for adapters are from its documentation and sources. It uses `/health`, `/model_info`,
//! `/server_info`, `/generate`, `/abort_request`, `/update_weights_from_disk`,
//! `/load_lora_adapter` and `/unload_lora_adapter`. [`wire`] has the bodies.
//!
//! `/pause_generation` is not used: without calls in progress there is nothing to pause, and an
//! agent that died between a pause and `/continue_generation` would leave a server that never
//! answers.

mod wire;

use std::path::Path;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::http::Http;
use super::server::{About, Reply, Server, ServerCall};
use super::trouble::Trouble;

/// One SGLang server.
pub(super) struct Sglang {
    http: Http,
}

impl Sglang {
    pub(super) fn new(http: Http) -> Self {
        Self { http }
    }

    async fn model_info(&self) -> Result<Value, Trouble> {
        match self.http.get_json("/model_info").await {
            // The route's earlier name.
            Err(Trouble::Missing(_)) => self.http.get_json("/get_model_info").await,
            answer => answer,
        }
    }

    /// Returns the server's description, read only for its context; other releases may report it
    /// elsewhere, or not at all.
    async fn server_info(&self) -> Value {
        match self.http.get_json("/server_info").await {
            Ok(answer) => answer,
            Err(_) => self.http.get_json("/get_server_info").await.unwrap_or_default(),
        }
    }
}

#[async_trait]
impl Server for Sglang {
    fn name(&self) -> &'static str {
        "SGLang"
    }

    fn url(&self) -> &str {
        self.http.url()
    }

    fn fix_for_raw(&self) -> &'static str {
        "start it without SGLANG_RETURN_ORIGINAL_LOGPROB"
    }

    fn spare(&self) -> usize {
        1
    }

    async fn is_well(&self) -> Result<(), Trouble> {
        self.http.get("/health").await.map(drop)
    }

    async fn about(&self) -> Result<About, Trouble> {
        wire::about(&self.model_info().await?, &self.server_info().await)
    }

    async fn generate(&self, ask: &ServerCall) -> Result<Reply, Trouble> {
        let sent = self
            .http
            .post_for("/generate", &wire::request(ask), ask.longest_answer())
            .await;
        match sent {
            Ok(answer) => wire::reply(&answer, ask.top),
            // A missing adapter is reported only as a rejection that names it.
            Err(Trouble::Refused(said)) if ask.adapter.as_ref().is_some_and(|name| said.contains(name)) => {
                Err(Trouble::Stranger(said))
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn label(&self) -> Result<String, Trouble> {
        wire::label(&self.model_info().await?)
    }

    async fn abort_all(&self) -> Result<(), Trouble> {
        let body = json!({ "rid": "", "abort_all": true });
        self.http.post("/abort_request", &body).await.map(drop)
    }

    async fn load(&self, folder: &Path, label: &str) -> Result<(), Trouble> {
        let body = json!({
            "model_path": folder,
            "weight_version": label,
            // No call of ours is in progress. Calls of others would delay the weights.
            "abort_all_requests": true,
            "flush_cache": true,
        });
        let answer = self.http.post_json("/update_weights_from_disk", &body).await;
        wire::success(&answer.map_err(while_asked)?)
    }

    async fn load_adapter(&self, name: &str, folder: &Path) -> Result<(), Trouble> {
        let body = json!({ "lora_name": name, "lora_path": folder });
        let answer = self.http.post_json("/load_lora_adapter", &body).await;
        match answer.and_then(|answer| wire::success(&answer)) {
            Err(Trouble::Refused(said)) if said.contains("already loaded") => Ok(()),
            loaded => loaded,
        }
    }

    async fn unload_adapter(&self, name: &str) -> Result<(), Trouble> {
        let answer = self
            .http
            .post_json("/unload_lora_adapter", &json!({ "lora_name": name }))
            .await?;
        wire::success(&answer)
    }
}

/// Makes a load repeatable that a call of another program disturbed, such as a health check that
/// generates: the weights are loaded, but the prefix cache still holds those of the old ones.
fn while_asked(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Refused(said) if said.contains("not flushed") => Trouble::Failing(said),
        other => other,
    }
}

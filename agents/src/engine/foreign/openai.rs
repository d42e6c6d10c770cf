//! Servers with the interface of OpenAI: they take messages, return text, and show no tokens or
//! weights.
//!
//! A job's ids are the chat itself ([`ChatLog`]), so such a server may receive images. Its answers
//! are never trained on: their log-probs are unknown, and stored as 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::ensure;
use broker::ids::{RequestId, WeightVersion};
use broker::protocol::failure::Failure;
use broker::protocol::turn::{Finish, LogProbs, Message, VersionSpan};
use configs::EngineConfig;
use rollout::text::ChatLog;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Semaphore, watch};

use super::Pace;
use super::dialect::text_of;
use super::http::Http;
use super::trouble::{Trouble, TroubleVerdict};
use crate::base::log_scope;
use crate::engine::process::link::Secret;
use crate::engine::{
    EngineClient, EngineFailure, EnginePresence, Finished, GenerationJob, GenerationOutput, Visit, WeightRefusal,
};

/// The environment variable with the servers' key: outside servers receive no other.
pub const KEY: &str = "DYAD_OPENAI_KEY";
/// Attempts of a job at servers that answer with a failure.
const TRIES: u32 = 5;
/// Size limit of an answer, in bytes.
const LONGEST: usize = 16 << 20;

/// The servers of one agent.
pub struct Openai {
    pool: Arc<ServerPool>,
    version: watch::Sender<WeightVersion>,
    /// Never used: it is given no weights.
    refused: watch::Sender<Option<WeightRefusal>>,
}

struct ServerPool {
    servers: Vec<OutsideServer>,
    model: String,
    version: WeightVersion,
    /// Concurrent calls, over all servers.
    slots: Semaphore,
    /// The server that the next call goes to.
    next: AtomicUsize,
    /// Time limit of an answer; zero means no limit.
    patience: Duration,
    pace: Pace,
}

struct OutsideServer {
    http: Http,
    /// False after a call that did not reach it.
    answers: Arc<AtomicBool>,
}

impl Openai {
    /// Starts to use the servers at `engine.urls` for `model`. They are first contacted by a call.
    ///
    /// # Errors
    /// A URL that is not allowed, or a key that cannot be used.
    pub fn start(engine: &EngineConfig, model: &str, version: WeightVersion) -> anyhow::Result<Arc<Self>> {
        Self::with_pace(engine, model, version, Pace::default())
    }

    fn with_pace(engine: &EngineConfig, model: &str, version: WeightVersion, pace: Pace) -> anyhow::Result<Arc<Self>> {
        ensure!(!engine.urls.is_empty(), "engine.urls is empty: add the URL of a server");
        let key = Secret::of_variable(KEY)?;
        let server = |url: &String| -> anyhow::Result<OutsideServer> {
            Ok(OutsideServer {
                http: Http::outside(url, key.clone())?,
                answers: Arc::new(AtomicBool::new(true)),
            })
        };
        let servers = engine.urls.iter().map(server);
        let pool = ServerPool {
            slots: Semaphore::new(engine.slots.saturating_mul(engine.urls.len())),
            servers: servers.collect::<anyhow::Result<_>>()?,
            model: model.to_owned(),
            version,
            next: AtomicUsize::new(0),
            patience: engine.stuck_after.0,
            pace,
        };
        Ok(Arc::new(Self {
            pool: Arc::new(pool),
            version: watch::Sender::new(version),
            refused: watch::Sender::new(None),
        }))
    }
}

impl ServerPool {
    async fn make(&self, job: &GenerationJob) -> Result<GenerationOutput, EngineFailure> {
        let never = |cause| EngineFailure { cause, retry: false };
        let chat = ChatLog::messages(&job.prompt_ids).map_err(|error| never(Failure::request(error)))?;
        let body = body(&self.model, job, &chat);
        // It is never closed.
        let _slot = self.slots.acquire().await;
        let (mut tries, mut away) = (0, 0);
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed) % self.servers.len().max(1);
            let Some(server) = self.servers.get(at) else {
                return Err(never(Failure::engine("there is no server to ask")));
            };
            let asked = self.ask(&server.http, &body, &job.sampling.stop).await;
            let answers = !matches!(asked, Err(Trouble::Gone(_)));
            server.answers.store(answers, Ordering::Relaxed);
            let server = &server.http;
            let trouble = match asked {
                Ok((message, finish)) => return Ok(self.made(message, finish)),
                Err(trouble) => trouble,
            };
            if let TroubleVerdict::Never(failure) = trouble.verdict_of(server.url()) {
                return Err(failure);
            }
            // Work is not at fault when its server is away: it waits.
            if answers {
                tries += 1;
            } else {
                away += 1;
            }
            if tries >= TRIES {
                return Err(EngineFailure {
                    cause: Failure::engine(format!("{}: {trouble}; {TRIES} times in succession", server.url())),
                    retry: true,
                });
            }
            if tries + away == 1 || (tries + away).is_power_of_two() {
                tracing::warn!(
                    %trouble,
                    request = %job.request,
                    conversation_id = %format_args!("{}/{}", job.group, job.member),
                    "{}: retrying a call",
                    server.url()
                );
            }
            tokio::time::sleep(self.pace.pause_after(tries.max(away))).await;
        }
    }

    async fn ask(&self, server: &Http, body: &Value, stop: &[String]) -> Result<(Message, Finish), Trouble> {
        // The URL may be configured with or without its version.
        let path = if server.url().ends_with("/v1") {
            "/chat/completions"
        } else {
            "/v1/chat/completions"
        };
        let reply = server.post_spoken(path, &self.model, body, LONGEST);
        let reply = if self.patience.is_zero() {
            reply.await
        } else {
            let late = |_| Trouble::Failing(format!("no answer within {:?} (engine.stuck_after)", self.patience));
            tokio::time::timeout(self.patience, reply).await.map_err(late)?
        };
        answer(&reply?, stop)
    }

    fn made(&self, message: Message, finish: Finish) -> GenerationOutput {
        let output_ids = ChatLog::ids(&[message]);
        GenerationOutput {
            logprobs: vec![0.0; output_ids.len()],
            logprobs_of: LogProbs::Absent,
            top: Vec::new(),
            spans: vec![VersionSpan {
                version: self.version,
                start: 0,
                end: u32::try_from(output_ids.len()).unwrap_or(u32::MAX),
            }],
            oldest_kv: self.version,
            reused: 0,
            finish,
            times: None,
            output_ids,
        }
    }
}

fn body(model: &str, job: &GenerationJob, chat: &[Message]) -> Value {
    let sampling = &job.sampling;
    let mut body = json!({
        "model": model,
        "messages": chat,
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_new_tokens,
        // Some servers take signed 32-bit numbers only.
        "seed": job.seed >> 33,
    });
    if sampling.top_p < 1.0 {
        body["top_p"] = json!(sampling.top_p);
    }
    if !sampling.stop.is_empty() {
        body["stop"] = json!(sampling.stop);
    }
    body
}

/// Returns a server's text as the assistant's message. It ends before the first stop text: some
/// models take none, and answer past it.
fn answer(reply: &Value, stop: &[String]) -> Result<(Message, Finish), Trouble> {
    let text = text_of(reply).map_err(Trouble::Malformed)?;
    // Servers that give no reason have not cut the text.
    let finish = match reply.pointer("/choices/0/finish_reason").and_then(Value::as_str) {
        Some("length") => Finish::Length,
        _ => Finish::Stop,
    };
    let cut = stop.iter().filter_map(|stop| text.find(stop.as_str())).min();
    let finish = if cut.is_some() { Finish::Stop } else { finish };
    Ok((Message::new("assistant", &text[..cut.unwrap_or(text.len())]), finish))
}

impl EngineClient for Openai {
    fn submit(&self, jobs: Vec<GenerationJob>, _wave: bool, done: UnboundedSender<Vec<Finished>>) {
        for job in jobs {
            let (pool, done) = (self.pool.clone(), done.clone());
            log_scope::spawn(async move {
                let result = tokio::select! {
                    result = pool.make(&job) => result,
                    // The asker is gone.
                    () = done.closed() => return,
                };
                let _ = done.send(vec![Finished { job, result }]);
            });
        }
    }

    /// Fails every visit; `dyad check` rejects a front of such an agent.
    fn visit(&self, visits: Vec<Visit>) {
        for visit in visits {
            visit.fail(EngineFailure {
                cause: Failure::request("this agent's model is a server's: ask there"),
                retry: false,
            });
        }
    }

    fn leave(&self, _: RequestId) {}

    fn presences(&self) -> Vec<EnginePresence> {
        let presence = |server: &OutsideServer| {
            let answers = server.answers.clone();
            EnginePresence::new(server.http.url(), move || answers.load(Ordering::Relaxed))
        };
        self.pool.servers.iter().map(presence).collect()
    }

    fn versions(&self) -> watch::Receiver<WeightVersion> {
        self.version.subscribe()
    }

    fn refusals(&self) -> watch::Receiver<Option<WeightRefusal>> {
        self.refused.subscribe()
    }
}

#[cfg(test)]
mod tests;

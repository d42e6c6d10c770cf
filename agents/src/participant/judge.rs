//! Asks a model behind an OpenAI-compatible server what an answer is worth.
//!
//! What may be better another time (no connection, 429, 5xx, words without a number) is tried again, after pauses that double
//! and are never the same for all; what will not be is told at once. A failure is no grade.

use std::sync::Arc;
use std::time::Duration;

use configs::{GraderConfig, HumanDuration, Problem, RunConfig};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use rollout::judge::Judge;
use rollout::workflow::program::Question;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};

use super::worker::Job;
use crate::engine::process::link;

/// The longest answer of a server, in bytes, and what is told of one that is an error.
const LONGEST: usize = 1 << 20;
const COMPLAINT: usize = 300;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is wrong with the servers of judges: by grader.
pub fn check_judges(config: &RunConfig) -> Vec<Problem> {
    let problem = |(name, grader): (&String, &GraderConfig)| {
        let judge = grader.judge.as_ref().filter(|judge| judge.agent.is_none())?;
        let message = link::judged(&judge.url).err()?.message;
        let path = format!("graders.{name}.judge.url");
        Some(Problem { path, message })
    };
    config.graders.iter().filter_map(problem).collect()
}

/// One that calls, a question at a time.
pub(super) struct Caller {
    judge: Arc<Judge>,
    limit: HumanDuration,
    /// Or why nobody can be called.
    server: Result<Server, String>,
}

struct Server {
    client: Client,
    url: String,
    /// The header with the key.
    key: Option<HeaderValue>,
}

/// Why a call gave no reward.
struct Trouble {
    reason: String,
    /// The same call would fail in the same way.
    is_final: bool,
    /// How long the server wants to be left alone.
    pause: Option<Duration>,
}

impl Trouble {
    fn passing(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            is_final: false,
            pause: None,
        }
    }
}

impl Server {
    fn new(judge: &Judge) -> anyhow::Result<Self> {
        let key = std::env::var(&judge.config.key)
            .ok()
            .filter(|key| !key.trim().is_empty());
        let bearer = |key: String| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim()))
                .map_err(|_| anyhow::anyhow!("{} has characters that no header carries", judge.config.key))?;
            value.set_sensitive(true);
            anyhow::Ok(value)
        };
        Ok(Self {
            client: link::client(None)?,
            url: format!("{}/chat/completions", link::judged(&judge.config.url)?),
            key: key.map(bearer).transpose()?,
        })
    }

    /// What the model says.
    async fn call(&self, body: &Value) -> Result<String, Trouble> {
        let mut request = self.client.post(&self.url).header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        let sent = request.body(body.to_string()).send().await;
        let response =
            sent.map_err(|error| Trouble::passing(format!("{:#}", anyhow::Error::new(error.without_url()))))?;
        let (status, pause) = (response.status(), wanted_pause(&response));
        let text = read(response).await?;
        if !status.is_success() {
            let busy = status.is_server_error()
                || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
            return Err(Trouble {
                reason: format!("answered {status}: {}", self.told(&text)),
                is_final: !busy,
                pause,
            });
        }
        let answer: Value = serde_json::from_str(&text)
            .map_err(|error| Trouble::passing(format!("its answer is not JSON: {error}")))?;
        let content = answer.pointer("/choices/0/message/content").and_then(Value::as_str);
        content.map(str::to_owned).ok_or_else(|| {
            Trouble::passing(format!(
                "its answer has no choices[0].message.content: {}",
                self.told(&text)
            ))
        })
    }

    /// The head of what it said, without the key: some servers repeat it.
    fn told(&self, text: &str) -> String {
        let secret = self.key.as_ref().and_then(|key| key.to_str().ok());
        let secret = secret.and_then(|bearer| bearer.strip_prefix("Bearer "));
        let clean = secret.map_or_else(|| text.to_owned(), |secret| text.replace(secret, "***"));
        clean.chars().take(COMPLAINT).collect()
    }
}

/// What a header Retry-After asks for, in seconds.
fn wanted_pause(response: &Response) -> Option<Duration> {
    let seconds = response
        .headers()
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_PAUSE))
}

async fn read(mut response: Response) -> Result<String, Trouble> {
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(piece)) => bytes.extend_from_slice(&piece),
            Ok(None) => break,
            Err(error) => {
                return Err(Trouble::passing(format!(
                    "its answer broke off: {}",
                    error.without_url()
                )));
            }
        }
        if bytes.len() > LONGEST {
            return Err(Trouble::passing(format!("its answer is longer than {LONGEST} bytes")));
        }
    }
    String::from_utf8(bytes).map_err(|_| Trouble::passing("its answer is not UTF-8"))
}

impl Caller {
    pub(super) fn new(judge: Arc<Judge>, limit: HumanDuration) -> Self {
        let server = Server::new(&judge).map_err(|error| format!("{error:#}"));
        Self { judge, limit, server }
    }

    /// Answers jobs until nobody can send any.
    pub(super) async fn run(self, jobs: Arc<Mutex<mpsc::Receiver<Job>>>) {
        loop {
            let job = jobs.lock().await.recv().await;
            let Some(Job { line, mut reply }) = job else { return };
            // Its conversation is over: no server is asked for it, or waited for.
            if reply.is_closed() {
                continue;
            }
            let answer = tokio::select! {
                answer = self.answer(&line) => answer,
                () = reply.closed() => continue,
            };
            let _ = reply.send(answer.map_err(|reason| format!("the judge {}: {reason}", self.judge.config.model)));
        }
    }

    async fn answer(&self, line: &str) -> Result<String, String> {
        let server = self.server.as_ref().map_err(Clone::clone)?;
        let question: Question =
            serde_json::from_str(line).map_err(|error| format!("the question is broken: {error}"))?;
        let config = &self.judge.config;
        let body = json!({
            "model": config.model,
            "messages": [{"role": "user", "content": question.judge_prompt(&self.judge)?}],
            "max_tokens": config.max_tokens,
            "temperature": config.temperature,
        });
        let mut pause = FIRST_PAUSE;
        let mut tries = 1;
        loop {
            let trouble = match tokio::time::timeout(self.limit.0, self.judged(server, &body)).await {
                Ok(Ok(reward)) => return Ok(json!({ "reward": reward }).to_string()),
                Ok(Err(trouble)) => trouble,
                Err(_) => Trouble::passing(format!("no answer within {}", self.limit)),
            };
            let Trouble {
                reason,
                is_final,
                pause: wanted,
            } = trouble;
            if is_final || tries >= config.tries {
                return Err(format!("{reason} (after {tries} of {} tries)", config.tries));
            }
            tracing::debug!(model = config.model, reason, tries, "a judge is asked again");
            tokio::time::sleep(wanted.unwrap_or_default().max(jittered(pause))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            tries += 1;
        }
    }

    async fn judged(&self, server: &Server, body: &Value) -> Result<f64, Trouble> {
        let said = server.call(body).await?;
        self.judge.reward(&said).map_err(Trouble::passing)
    }
}

/// Between a half and the whole of a pause, so that not all who failed together come again together.
fn jittered(pause: Duration) -> Duration {
    let random = (uuid::Uuid::new_v4().as_u128() & 0xffff) as f64 / f64::from(0xffff);
    pause.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    /// The group has ended, or is another coordinator's: what still waits is not asked, and what is asked is not waited for.
    #[tokio::test]
    async fn a_judge_is_left_alone_with_what_nobody_waits_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = json!({"url": format!("http://{}/v1", listener.local_addr().unwrap()), "model": "m", "tries": 1});
        let judge = Judge::new(&serde_json::from_value(config).unwrap()).unwrap();
        let caller = Caller::new(Arc::new(judge), HumanDuration::from_secs(20));
        let (sender, jobs) = mpsc::channel(2);
        let ask = || {
            let (reply, answered) = oneshot::channel();
            let line = json!({"kind": "grade", "role": "solver", "text": "5", "task": {"prompt": "2+3=", "label": 5}})
                .to_string();
            sender.try_send(Job { line, reply }).unwrap();
            answered
        };
        drop(ask());
        let answered = ask();
        let run = tokio::spawn(caller.run(Arc::new(Mutex::new(jobs))));
        let _open = listener.accept().await.unwrap();
        drop(answered);
        drop(sender);
        run.await.unwrap();
        let other = listener.into_std().unwrap().accept();
        assert!(other.is_err(), "one call was made, and not two: {other:?}");
    }
}

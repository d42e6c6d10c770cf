//! Asks a model behind an OpenAI-compatible server to grade an answer.
//!
//! Failures that may pass (no connection, 429, 5xx, text without a number) are retried after
//! doubling pauses with random jitter. Lasting failures are reported at once. A failure is no
//! grade.

use std::sync::Arc;
use std::time::Duration;

use broker::codec::parse_python_json;
use configs::{GraderConfig, HumanDuration, Problem, RunConfig};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response, StatusCode};
use rollout::judge::Judge;
use rollout::workflow::program::Question;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tracing::Instrument;

use super::worker::ProgramJob;
use crate::base::retry::Pauses;
use crate::engine::foreign::dialect::{Spoken, text_of};
use crate::engine::process::link;

/// The longest answer of a server, in bytes, and the characters of an error answer that are
/// reported.
const LONGEST: usize = 1 << 20;
const COMPLAINT: usize = 300;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The problems with the servers of judges, by grader.
pub fn check_judges(config: &RunConfig) -> Vec<Problem> {
    let problem = |(name, grader): (&String, &GraderConfig)| {
        let judge = grader.judge.as_ref().filter(|judge| judge.agent.is_none())?;
        let message = link::judged(&judge.url).err()?.message;
        let path = format!("graders.{name}.judge.url");
        Some(Problem { path, message })
    };
    config.graders.iter().filter_map(problem).collect()
}

/// Asks one judge, a question at a time.
pub(super) struct Caller {
    judge: Arc<Judge>,
    limit: HumanDuration,
    /// The server, or the reason why it cannot be called.
    server: Result<Server, String>,
}

struct Server {
    client: Client,
    url: String,
    /// The environment variable with the key.
    variable: String,
    /// The header with the key.
    key: Option<HeaderValue>,
}

/// The reason why a call gave no reward.
struct Trouble {
    reason: String,
    /// The same call would fail in the same way.
    is_final: bool,
    /// The pause that the server asks for.
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
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim())).map_err(|_| {
                let variable = &judge.config.key;
                anyhow::anyhow!("{variable} has characters that a header cannot hold: set it to the server's key")
            })?;
            value.set_sensitive(true);
            anyhow::Ok(value)
        };
        Ok(Self {
            client: link::outside(&judge.config.url)?,
            url: format!("{}/chat/completions", link::judged(&judge.config.url)?),
            variable: judge.config.key.clone(),
            key: key.map(bearer).transpose()?,
        })
    }

    /// Returns the model's text. Repeats the call if the model rejects a field that may change.
    async fn call(&self, model: &str, body: &Value) -> Result<String, Trouble> {
        let mut spoken = Spoken::new(&self.url, model, body);
        let text = loop {
            let (status, pause, text) = self.exchange(spoken.body()).await?;
            if status.is_success() {
                spoken.accepted();
                break text;
            }
            if spoken.adapt(status.as_u16(), &text) {
                continue;
            }
            let busy = status.is_server_error()
                || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
            let head = self.head(&text);
            let advice = link::key_advice(status.as_u16(), &head, &self.variable, self.key.is_some());
            return Err(Trouble {
                reason: format!("answered {status}: {head}{advice}"),
                is_final: !busy,
                pause,
            });
        };
        let answer =
            parse_python_json(&text).map_err(|error| Trouble::passing(format!("its answer is not JSON: {error}")))?;
        let said = text_of(&answer).and_then(|text| match text.as_str() {
            "" => Err("its text is empty".to_owned()),
            _ => Ok(text),
        });
        said.map_err(|why| Trouble::passing(format!("its answer is unusable, {why}: {}", self.head(&text))))
    }

    /// Returns the status, the pause that the server asks for, and the text of its answer.
    async fn exchange(&self, body: &Value) -> Result<(StatusCode, Option<Duration>, String), Trouble> {
        let mut request = self.client.post(&self.url).header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        let sent = request.body(body.to_string()).send().await;
        let response =
            sent.map_err(|error| Trouble::passing(format!("{:#}", anyhow::Error::new(error.without_url()))))?;
        let pause = link::wanted_pause(response.headers()).map(|pause| pause.min(LONGEST_PAUSE));
        let status = response.status();
        Ok((status, pause, read(response).await?))
    }

    /// The head of a server's text, without the key: some servers repeat it.
    fn head(&self, text: &str) -> String {
        let secret = self.key.as_ref().and_then(|key| key.to_str().ok());
        let secret = secret.and_then(|bearer| bearer.strip_prefix("Bearer "));
        let clean = secret.map_or_else(|| text.to_owned(), |secret| text.replace(secret, "***"));
        clean.chars().take(COMPLAINT).collect()
    }
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

    /// Answers jobs until every sender is gone.
    pub(super) async fn run(self, jobs: Arc<Mutex<mpsc::Receiver<ProgramJob>>>) {
        loop {
            let job = jobs.lock().await.recv().await;
            let Some(ProgramJob { line, mut reply, span }) = job else {
                return;
            };
            // The conversation is over: no server is asked or waited for.
            if reply.is_closed() {
                continue;
            }
            let answer = tokio::select! {
                answer = self.answer(&line).instrument(span) => answer,
                () = reply.closed() => continue,
            };
            let _ = reply.send(answer.map_err(|reason| format!("{}: {reason}", self.name())));
        }
    }

    /// Returns its name in messages.
    fn name(&self) -> String {
        let config = &self.judge.config;
        format!("the judge {} at {}", config.model, link::shown(&config.url))
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
        let mut pauses = Pauses::between(FIRST_PAUSE, LONGEST_PAUSE);
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
            tracing::debug!(judge = self.name(), reason, tries, "asking a judge again");
            tokio::time::sleep(wanted.unwrap_or_default().max(jittered(pauses.next_pause()))).await;
            tries += 1;
        }
    }

    async fn judged(&self, server: &Server, body: &Value) -> Result<f64, Trouble> {
        let text = server.call(&self.judge.config.model, body).await?;
        self.judge.reward(&text).map_err(Trouble::passing)
    }
}

/// Returns between a half and the whole of a pause, so that calls that failed together do not come
/// again together.
fn jittered(pause: Duration) -> Duration {
    let random = (uuid::Uuid::new_v4().as_u128() & 0xffff) as f64 / f64::from(0xffff);
    pause.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    /// Answers requests in turn with a status and a body, and returns the bodies of the requests.
    async fn served(listener: TcpListener, answers: Vec<(u16, &'static str)>) -> Vec<Value> {
        let mut received = Vec::new();
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = String::new();
            while !request.ends_with('}') {
                let mut piece = [0; 4096];
                let read = stream.read(&mut piece).await.unwrap();
                request.push_str(std::str::from_utf8(&piece[..read]).unwrap());
            }
            received.push(serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap());
            let size = body.len();
            let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {size}\r\n\r\n");
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
        received
    }

    #[tokio::test]
    async fn a_judge_of_newer_parameters_grades() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config =
            json!({"url": format!("http://{}/v1", listener.local_addr().unwrap()), "model": "gpt-5", "tries": 1});
        let judge = Judge::new(&serde_json::from_value(config).unwrap()).unwrap();
        let caller = Caller::new(Arc::new(judge), HumanDuration::from_secs(20));
        let line =
            json!({"kind": "grade", "role": "solver", "text": "5", "task": {"prompt": "2+3=", "label": 5}}).to_string();
        let limit = r#"{"error": {"message": "use max_completion_tokens", "param": "max_tokens", "code": "unsupported_parameter"}}"#;
        let heat = r#"{"error": {"message": "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported.", "param": "temperature", "code": "unsupported_value"}}"#;
        // The last answer has half of a surrogate pair.
        let good = r#"{"choices": [{"message": {"content": "cut \ud83d {\"score\": 1}"}}]}"#;
        let server = tokio::spawn(served(
            listener,
            vec![(400, limit), (400, heat), (200, good), (200, good)],
        ));
        for _ in 0..2 {
            assert_eq!(caller.answer(&line).await.unwrap(), r#"{"reward":1.0}"#);
        }
        let received = server.await.unwrap();
        assert!(received[0]["max_tokens"].is_u64() && received[0]["temperature"].is_number());
        for later in &received[2..] {
            assert!(later["max_completion_tokens"].is_u64(), "{later}");
            assert!(
                later["max_tokens"].is_null() && later["temperature"].is_null(),
                "{later}"
            );
        }
    }

    /// The group has ended, or belongs to another coordinator: waiting questions are not asked, and
    /// asked ones are not waited for.
    #[tokio::test]
    async fn a_judge_is_not_asked_for_abandoned_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = json!({"url": format!("http://{}/v1", listener.local_addr().unwrap()), "model": "m", "tries": 1});
        let judge = Judge::new(&serde_json::from_value(config).unwrap()).unwrap();
        let caller = Caller::new(Arc::new(judge), HumanDuration::from_secs(20));
        let (sender, jobs) = mpsc::channel(2);
        let ask = || {
            let (reply, answered) = oneshot::channel();
            let line = json!({"kind": "grade", "role": "solver", "text": "5", "task": {"prompt": "2+3=", "label": 5}})
                .to_string();
            sender.try_send(ProgramJob::new(line, reply)).unwrap();
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

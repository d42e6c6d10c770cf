//! A session with an engine process, opened again whenever it ends.

use std::time::{Duration, Instant};

use broker::AgentName;
use broker::codec;
use broker::protocol::engine::{EngineCommand, EngineEvent, Hello, LARGEST};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::base::retry::Pauses;
use crate::engine::process::link;
use crate::engine::process::link::{BINARY, JSON, LinkError, SESSION, Secret};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Lifetime after which a session counts as sound: the next one is opened soon.
const SOUND: Duration = Duration::from_secs(10);

/// An event of a session.
pub(crate) enum News {
    /// The session is open: the channel for commands, which arrive in order.
    Up(UnboundedSender<Vec<EngineCommand>>),
    Event(EngineEvent),
    /// The session continues, but these commands will never be accepted.
    Failed {
        commands: Vec<EngineCommand>,
        reason: String,
    },
    /// The session has ended; open requests stay unanswered.
    Lost,
}

/// The agent and the engine of a session.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) agent: AgentName,
    pub(crate) url: String,
    pub(crate) hello: Hello,
    pub(crate) client: Client,
    pub(crate) secret: Secret,
}

impl Target {
    /// Opens sessions, one after the other, until the receiver is gone.
    pub(crate) async fn keep(self, news: UnboundedSender<News>) {
        let (mut pauses, mut said) = (Pauses::between(FIRST_PAUSE, LONGEST_PAUSE), String::new());
        while !news.is_closed() {
            let error = match self.open().await {
                Ok((id, events)) => {
                    let began = Instant::now();
                    let error = self.hold(&id, events, &news).await;
                    // A receiver that is gone needs no news.
                    let _ = news.send(News::Lost);
                    if began.elapsed() >= SOUND {
                        pauses.reset();
                        said.clear();
                    }
                    error
                }
                Err(error) => error,
            };
            let reason = error.to_string();
            if reason != said {
                let (agent, url) = (&self.agent, &self.url);
                tracing::warn!(%agent, url, reason, "an engine is away; its requests wait until it is back");
                said = reason;
            }
            pauses.wait().await;
        }
    }

    async fn open(&self) -> Result<(String, Response), LinkError> {
        let url = format!("{}/v1/session", self.url);
        let request = self.client.post(&url).header(CONTENT_TYPE, JSON);
        let body = codec::encode_json(&self.hello);
        let response = link::ask(&self.secret, request.body(body), &url).await?;
        let id = response.headers().get(SESSION).and_then(|id| id.to_str().ok());
        let id = id.ok_or_else(|| LinkError::answer(&url, "it returned no session: is it `dyad engine`?"))?;
        Ok((id.to_owned(), response))
    }

    /// Reads events and sends commands until either fails.
    async fn hold(&self, id: &str, events: Response, news: &UnboundedSender<News>) -> LinkError {
        let (outbox, commands) = unbounded_channel();
        let (agent, url) = (&self.agent, &self.url);
        tracing::info!(%agent, url, "an engine process has connected");
        // Same as above.
        let _ = news.send(News::Up(outbox));
        tokio::select! {
            error = self.read(events, news) => error,
            error = self.send(id, commands, news) => error,
        }
    }

    async fn read(&self, mut events: Response, news: &UnboundedSender<News>) -> LinkError {
        let mut held = Vec::new();
        loop {
            match events.chunk().await {
                Ok(Some(bytes)) => held.extend_from_slice(&bytes),
                Ok(None) => return LinkError::answer(&self.url, "it has ended the session"),
                Err(error) => return LinkError::of(&self.url, error),
            }
            let mut at = 0;
            loop {
                match event(&held[at..]) {
                    Ok(Some((event, length))) => {
                        at += length;
                        let _ = news.send(News::Event(event));
                    }
                    Ok(None) => break,
                    Err(reason) => return LinkError::answer(&self.url, reason),
                }
            }
            held.drain(..at);
        }
    }

    async fn send(
        &self,
        id: &str,
        mut lists: UnboundedReceiver<Vec<EngineCommand>>,
        news: &UnboundedSender<News>,
    ) -> LinkError {
        while let Some(commands) = lists.recv().await {
            let Err(error) = self.command(id, &commands).await else {
                continue;
            };
            if !(error.is_final() && commands.iter().all(is_work)) {
                return error;
            }
            let reason = error.to_string();
            let _ = news.send(News::Failed { commands, reason });
        }
        std::future::pending().await
    }

    async fn command(&self, id: &str, commands: &Vec<EngineCommand>) -> Result<(), LinkError> {
        let url = format!("{}/v1/commands", self.url);
        let body = codec::encode(commands);
        if body.len() > LARGEST {
            return Err(LinkError::too_large(&url, body.len(), LARGEST));
        }
        let request = self.client.post(&url).header(CONTENT_TYPE, BINARY).header(SESSION, id);
        link::ask(&self.secret, request.body(body), &url).await.map(drop)
    }
}

/// Returns true if the command can fail alone. A session that rejects other commands is useless.
fn is_work(command: &EngineCommand) -> bool {
    matches!(command, EngineCommand::Generate(_) | EngineCommand::Visit { .. })
}

/// Returns the first event received and its length in bytes; `None` if it is incomplete.
fn event(held: &[u8]) -> Result<Option<(EngineEvent, usize)>, String> {
    let Some((length, rest)) = held.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > LARGEST {
        return Err(format!(
            "it sends an event of {length} bytes, above the limit of {LARGEST}"
        ));
    }
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let event = codec::decode(body).map_err(|error| format!("it sends an invalid event: {error}"))?;
    Ok(Some((event, 4 + length)))
}

/// Returns an event with its length in front.
pub(crate) fn framed(event: &EngineEvent) -> Vec<u8> {
    let body = codec::encode(event);
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(body);
    bytes
}

#[cfg(test)]
mod tests {
    use broker::ids::WeightVersion;
    use broker::protocol::engine::StateId;

    use super::*;

    #[test]
    fn events_are_read_from_pieces_of_any_size() {
        let events = [
            EngineEvent::Alive,
            EngineEvent::Serving(StateId {
                version: WeightVersion { lineage: 2, step: 7 },
                digest: [3; 32],
            }),
            EngineEvent::Refused {
                version: WeightVersion { lineage: 2, step: 8 },
                reason: "no memory".into(),
            },
        ];
        let bytes: Vec<u8> = events.iter().flat_map(framed).collect();
        for piece in 1..bytes.len() {
            let (mut held, mut found) = (Vec::new(), Vec::new());
            for part in bytes.chunks(piece) {
                held.extend(part);
                while let Some((event, length)) = event(&held).unwrap() {
                    found.push(event);
                    held.drain(..length);
                }
            }
            assert!(held.is_empty());
            assert_eq!(found, events);
        }
        assert!(
            event(&u32::MAX.to_le_bytes()).is_err(),
            "an event that is too long is not waited for"
        );
        assert!(event(&[1, 0, 0, 0, 9]).is_err());
    }
}

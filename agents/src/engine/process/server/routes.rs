//! The way in: `POST /v1/session`, `POST /v1/commands`, `GET /health`.

use std::convert::Infallible;
use std::time::Duration;

use actix_web::web::{Bytes, BytesMut, Data, Payload, ServiceConfig};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use broker::codec;
use broker::protocol::engine::{EngineCommand, EngineEvent, LARGEST};
use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc::UnboundedReceiver;

use super::host::{Floor, No};
use crate::engine::process::client::session::framed;
use crate::engine::process::link::{BINARY, JSON, SESSION};
use crate::engine::process::weight_server::refusal;

/// So often it is said that the engine is there.
const ALIVE: Duration = Duration::from_secs(1);
/// Of a body that opens a session.
const SMALL: usize = 64 << 10;

pub(crate) fn routes(config: &mut ServiceConfig) {
    config
        .route("/health", web::get().to(health))
        .route("/v1/session", web::post().to(session))
        .route("/v1/commands", web::post().to(commands));
}

fn told(answer: Result<HttpResponse, No>) -> HttpResponse {
    answer.unwrap_or_else(|(status, reason)| refusal(status, &reason))
}

/// Who asks, and in which form: a web page cannot send this one to another site without being asked for first.
fn enter(request: &HttpRequest, floor: &Floor, form: Option<&str>) -> Result<(), No> {
    if let Some((status, reason)) = floor.secret.refuses(request) {
        return Err((status, reason.to_owned()));
    }
    match form {
        Some(form) if !request.content_type().eq_ignore_ascii_case(form) => {
            Err((415, format!("the body's content-type is not {form}")))
        }
        _ => Ok(()),
    }
}

async fn health(request: HttpRequest, floor: Data<Floor>) -> HttpResponse {
    told(enter(&request, &floor, None).map(|()| HttpResponse::Ok().json(floor.health())))
}

async fn session(request: HttpRequest, body: Payload, floor: Data<Floor>) -> HttpResponse {
    let answer = async {
        enter(&request, &floor, Some(JSON))?;
        let hello = codec::decode_json(&read(body, SMALL).await?).map_err(|error| (400, error.to_string()))?;
        let (id, events) = floor.open(hello)?;
        let line = Line {
            id,
            events,
            floor: floor.clone(),
        };
        Ok(HttpResponse::Ok()
            .content_type(BINARY)
            .insert_header((SESSION, id.to_string()))
            .streaming(line.stream()))
    };
    told(answer.await)
}

async fn commands(request: HttpRequest, body: Payload, floor: Data<Floor>) -> HttpResponse {
    let answer = async {
        enter(&request, &floor, Some(BINARY))?;
        let id = request
            .headers()
            .get(SESSION)
            .and_then(|id| id.to_str().ok()?.parse().ok());
        let id = id.ok_or_else(|| (400, format!("the header {SESSION} names no session")))?;
        let body = read(body, LARGEST).await?;
        let commands: Vec<EngineCommand> = codec::decode(&body).map_err(|error| (400, error.to_string()))?;
        floor.command(id, commands)?;
        Ok(HttpResponse::NoContent().finish())
    };
    told(answer.await)
}

/// The body, up to its limit.
async fn read(mut body: Payload, limit: usize) -> Result<Bytes, No> {
    let mut whole = BytesMut::new();
    while let Some(part) = body.next().await {
        let part = part.map_err(|error| (400, format!("the body cannot be read: {error}")))?;
        if whole.len() + part.len() > limit {
            return Err((413, format!("the body is larger than {limit} bytes")));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// The events of a session; it hangs up when its connection is gone.
struct Line {
    id: u64,
    events: UnboundedReceiver<EngineEvent>,
    floor: Data<Floor>,
}

impl Line {
    /// `None`: another session has taken its place.
    async fn next(&mut self) -> Option<Bytes> {
        let event = tokio::select! {
            event = self.events.recv() => event?,
            () = tokio::time::sleep(ALIVE) => EngineEvent::Alive,
        };
        Some(framed(&event).into())
    }

    fn stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        unfold(self, |mut line| async move {
            line.next().await.map(|bytes| (Ok(bytes), line))
        })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.floor.hang_up(self.id);
    }
}

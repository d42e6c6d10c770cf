//! The HTTP interface: `POST /v1/session`, `POST /v1/commands`, `GET /health`.

use std::convert::Infallible;
use std::time::Duration;

use actix_web::web::{Bytes, BytesMut, Data, Payload, ServiceConfig};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use broker::codec;
use broker::protocol::engine::{EngineCommand, EngineEvent, LARGEST};
use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc::UnboundedReceiver;

use super::host::{Rejection, SessionHost};
use crate::engine::process::client::session::framed;
use crate::engine::process::link::{BINARY, JSON, SESSION};
use crate::engine::process::weight_server::error_response;

/// Interval of the engine's sign of life.
const ALIVE: Duration = Duration::from_secs(1);
/// The largest body that opens a session.
const SMALL: usize = 64 << 10;

pub(crate) fn routes(config: &mut ServiceConfig) {
    config
        .route("/health", web::get().to(health))
        .route("/v1/session", web::post().to(session))
        .route("/v1/commands", web::post().to(commands));
}

fn respond(answer: Result<HttpResponse, Rejection>) -> HttpResponse {
    answer.unwrap_or_else(|(status, reason)| error_response(status, &reason))
}

/// Checks the token and the content type. A web page cannot send this content type to another site
/// without a preflight request.
fn enter(request: &HttpRequest, host: &SessionHost, form: Option<&str>) -> Result<(), Rejection> {
    if let Some((status, reason)) = host.secret.refuses(request) {
        return Err((status, reason.to_owned()));
    }
    match form {
        Some(form) if !request.content_type().eq_ignore_ascii_case(form) => {
            Err((415, format!("the body's content type is not {form}")))
        }
        _ => Ok(()),
    }
}

async fn health(request: HttpRequest, host: Data<SessionHost>) -> HttpResponse {
    respond(enter(&request, &host, None).map(|()| HttpResponse::Ok().json(host.health())))
}

async fn session(request: HttpRequest, body: Payload, host: Data<SessionHost>) -> HttpResponse {
    let answer = async {
        enter(&request, &host, Some(JSON))?;
        let hello = codec::decode_json(&read(body, SMALL).await?).map_err(|error| (400, error.to_string()))?;
        let (id, events) = host.open(hello)?;
        let stream = EventStream {
            id,
            events,
            host: host.clone(),
        };
        Ok(HttpResponse::Ok()
            .content_type(BINARY)
            .insert_header((SESSION, id.to_string()))
            .streaming(stream.stream()))
    };
    respond(answer.await)
}

async fn commands(request: HttpRequest, body: Payload, host: Data<SessionHost>) -> HttpResponse {
    let answer = async {
        enter(&request, &host, Some(BINARY))?;
        let id = request
            .headers()
            .get(SESSION)
            .and_then(|id| id.to_str().ok()?.parse().ok());
        let id = id.ok_or_else(|| (400, format!("the header {SESSION} is missing or names no session")))?;
        let body = read(body, LARGEST).await?;
        let commands: Vec<EngineCommand> = codec::decode(&body).map_err(|error| (400, error.to_string()))?;
        host.command(id, commands)?;
        Ok(HttpResponse::NoContent().finish())
    };
    respond(answer.await)
}

/// Returns the body, up to its limit.
async fn read(mut body: Payload, limit: usize) -> Result<Bytes, Rejection> {
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

/// The events of a session, which ends when its connection is gone.
struct EventStream {
    id: u64,
    events: UnboundedReceiver<EngineEvent>,
    host: Data<SessionHost>,
}

impl EventStream {
    /// Returns the next event; `None` if another session has replaced this one.
    async fn next(&mut self) -> Option<Bytes> {
        let event = tokio::select! {
            event = self.events.recv() => event?,
            () = tokio::time::sleep(ALIVE) => EngineEvent::Alive,
        };
        Some(framed(&event).into())
    }

    fn stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        unfold(self, |mut events| async move {
            events.next().await.map(|bytes| (Ok(bytes), events))
        })
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.host.hang_up(self.id);
    }
}

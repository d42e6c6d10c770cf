//! Serves the agent's weights over HTTP to engine processes: `GET
//! /v1/weights?held=LINEAGE.STEP-DIGEST`.
//!
//! The answer holds the messages that lead from the held version to the newest
//! (`trainer::transfer`), or is 304 if the newest is held. `etag` names the resulting version.
//! Whole weights are packed for other hosts only: on this one that takes longer than it saves.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::body::{MessageBody, SizedStream};
use actix_web::http::header::ETAG;
use actix_web::web::{Bytes, Data, Query};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use anyhow::Context;
use broker::AgentName;
use broker::ids::WeightVersion;
use broker::protocol::engine::StateId;
use configs::EngineConfig;
use serde::Deserialize;
use trainer::transfer::{Offer, Part, Shelf};

use super::link::{BINARY, KEEP, Secret};
use crate::base::log_scope;
use crate::observe::series::training::SentWeights;

struct WeightServer {
    shelf: Arc<Shelf>,
    sent: Option<SentWeights>,
    secret: Secret,
}

/// Starts to serve what is on the shelf, and counts the bytes that it sends. Returns the URL. Must
/// be called in a runtime.
///
/// # Errors
/// A token is missing, or the address cannot be listened on.
pub(crate) fn serve(
    agent: &AgentName,
    settings: &EngineConfig,
    secret: &Secret,
    (shelf, sent): (Arc<Shelf>, Option<SentWeights>),
) -> anyhow::Result<String> {
    let key = format!("agents.{agent}.engine.weights_listen");
    let address: SocketAddr = settings
        .weights_listen
        .parse()
        .with_context(|| format!("{key} is {:?}, which is not an address", settings.weights_listen))?;
    secret.may_listen(&key, address)?;
    let server_data = Data::new(WeightServer {
        shelf,
        sent,
        secret: secret.clone(),
    });
    let app = move || {
        App::new()
            .app_data(server_data.clone())
            .route("/v1/weights", web::get().to(weights))
    };
    let server = HttpServer::new(app)
        .workers(1)
        .keep_alive(KEEP)
        .tcp_nodelay(true)
        .disable_signals()
        .bind(address)
        .with_context(|| {
            format!("agent {agent} cannot listen on {address}: is the port taken? set {key} to another one")
        })?;
    let address = server.addrs().first().copied().unwrap_or(address);
    log_scope::spawn(server.run());
    let url = settings
        .weights_url
        .clone()
        .unwrap_or_else(|| format!("http://{address}"));
    tracing::info!(%agent, %address, url, "engine processes fetch weights here");
    Ok(url)
}

#[derive(Deserialize)]
struct Asked {
    held: Option<String>,
}

async fn weights(request: HttpRequest, asked: Query<Asked>, server_data: Data<WeightServer>) -> HttpResponse {
    if let Some((status, reason)) = server_data.secret.refuses(&request) {
        return error_response(status, reason);
    }
    let held = match asked.held.as_deref().map(read) {
        None => None,
        Some(Some(held)) => Some(held),
        Some(None) => return error_response(400, "held is not a state: write LINEAGE.STEP-DIGEST"),
    };
    let shelf = server_data.shelf.clone();
    let is_here = request
        .peer_addr()
        .is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    // Packing all weights takes long; other threads answer in the meantime.
    match log_scope::spawn_blocking(move || shelf.offer(held, !is_here)).await {
        Ok(Offer::Nothing) => error_response(503, "no weights were published yet: retry in a moment"),
        Ok(Offer::Same(version)) => HttpResponse::NotModified().insert_header((ETAG, tag(version))).finish(),
        Ok(Offer::Messages { version, parts, delta }) => {
            let length = parts.iter().map(|part| part.as_ref().len()).sum();
            if let Some(sent) = &server_data.sent {
                sent.count(delta, length);
            }
            tracing::debug!(%version, delta, bytes = length, "an engine fetches weights");
            HttpResponse::Ok()
                .content_type(BINARY)
                .insert_header((ETAG, tag(version)))
                .body(body(parts, length))
        }
        Err(_) => error_response(500, "the weights cannot be prepared"),
    }
}

/// The bytes that are given to the connection at once: it copies them.
const PIECE: usize = 1 << 20;

/// Returns the body of an answer. It shares the memory of the parts.
fn body(parts: Vec<Part>, length: usize) -> impl MessageBody {
    let pieces = parts.into_iter().flat_map(|part| {
        let bytes = Bytes::from_owner(part);
        let all = bytes.len();
        (0..all)
            .step_by(PIECE)
            .map(move |start| bytes.slice(start..all.min(start + PIECE)))
    });
    SizedStream::new(
        length as u64,
        futures_util::stream::iter(pieces.map(Ok::<_, Infallible>)),
    )
}

pub(crate) fn error_response(status: u16, reason: &str) -> HttpResponse {
    let status = actix_web::http::StatusCode::from_u16(status).unwrap_or_default();
    HttpResponse::build(status)
        .content_type("text/plain; charset=utf-8")
        .body(reason.to_owned())
}

fn tag(version: WeightVersion) -> String {
    format!("\"{version}\"")
}

/// Returns a held state in the form of the query: the version, and the digest in hexadecimal
/// digits.
pub(crate) fn written(held: StateId) -> String {
    let digest: String = held.digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{digest}", held.version)
}

fn read(text: &str) -> Option<StateId> {
    let (version, hex) = text.split_once('-')?;
    let (lineage, step) = version.split_once('.')?;
    let mut digest = [0; 32];
    if hex.len() != 2 * digest.len() || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(StateId {
        version: WeightVersion {
            lineage: lineage.parse().ok()?,
            step: step.parse().ok()?,
        },
        digest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn body_in_pieces_is_the_whole_message() {
        let form = trainer::transfer::Form {
            dtype: configs::Dtype::Bf16,
            elements: PIECE,
            model: [7; 32],
        };
        let bytes: Vec<u8> = (0..2 * PIECE).map(|place| (place % 251) as u8).collect();
        let state = trainer::transfer::State::new(form, WeightVersion::default(), bytes.clone()).unwrap();
        let parts = trainer::transfer::full(&state, false);
        let header = parts[0].as_ref().to_vec();
        let sent = actix_web::body::to_bytes(body(parts, header.len() + bytes.len())).await;
        let sent = sent.map_err(|_| "the stream cannot fail").unwrap();
        assert!(sent[..header.len()] == header && sent[header.len()..] == bytes);
    }

    #[test]
    fn a_held_state_is_parsed_from_its_text() {
        let mut digest = [0; 32];
        digest[0] = 0xaf;
        let held = StateId {
            version: WeightVersion { lineage: 2, step: 71 },
            digest,
        };
        assert_eq!(read(&written(held)), Some(held));
        for wrong in [
            "",
            "2.71",
            "2-00",
            &written(held)[1..],
            &written(held)[..60],
            &format!("{}é", written(held)),
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

//! Receives requests and sends answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_web::http::header;
use actix_web::web::{Bytes, BytesMut, Data, Payload, ServiceConfig};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use futures_util::StreamExt;
use serde_json::json;

use super::Front;
use super::answers::{AnswerWriter, model};
use super::choice::{Choice, ChoicePiece};
use super::client_request::{ClientRequest, Endpoint, Prompt};
use super::gate::{Place, closed};
use super::generations::Generations;
use super::request_error::RequestError;
use super::sse::Sse;
use crate::base::log_scope;
use crate::base::secret::is_own_name;
use crate::engine::VisitUpdate;

/// The time within which a body must arrive.
const BODY: Duration = Duration::from_secs(30);

type Answer = Result<HttpResponse, RequestError>;

/// Registers the paths.
pub fn routes(config: &mut ServiceConfig) {
    let only_get = || web::to(|req, front| other_method(req, front, "GET"));
    let only_post = || web::to(|req, front| other_method(req, front, "POST"));
    config
        .service(
            web::resource("/v1/models")
                .route(web::get().to(models))
                .default_service(only_get()),
        )
        .service(
            web::resource("/v1/models/{model}")
                .route(web::get().to(one_model))
                .default_service(only_get()),
        )
        .service(
            web::resource("/v1/completions")
                .route(web::post().to(completions))
                .default_service(only_post()),
        )
        .service(
            web::resource("/v1/chat/completions")
                .route(web::post().to(chat))
                .default_service(only_post()),
        )
        .default_service(web::to(other_path));
}

fn respond(answer: Answer) -> HttpResponse {
    answer.unwrap_or_else(|refusal| refusal.response())
}

/// Checks the client before anything else is read.
fn enter(req: &HttpRequest, front: &Front) -> Result<(), RequestError> {
    let head = |name| req.headers().get(name).map(header::HeaderValue::as_bytes);
    if let Some(token) = front.token.as_ref() {
        return if token.is_shown(head(header::AUTHORIZATION)) {
            Ok(())
        } else {
            Err(RequestError::no_token())
        };
    }
    let host = String::from_utf8_lossy(head(header::HOST).unwrap_or_default());
    if is_own_name(&host) {
        Ok(())
    } else {
        Err(RequestError::host(&host))
    }
}

async fn other_path(req: HttpRequest, front: Data<Front>) -> HttpResponse {
    respond(enter(&req, &front).and(Err(RequestError::path(req.method().as_str(), req.path()))))
}

async fn other_method(req: HttpRequest, front: Data<Front>, allowed: &str) -> HttpResponse {
    let refusal = RequestError::method(req.method().as_str(), allowed);
    respond(enter(&req, &front).and(Err(refusal)))
}

async fn models(req: HttpRequest, front: Data<Front>) -> HttpResponse {
    respond(enter(&req, &front).map(|()| HttpResponse::Ok().json(json!({"object": "list", "data": [front.model()]}))))
}

async fn one_model(req: HttpRequest, front: Data<Front>, name: web::Path<String>) -> HttpResponse {
    let answer = || -> Answer {
        enter(&req, &front)?;
        front.is_asked(&name)?;
        Ok(HttpResponse::Ok().json(front.model()))
    };
    respond(answer())
}

async fn completions(req: HttpRequest, body: Payload, front: Data<Front>) -> HttpResponse {
    respond(answer(&req, body, &front, Endpoint::Completion).await)
}

async fn chat(req: HttpRequest, body: Payload, front: Data<Front>) -> HttpResponse {
    respond(answer(&req, body, &front, Endpoint::Chat).await)
}

async fn answer(req: &HttpRequest, body: Payload, front: &Front, kind: Endpoint) -> Answer {
    enter(req, front)?;
    // A web page cannot send this type to another site without a preflight request.
    if !req.content_type().eq_ignore_ascii_case("application/json") {
        return Err(RequestError::media_type());
    }
    let place = front.gate.enter()?;
    front.rates.request()?;
    let body = tokio::time::timeout(BODY, read(req, body, front.body)).await;
    let mut ask = ClientRequest::read(kind, &body.map_err(|_| RequestError::slow())??, &front.sampling)?;
    front.is_asked(&ask.model)?;
    front.scores(&ask)?;
    let places = [place, front.gate.generate(ask.inputs.len().saturating_mul(ask.n))?];
    let (prompts, places) = front.prompts(&ask, places).await?;
    ask.sampling.max_new_tokens = front.room(&prompts, ask.sampling.max_new_tokens)?;
    let read: usize = prompts.iter().map(|prompt| prompt.len()).sum();
    let choices = prompts.len() * ask.n;
    ask.fits(choices)?;
    ask.repeats_fit(read)?;
    ask.prompt_fits(prompts.iter().map(|prompt| prompt.len()).max().unwrap_or(0))?;
    let charge = front
        .rates
        .tokens(read, choices.saturating_mul(ask.sampling.max_new_tokens as usize))?;
    let open = Generations::begin(front.engine.clone(), &prompts, &ask, (places, charge));
    let mut paper = AnswerWriter::new(&ask, prompts, front.text.clone(), front.now());
    paper.warning = front.control_in_text(&ask);
    tracing::debug!(
        id = paper.id,
        prompts = paper.prompts.len(),
        n = ask.n,
        stream = ask.stream,
        "received a client's request"
    );
    generate(front, &ask, paper, open).await
}

/// Reads the body, up to its limit.
async fn read(req: &HttpRequest, mut body: Payload, limit: u64) -> Result<Bytes, RequestError> {
    let length = req.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit) {
        return Err(RequestError::too_large(limit));
    }
    let mut whole = BytesMut::new();
    while let Some(part) = body.next().await {
        let part = part.map_err(|error| RequestError::body(format!("the body cannot be read: {error}")))?;
        if (whole.len() + part.len()) as u64 > limit {
            return Err(RequestError::too_large(limit));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// Waits for the first report before the answer begins, so that a failed generation has an error
/// status.
async fn generate(front: &Front, ask: &ClientRequest, paper: AnswerWriter, mut open: Generations) -> Answer {
    let mut phases = front.gate.phases();
    let choices = paper.prompts.len() * ask.n;
    let choices = (0..choices).map(|_| Choice::new(front.text.clone(), ask.stop.clone()));
    let mut choices: Vec<Choice> = choices.collect();
    let first = tokio::select! {
        first = open.next() => first.ok_or_else(RequestError::lost)?,
        () = closed(&mut phases) => return Err(RequestError::closing()),
    };
    if let Some(Err(failure)) = &first.1.end {
        return Err(RequestError::failure(failure));
    }
    if ask.stream {
        let mut sse = Sse::new(paper, open, choices, phases);
        sse.take(first.0, first.1);
        return Ok(HttpResponse::Ok()
            .content_type("text/event-stream; charset=utf-8")
            .insert_header((header::CACHE_CONTROL, "no-cache"))
            .streaming(sse.events()));
    }
    let pieces = tokio::select! {
        pieces = gather(&mut open, &mut choices, first) => pieces?,
        () = closed(&mut phases) => return Err(RequestError::closing()),
    };
    let made: Vec<_> = pieces
        .into_iter()
        .zip(choices.into_iter().map(|choice| choice.spans))
        .collect();
    Ok(HttpResponse::Ok().json(paper.whole(&made)))
}

/// Collects every choice to its end.
async fn gather(
    open: &mut Generations,
    choices: &mut [Choice],
    first: (usize, VisitUpdate),
) -> Result<Vec<ChoicePiece>, RequestError> {
    let mut pieces = vec![ChoicePiece::default(); choices.len()];
    let mut next = Some(first);
    while choices.iter().any(|choice| choice.end.is_none()) {
        let (index, update) = match next.take() {
            Some(first) => first,
            None => open.next().await.ok_or_else(RequestError::lost)?,
        };
        let (Some(choice), Some(whole)) = (choices.get_mut(index), pieces.get_mut(index)) else {
            continue;
        };
        let piece = choice.take(update).map_err(|failure| RequestError::failure(&failure))?;
        whole.text.push_str(&piece.text);
        whole.ids.extend(piece.ids);
        whole.logprobs.extend(piece.logprobs);
        whole.top.extend(piece.top);
        whole.offsets.extend(piece.offsets);
        whole.prompt = whole.prompt.take().or(piece.prompt);
        (whole.end, whole.reason) = (piece.end, piece.reason);
        if choice.end.is_some() {
            open.leave(index);
        }
    }
    Ok(pieces)
}

impl Front {
    fn model(&self) -> serde_json::Value {
        let weights = *self.engine.versions().borrow();
        model(self.agent.as_str(), self.run.as_str(), self.since, weights)
    }

    fn is_asked(&self, name: &str) -> Result<(), RequestError> {
        if name == self.agent.as_str() {
            Ok(())
        } else {
            Err(RequestError::model(name, self.agent.as_str()))
        }
    }

    /// Returns an error if the client wants log-probs of prompts and the engine gives none.
    fn scores(&self, ask: &ClientRequest) -> Result<(), RequestError> {
        if ask.prompt_top().is_none() || self.engine.scores_prompts() {
            return Ok(());
        }
        let advice = "with logprobs those of the prompt come too, and the engine of this agent, which is a process of its own or another's \
                      server, does not give log-probs of prompts: send one without the other, or ask an agent with an embedded engine";
        Err(RequestError::unsupported("echo", advice))
    }

    /// Returns the ids of every prompt. Templates and tokenizers run on a blocking thread. They
    /// hold the request's places until they are done, even if the client has gone.
    async fn prompts(
        &self,
        ask: &ClientRequest,
        places: [Place; 2],
    ) -> Result<(Vec<Arc<[u32]>>, [Place; 2]), RequestError> {
        let (codec, vocab, inputs) = (self.text.clone(), self.vocab, ask.inputs.clone());
        let (lead, control) = (ask.lead, self.control_tokens);
        let render = move || {
            let ids = |input| ids(&codec, vocab, input, lead, control);
            let ids: Result<_, RequestError> = inputs.into_iter().map(ids).collect();
            ids.map(|ids| (ids, places))
        };
        // A panic there ends the process, so no error is lost here.
        log_scope::spawn_blocking(render)
            .await
            .map_err(|_| RequestError::lost())?
    }

    /// Returns the warning for a text prompt that spells a control token, which stays text. Logs
    /// the first one.
    fn control_in_text(&self, ask: &ClientRequest) -> Option<String> {
        let spelled = |input: &Prompt| match input {
            Prompt::Text(text) if !self.control_tokens => self.text.spelled_control(text).map(str::to_owned),
            _ => None,
        };
        let token = ask.inputs.iter().find_map(spelled)?;
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                agent = %self.agent, token,
                "a client's text prompt spells a control token, which stays text: send messages or token ids, or set http.control_tokens = true for this agent"
            );
        }
        Some(format!(
            "the prompt spells the control token {token:?}, which was read as text: send messages to /v1/chat/completions, send token ids, or set agents.{}.http.control_tokens = true",
            self.agent
        ))
    }

    /// The number of new tokens that the longest prompt leaves of a client's context, at most
    /// `wanted`.
    fn room(&self, prompts: &[Arc<[u32]>], wanted: u32) -> Result<u32, RequestError> {
        let longest = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or(0);
        let room = self.context.checked_sub(longest);
        match room.filter(|room| *room > 0 || wanted == 0) {
            None => Err(RequestError::context(longest, self.context)),
            Some(room) => Ok(wanted.min(u32::try_from(room).unwrap_or(u32::MAX))),
        }
    }
}

fn ids(
    codec: &rollout::text::TextCodec,
    vocab: usize,
    input: Prompt,
    lead: bool,
    control: bool,
) -> Result<Arc<[u32]>, RequestError> {
    let (field, ids) = match input {
        Prompt::Text(text) if control => ("prompt", codec.rendered(&text, lead)),
        Prompt::Text(text) if !lead => ("prompt", codec.unled(&text)),
        Prompt::Text(text) => ("prompt", codec.plain(&text)),
        Prompt::Chat { messages, generation } => ("messages", codec.chat(&messages, generation)),
        Prompt::Ids(ids) => ("prompt", Ok(ids)),
    };
    let ids = ids.map_err(|error| RequestError::wrong(field, format!("cannot be turned into tokens: {error}")))?;
    match ids.iter().find(|id| **id as usize >= vocab) {
        Some(id) => Err(RequestError::wrong(
            field,
            format!("has the token id {id}, and the model has {vocab}"),
        )),
        None if ids.is_empty() => Err(RequestError::wrong(
            field,
            "has no tokens: there is nothing to go on from",
        )),
        None => Ok(ids.into()),
    }
}

#[cfg(test)]
mod tests;

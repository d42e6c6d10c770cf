//! Answers as JSON, whole and in chunks, in OpenAI's shapes.
//!
//! Values without a field in OpenAI's shapes are in a `dyad` object: which weights generated which
//! tokens.

use std::sync::Arc;

use broker::ids::WeightVersion;
use broker::protocol::turn::{Finish, VersionSpan};
use rollout::text::TextCodec;
use serde_json::{Map, Value, json};
use trainer::engine::PromptScores;

use super::choice::ChoicePiece;
use super::client_request::{ClientRequest, Endpoint};
use super::echo::Echo;

/// The common values of all parts of one answer.
pub struct AnswerWriter {
    pub id: String,
    pub kind: Endpoint,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    pub n: usize,
    pub logprobs: bool,
    /// True if the log-probs come with the most likely tokens.
    pub top: bool,
    pub token_ids: bool,
    pub include_usage: bool,
    pub prompts: Vec<Arc<[u32]>>,
    /// The text that each prompt's choices begin with; empty unless the client asked for it.
    pub echoes: Vec<Echo>,
    pub codec: Arc<TextCodec>,
    /// The reason why the model may have seen another prompt than the client meant.
    pub warning: Option<String>,
}

impl AnswerWriter {
    pub fn new(ask: &ClientRequest, prompts: Vec<Arc<[u32]>>, codec: Arc<TextCodec>, created: u64) -> Self {
        let lead = match ask.kind {
            Endpoint::Completion => "cmpl",
            Endpoint::Chat => "chatcmpl",
        };
        Self {
            id: format!("{lead}-{}", uuid::Uuid::new_v4().simple()),
            kind: ask.kind,
            created,
            model: ask.model.clone(),
            n: ask.n,
            logprobs: ask.logprobs,
            top: ask.top > 0,
            token_ids: ask.token_ids,
            include_usage: ask.include_usage,
            echoes: echoes(ask, &prompts, &codec),
            prompts,
            codec,
            warning: None,
        }
    }

    /// Returns the whole answer, with the choices in their order.
    #[must_use]
    pub fn whole(&self, choices: &[(ChoicePiece, Vec<VersionSpan>)]) -> Value {
        let made: usize = choices.iter().map(|(piece, _)| piece.ids.len()).sum();
        let list = choices.iter().enumerate().map(|(index, (piece, spans))| {
            let mut choice = self.choice(index, piece);
            match self.kind {
                Endpoint::Chat => choice.insert("message".into(), json!({"role": "assistant", "content": piece.text})),
                Endpoint::Completion => choice.insert("text".into(), json!(self.echo(index).to_owned() + &piece.text)),
            };
            self.prompt_ids(index, &mut choice);
            choice.insert("dyad".into(), dyad(Some(spans.as_slice()), piece.prompt.as_deref()));
            Value::Object(choice)
        });
        let mut answer = self.frame("chat.completion", list.collect());
        if self.kind == Endpoint::Chat && self.token_ids {
            answer.insert("prompt_token_ids".into(), json!(self.prompts.first()));
        }
        answer.insert("usage".into(), self.usage(made));
        self.warn(&mut answer);
        Value::Object(answer)
    }

    /// Returns a chunk of one choice; `first` begins the choice. `spans` come with its end, the
    /// spans of the prompt's log-probs with these.
    #[must_use]
    pub fn chunk(&self, index: usize, piece: &ChoicePiece, first: bool, spans: &[VersionSpan]) -> Value {
        let mut choice = self.choice(index, piece);
        match self.kind {
            Endpoint::Completion => {
                let echo = if first { self.echo(index) } else { "" };
                choice.insert("text".into(), json!(echo.to_owned() + &piece.text));
            }
            Endpoint::Chat => {
                let mut delta = Map::new();
                if first {
                    delta.insert("role".into(), "assistant".into());
                }
                if first || !piece.text.is_empty() {
                    delta.insert("content".into(), json!(piece.text));
                }
                choice.insert("delta".into(), Value::Object(delta));
            }
        }
        if first {
            self.prompt_ids(index, &mut choice);
        }
        if piece.end.is_some() || piece.prompt.is_some() {
            let spans = piece.end.is_some().then_some(spans);
            choice.insert("dyad".into(), dyad(spans, piece.prompt.as_deref()));
        }
        let mut chunk = self.frame("chat.completion.chunk", vec![Value::Object(choice)]);
        if first && index == 0 && self.kind == Endpoint::Chat && self.token_ids {
            chunk.insert("prompt_token_ids".into(), json!(self.prompts.first()));
        }
        if first && index == 0 {
            self.warn(&mut chunk);
        }
        if self.include_usage {
            chunk.insert("usage".into(), Value::Null);
        }
        Value::Object(chunk)
    }

    /// Returns the last chunk of a stream with usage counts.
    #[must_use]
    pub fn usage_chunk(&self, made: usize) -> Value {
        let mut chunk = self.frame("chat.completion.chunk", Vec::new());
        chunk.insert("usage".into(), self.usage(made));
        Value::Object(chunk)
    }

    fn warn(&self, answer: &mut Map<String, Value>) {
        if let Some(warning) = &self.warning {
            answer.insert("dyad".into(), json!({"warning": warning}));
        }
    }

    fn frame(&self, chat: &str, choices: Vec<Value>) -> Map<String, Value> {
        let object = match self.kind {
            Endpoint::Chat => chat,
            Endpoint::Completion => "text_completion",
        };
        let mut frame = Map::new();
        frame.insert("id".into(), json!(self.id));
        frame.insert("object".into(), json!(object));
        frame.insert("created".into(), json!(self.created));
        frame.insert("model".into(), json!(self.model));
        frame.insert("choices".into(), Value::Array(choices));
        frame
    }

    fn choice(&self, index: usize, piece: &ChoicePiece) -> Map<String, Value> {
        let mut choice = Map::new();
        choice.insert("index".into(), json!(index));
        choice.insert("finish_reason".into(), finish(piece.end));
        choice.insert("stop_reason".into(), json!(piece.reason));
        choice.insert(
            "logprobs".into(),
            if self.logprobs {
                self.logprobs(index, piece)
            } else {
                Value::Null
            },
        );
        if self.token_ids {
            choice.insert("token_ids".into(), json!(piece.ids));
        }
        choice
    }

    /// The index of a choice's prompt.
    pub(super) fn prompt_of(&self, index: usize) -> usize {
        index / self.n.max(1)
    }

    /// The prompt text that a choice begins with.
    fn echo(&self, index: usize) -> &str {
        self.echoes
            .get(self.prompt_of(index))
            .map_or("", |echo| echo.text.as_str())
    }

    fn prompt_ids(&self, index: usize, choice: &mut Map<String, Value>) {
        if self.token_ids && self.kind == Endpoint::Completion {
            choice.insert(
                "prompt_token_ids".into(),
                json!(self.prompts.get(self.prompt_of(index))),
            );
        }
    }

    fn usage(&self, made: usize) -> Value {
        let prompt: usize = self.prompts.iter().map(|prompt| prompt.len()).sum();
        json!({"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made})
    }
}

/// The prompts as text, if the client wants them back.
fn echoes(ask: &ClientRequest, prompts: &[Arc<[u32]>], codec: &TextCodec) -> Vec<Echo> {
    let prompts = ask.inputs.iter().zip(prompts).filter(|_| ask.echo);
    prompts
        .map(|(input, ids)| Echo::new(input, ids, ask.logprobs, codec))
        .collect()
}

fn finish(end: Option<Finish>) -> Value {
    match end {
        None => Value::Null,
        Some(Finish::Stop) => "stop".into(),
        Some(Finish::Length) => "length".into(),
    }
}

/// The weights that generated the tokens of an answer, and those that computed the log-probs of its
/// prompt.
fn dyad(spans: Option<&[VersionSpan]>, prompt: Option<&PromptScores>) -> Value {
    let span = |span: &VersionSpan| json!({"weights": span.version.to_string(), "start": span.start, "end": span.end});
    let list = |spans: &[VersionSpan]| spans.iter().map(span).collect::<Value>();
    let mut dyad = Map::new();
    dyad.extend(spans.map(|spans| ("spans".to_owned(), list(spans))));
    dyad.extend(prompt.map(|prompt| ("prompt_spans".to_owned(), list(&prompt.spans))));
    Value::Object(dyad)
}

/// Describes an agent as a model.
#[must_use]
pub fn model(agent: &str, run: &str, created: u64, weights: WeightVersion) -> Value {
    json!({
        "id": agent,
        "object": "model",
        "created": created,
        "owned_by": "dyad",
        "dyad": {"run": run, "weights": weights.to_string(), "lineage": weights.lineage, "step": weights.step},
    })
}

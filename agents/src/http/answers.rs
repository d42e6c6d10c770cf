//! Answers as JSON, whole and in pieces, in OpenAI's shapes.
//!
//! What OpenAI has no field for stands in a `dyad` object: which weights made which tokens.

use std::sync::Arc;

use broker::ids::WeightVersion;
use broker::protocol::engine::TopLogprob;
use broker::protocol::turn::{Finish, VersionSpan};
use rollout::text::TextCodec;
use serde_json::{Map, Value, json};

use super::ask::{Ask, Input, Kind};
use super::choice::Piece;

/// What all parts of one answer have in common.
pub struct Paper {
    pub id: String,
    pub kind: Kind,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    pub n: usize,
    pub logprobs: bool,
    /// Whether they come with the most likely tokens.
    pub top: bool,
    pub token_ids: bool,
    pub include_usage: bool,
    pub prompts: Vec<Arc<[u32]>>,
    /// The text that each prompt's choices begin with; empty where none is asked for.
    pub echoes: Vec<String>,
    pub codec: Arc<TextCodec>,
}

impl Paper {
    pub fn new(ask: &Ask, prompts: Vec<Arc<[u32]>>, codec: Arc<TextCodec>, created: u64) -> Self {
        let lead = match ask.kind {
            Kind::Completion => "cmpl",
            Kind::Chat => "chatcmpl",
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
            echoes: echoes(ask, &codec),
            prompts,
            codec,
        }
    }

    /// The whole answer; choices in their order.
    #[must_use]
    pub fn whole(&self, choices: &[(Piece, Vec<VersionSpan>)]) -> Value {
        let made: usize = choices.iter().map(|(piece, _)| piece.ids.len()).sum();
        let list = choices.iter().enumerate().map(|(index, (piece, spans))| {
            let mut choice = self.choice(index, piece);
            match self.kind {
                Kind::Chat => choice.insert("message".into(), json!({"role": "assistant", "content": piece.text})),
                Kind::Completion => choice.insert("text".into(), json!(self.echo(index) + &piece.text)),
            };
            self.prompt_ids(index, &mut choice);
            choice.insert("dyad".into(), dyad(spans));
            Value::Object(choice)
        });
        let mut answer = self.frame("chat.completion", list.collect());
        if self.kind == Kind::Chat && self.token_ids {
            answer.insert("prompt_token_ids".into(), json!(self.prompts.first()));
        }
        answer.insert("usage".into(), self.usage(made));
        Value::Object(answer)
    }

    /// A piece of one choice; `first` begins it. `spans` come with its end.
    #[must_use]
    pub fn chunk(&self, index: usize, piece: &Piece, first: bool, spans: &[VersionSpan]) -> Value {
        let mut choice = self.choice(index, piece);
        match self.kind {
            Kind::Completion => {
                let echo = if first { self.echo(index) } else { String::new() };
                choice.insert("text".into(), json!(echo + &piece.text));
            }
            Kind::Chat => {
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
        if piece.end.is_some() {
            choice.insert("dyad".into(), dyad(spans));
        }
        let mut chunk = self.frame("chat.completion.chunk", vec![Value::Object(choice)]);
        if first && index == 0 && self.kind == Kind::Chat && self.token_ids {
            chunk.insert("prompt_token_ids".into(), json!(self.prompts.first()));
        }
        if self.include_usage {
            chunk.insert("usage".into(), Value::Null);
        }
        Value::Object(chunk)
    }

    /// The last piece of a stream that counts.
    #[must_use]
    pub fn usage_chunk(&self, made: usize) -> Value {
        let mut chunk = self.frame("chat.completion.chunk", Vec::new());
        chunk.insert("usage".into(), self.usage(made));
        Value::Object(chunk)
    }

    fn frame(&self, chat: &str, choices: Vec<Value>) -> Map<String, Value> {
        let object = match self.kind {
            Kind::Chat => chat,
            Kind::Completion => "text_completion",
        };
        let mut frame = Map::new();
        frame.insert("id".into(), json!(self.id));
        frame.insert("object".into(), json!(object));
        frame.insert("created".into(), json!(self.created));
        frame.insert("model".into(), json!(self.model));
        frame.insert("choices".into(), Value::Array(choices));
        frame
    }

    fn choice(&self, index: usize, piece: &Piece) -> Map<String, Value> {
        let mut choice = Map::new();
        choice.insert("index".into(), json!(index));
        choice.insert("finish_reason".into(), finish(piece.end));
        choice.insert("stop_reason".into(), json!(piece.reason));
        choice.insert(
            "logprobs".into(),
            if self.logprobs {
                self.logprobs(piece)
            } else {
                Value::Null
            },
        );
        if self.token_ids {
            choice.insert("token_ids".into(), json!(piece.ids));
        }
        choice
    }

    /// What a choice's text begins with.
    fn echo(&self, index: usize) -> String {
        let prompt = index / self.n.max(1);
        self.echoes.get(prompt).cloned().unwrap_or_default()
    }

    fn prompt_ids(&self, index: usize, choice: &mut Map<String, Value>) {
        if self.token_ids && self.kind == Kind::Completion {
            choice.insert(
                "prompt_token_ids".into(),
                json!(self.prompts.get(index / self.n.max(1))),
            );
        }
    }

    fn logprobs(&self, piece: &Piece) -> Value {
        let chosen = piece.ids.iter().zip(&piece.logprobs);
        let chosen: Vec<TopLogprob> = chosen.map(|(&id, &logprob)| TopLogprob { id, logprob }).collect();
        // Nobody asked for the most likely ones: each place has none.
        let top = |place: usize| piece.top.get(place).map_or(&[][..], Vec::as_slice);
        match self.kind {
            Kind::Completion => {
                let tops = chosen
                    .iter()
                    .enumerate()
                    .map(|(place, one)| self.by_name(*one, top(place)));
                json!({
                    "tokens": chosen.iter().map(|one| self.name(one.id)).collect::<Vec<_>>(),
                    "token_logprobs": piece.logprobs,
                    "top_logprobs": self.top.then(|| tops.collect::<Vec<_>>()),
                    "text_offset": piece.offsets,
                })
            }
            Kind::Chat => {
                let tokens = chosen.iter().enumerate().map(|(place, one)| {
                    let mut token = self.token(*one);
                    let top = top(place).iter().map(|one| Value::Object(self.token(*one)));
                    token.insert("top_logprobs".into(), top.collect());
                    Value::Object(token)
                });
                json!({"content": tokens.collect::<Vec<_>>(), "refusal": null})
            }
        }
    }

    /// As chats have a token and its log-prob.
    fn token(&self, TopLogprob { id, logprob }: TopLogprob) -> Map<String, Value> {
        let mut token = Map::new();
        token.insert("token".into(), json!(self.name(id)));
        token.insert("logprob".into(), json!(logprob));
        token.insert("bytes".into(), json!(self.codec.bytes(id)));
        token
    }

    /// What a token says alone. Half a character says nothing, and goes by its id.
    fn name(&self, id: u32) -> String {
        let text = self.codec.bytes(id).and_then(|bytes| String::from_utf8(bytes).ok());
        text.filter(|text| !text.is_empty()).unwrap_or_else(|| by_id(id))
    }

    /// As completions have the most likely tokens, by their names: with the chosen one, also if it is not among them. Of tokens that
    /// have the same text it keeps that, else the likeliest does; the others go by their ids.
    fn by_name(&self, chosen: TopLogprob, top: &[TopLogprob]) -> Value {
        let mut named = Map::new();
        let others = top.iter().filter(|one| one.id != chosen.id);
        for TopLogprob { id, logprob } in std::iter::once(&chosen).chain(others) {
            let name = self.name(*id);
            let name = if named.contains_key(&name) { by_id(*id) } else { name };
            named.insert(name, json!(logprob));
        }
        Value::Object(named)
    }

    fn usage(&self, made: usize) -> Value {
        let prompt: usize = self.prompts.iter().map(|prompt| prompt.len()).sum();
        json!({"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made})
    }
}

/// The texts of the prompts, if they are to come back: as they were sent, or what their ids stand for.
fn echoes(ask: &Ask, codec: &TextCodec) -> Vec<String> {
    let text = |input: &Input| match input {
        Input::Text(text) => text.clone(),
        Input::Ids(ids) => codec.spelled(ids),
        Input::Chat { .. } => String::new(),
    };
    let inputs = ask.inputs.iter().filter(|_| ask.echo);
    inputs.map(text).collect()
}

/// As vLLM names tokens by their ids.
fn by_id(id: u32) -> String {
    format!("token_id:{id}")
}

fn finish(end: Option<Finish>) -> Value {
    match end {
        None => Value::Null,
        Some(Finish::Stop) => "stop".into(),
        Some(Finish::Length) => "length".into(),
    }
}

fn dyad(spans: &[VersionSpan]) -> Value {
    let span = |span: &VersionSpan| json!({"weights": span.version.to_string(), "start": span.start, "end": span.end});
    json!({"spans": spans.iter().map(span).collect::<Vec<_>>()})
}

/// An agent as a model.
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

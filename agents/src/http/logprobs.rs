//! Log-probs as JSON: those of generated tokens, and those of the prompt that a completion begins
//! with.

use broker::protocol::engine::TopLogprob;
use serde_json::{Map, Value, json};

use super::answers::AnswerWriter;
use super::choice::ChoicePiece;
use super::client_request::Endpoint;

/// The lists of a completion's log-probs, each with an entry for each token.
#[derive(Default)]
struct Lists {
    tokens: Vec<String>,
    /// `None` for the first token, which has no token before it.
    logprobs: Vec<Option<f32>>,
    /// The most likely tokens, by their names.
    top: Vec<Value>,
    offsets: Vec<usize>,
}

impl AnswerWriter {
    /// The log-probs of a piece of a choice.
    pub(super) fn logprobs(&self, index: usize, piece: &ChoicePiece) -> Value {
        match self.kind {
            Endpoint::Completion => {
                let mut lists = Lists::default();
                self.list_prompt(index, piece, &mut lists);
                self.list_made(index, piece, &mut lists);
                json!({
                    "tokens": lists.tokens,
                    "token_logprobs": lists.logprobs,
                    "top_logprobs": self.top.then_some(lists.top),
                    "text_offset": lists.offsets,
                })
            }
            Endpoint::Chat => {
                let tokens = made(piece).map(|(one, top)| {
                    let mut token = self.token(one);
                    let top = top.iter().map(|one| Value::Object(self.token(*one)));
                    token.insert("top_logprobs".into(), top.collect());
                    Value::Object(token)
                });
                json!({"content": tokens.collect::<Vec<_>>(), "refusal": null})
            }
        }
    }

    /// Lists the prompt's tokens, with the piece that brings their log-probs.
    fn list_prompt(&self, index: usize, piece: &ChoicePiece, lists: &mut Lists) {
        let prompt = self.prompt_of(index);
        let (Some(scores), Some(ids), Some(echo)) = (&piece.prompt, self.prompts.get(prompt), self.echoes.get(prompt))
        else {
            return;
        };
        lists.tokens.extend(ids.iter().map(|id| self.name(*id)));
        lists.offsets.extend(&echo.offsets);
        lists.logprobs.push(None);
        lists.logprobs.extend(scores.logprobs.iter().copied().map(Some));
        if !self.top {
            return;
        }
        lists.top.push(Value::Null);
        for (place, (&id, &logprob)) in ids.iter().skip(1).zip(&scores.logprobs).enumerate() {
            let top = scores.top.get(place).map_or(&[][..], Vec::as_slice);
            lists.top.push(self.by_name(TopLogprob { id, logprob }, top));
        }
    }

    /// Lists the generated tokens, positioned after the prompt's text if that is sent back.
    fn list_made(&self, index: usize, piece: &ChoicePiece, lists: &mut Lists) {
        let before = self.echoes.get(self.prompt_of(index)).map_or(0, |echo| echo.characters);
        lists.offsets.extend(piece.offsets.iter().map(|offset| before + offset));
        for (one, top) in made(piece) {
            lists.tokens.push(self.name(one.id));
            lists.logprobs.push(Some(one.logprob));
            if self.top {
                lists.top.push(self.by_name(one, top));
            }
        }
    }

    /// A token and its log-prob in the shape of chats.
    fn token(&self, TopLogprob { id, logprob }: TopLogprob) -> Map<String, Value> {
        let mut token = Map::new();
        token.insert("token".into(), json!(self.name(id)));
        token.insert("logprob".into(), json!(logprob));
        token.insert("bytes".into(), json!(self.codec.bytes(id)));
        token
    }

    /// The text of a token alone. Half a character has no text and is named by its id.
    fn name(&self, id: u32) -> String {
        let text = self.codec.bytes(id).and_then(|bytes| String::from_utf8(bytes).ok());
        text.filter(|text| !text.is_empty()).unwrap_or_else(|| by_id(id))
    }

    /// The most likely tokens by their names, in the shape of completions, always with the chosen
    /// one. Among tokens with the same text the chosen one keeps it, else the likeliest; the others
    /// are named by their ids.
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
}

/// The tokens of a piece, each with the most likely ones in its place; empty unless the client
/// asked for them.
fn made(piece: &ChoicePiece) -> impl Iterator<Item = (TopLogprob, &[TopLogprob])> {
    let chosen = piece.ids.iter().zip(&piece.logprobs);
    chosen.enumerate().map(move |(place, (&id, &logprob))| {
        let top = piece.top.get(place).map_or(&[][..], Vec::as_slice);
        (TopLogprob { id, logprob }, top)
    })
}

/// Names a token by its id, like vLLM.
fn by_id(id: u32) -> String {
    format!("token_id:{id}")
}

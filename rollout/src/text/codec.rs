//! Converts an agent's text to tokens and back.

mod characters;
mod open;
mod thoughts;

use std::borrow::Cow;
use std::sync::Arc;

use broker::protocol::turn::{Message, TurnPrompt};
use configs::History;
use serde_json::Value;
use tokenizers::Tokenizer;

use super::bytes::Alphabet;
use super::guard::{Guard, free_marks};
use super::opening::Opening;
use super::skeletons::{Skeleton, SkeletonCache};
use super::template::ChatTemplate;
use super::{TextError, text_only};
use crate::reasoning::Mark;

/// The tokenizer and chat template of a Hugging Face folder.
pub struct TextCodec {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    /// The ids that steer a model, sorted: special tokens and the tokens that end a turn. The token
    /// for unknown words is not among them, because any text may produce it.
    control: Vec<u32>,
    stop: Vec<u32>,
    end_of_turn: Option<u32>,
    vocab: usize,
    /// How pieces spell bytes.
    alphabet: Alphabet,
    /// Every added token: system, user and tool messages must never produce one.
    all: Guard,
    /// Control tokens only: an assistant's message may contain other added tokens, for example
    /// `<think>`.
    special: Guard,
    opening: Opening,
    /// The ids of `</think>`, if the tokenizer can spell it alone.
    close: Vec<u32>,
    /// Marks of reasoning that are control tokens, so that no text shows them.
    marks: Vec<(u32, Mark)>,
    skeletons: SkeletonCache,
}

impl TextCodec {
    /// Returns the ids that a generation starts from.
    ///
    /// Without held ids: the messages in the chat template, ready for the answer. With held ids:
    /// these ids, then the bridge. The bridge is the end-of-turn token, if the held ids do not end
    /// with it, and the new messages. [`History::StripReasoning`] removes the reasoning of the
    /// previous turn from the held ids.
    pub fn render(&self, prompt: &TurnPrompt, history: History) -> Result<Vec<u32>, TextError> {
        let new = self.render_new(prompt.held.is_empty(), &prompt.messages)?;
        Ok(self.join(prompt, &new, history))
    }

    /// Returns the ids of a prompt's messages: a whole chat for a seat's `first` turn, else the
    /// bridge. This is the costly part of [`TextCodec::render`], and it depends on the messages
    /// alone.
    pub fn render_new(&self, first: bool, messages: &[Message]) -> Result<Vec<u32>, TextError> {
        if first {
            self.encode_chat(&[], messages, true)
        } else {
            self.bridge(messages, true)
        }
    }

    /// Returns the ids of a whole chat. With `generation`, the beginning of an answer follows.
    pub fn chat(&self, messages: &[Message], generation: bool) -> Result<Vec<u32>, TextError> {
        self.encode_chat(&[], messages, generation)
    }

    /// Returns the ids of a text outside a chat, after the tokens that the tokenizer puts before
    /// every text (for example Llama's first token). Text never becomes a control token. Reasoning
    /// marks become their tokens.
    pub fn plain(&self, text: &str) -> Result<Vec<u32>, TextError> {
        Ok([self.lead()?, self.unled(text)?].concat())
    }

    /// Returns the ids of [`TextCodec::plain`] without the tokens before every text.
    pub fn unled(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let [cut] = free_marks(&[text]).ok_or_else(no_marks)?;
        let mut ids = self.encode_pieces(&self.special.mark(text, cut), cut)?;
        ids.retain(|id| !self.is_control(*id));
        Ok(ids)
    }

    /// Returns the ids of a text that a client rendered with the chat template: control tokens that
    /// it spells become these tokens. With `lead`, the tokens that the tokenizer puts before every
    /// text come first, unless the text begins with them.
    pub fn rendered(&self, text: &str, lead: bool) -> Result<Vec<u32>, TextError> {
        let own = self.encode(text)?;
        let lead = if lead { self.lead()? } else { Vec::new() };
        let kept = if own.starts_with(&lead) { &[] } else { lead.as_slice() };
        Ok([kept, &own].concat())
    }

    /// Returns the first control token that a text spells.
    #[must_use]
    pub fn spelled_control(&self, text: &str) -> Option<&str> {
        self.special.first_in(text)
    }

    fn lead(&self) -> Result<Vec<u32>, TextError> {
        let ids = |special: bool| {
            let encoding = self.tokenizer.encode_fast("a", special);
            encoding.map_err(|e| TextError::Encode { message: e.to_string() })
        };
        let (with, without) = (ids(true)?, ids(false)?);
        // More ids may follow the text, for example an end token.
        let (with, own) = (with.get_ids(), without.get_ids());
        if own.is_empty() {
            // The tokenizer cannot spell this text, so only the leading ids remain.
            return Ok(with.to_vec());
        }
        let at = with.windows(own.len()).position(|ids| ids == own);
        Ok(with[..at.unwrap_or(0)].to_vec())
    }

    /// Returns the whole text of ids, control tokens included.
    #[must_use]
    pub fn spelled(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids, false).unwrap_or_default()
    }

    /// Returns the bytes of one token, also of a control token. Byte-level tokenizers and
    /// SentencePiece give the token's own bytes, even part of a character. Other tokenizers give
    /// the text of the token alone. Returns `None` if there are no bytes.
    #[must_use]
    pub fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        // The decoder treats added tokens like other tokens, so the alphabet applies to them too.
        let piece = self.tokenizer.id_to_token(id)?;
        let alone = || Some(self.spelled(&[id])).filter(|text| !text.contains('\u{FFFD}'));
        self.alphabet.bytes(&piece).or_else(|| alone().map(String::into_bytes))
    }

    /// Returns the ids of an answer as a model should sample it after this prompt: the text and the
    /// end of the turn. Reasoning marks in the text become their tokens; control tokens stay text.
    ///
    /// If the prompt left reasoning open ([`TextCodec::leaves_open`]), the text continues it and
    /// its own opening mark is dropped. A text without reasoning first closes it, because otherwise
    /// the whole answer would be reasoning.
    pub fn completion(&self, prompt: &[u32], answer: &str) -> Result<Vec<u32>, TextError> {
        let (begin, end) = (Mark::Open.text(), Mark::Close.text());
        let answer = match self.leaves_open(prompt) {
            true if answer.contains(end) => Cow::Borrowed(answer.trim_start().strip_prefix(begin).unwrap_or(answer)),
            true => Cow::Owned(format!("{end}\n\n{answer}")),
            false => Cow::Borrowed(answer),
        };
        let [cut] = free_marks(&[&answer]).ok_or_else(no_marks)?;
        let mut ids = self.encode_pieces(&self.special.mark(&answer, cut), cut)?;
        ids.extend(self.end_of_turn.or_else(|| self.stop.first().copied()));
        Ok(ids)
    }

    /// Returns the text of ids with reasoning and without control tokens.
    #[must_use]
    pub fn text(&self, ids: &[u32]) -> String {
        // The library hides only the special tokens of its own file; other files of the folder name
        // more.
        let shown: Vec<u32> = ids.iter().copied().filter(|id| !self.is_control(*id)).collect();
        self.tokenizer.decode(&shown, true).unwrap_or_else(|error| {
            tracing::error!(%error, "the tokenizer cannot decode sampled ids; the text is empty");
            String::new()
        })
    }

    /// Returns the ids that end a generation, with the chat template's end of turn first.
    #[must_use]
    pub fn stop_ids(&self) -> Vec<u32> {
        self.stop.clone()
    }

    /// Returns the highest id plus one.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.vocab
    }

    /// Returns the first token with an id that a model with `ids` ids does not have.
    #[must_use]
    pub fn first_beyond(&self, ids: usize) -> Option<(u32, String)> {
        let vocab = self.tokenizer.get_vocab(true).into_iter();
        let beyond = vocab.filter(|(_, id)| *id as usize >= ids);
        beyond.min_by_key(|(_, id)| *id).map(|(token, id)| (id, token))
    }

    /// Returns true if the id is a control token.
    #[must_use]
    pub fn is_control(&self, id: u32) -> bool {
        self.control.binary_search(&id).is_ok()
    }

    /// Returns true if the chat template shows the list of tools.
    #[must_use]
    pub fn lists_tools(&self) -> bool {
        let (question, tools) = (
            [Message::user("x")],
            serde_json::json!([{"type": "function", "function": {"name": "x",
            "description": "x", "parameters": {"type": "object", "properties": {}}}}]),
        );
        let render = |tools| self.template.render(&question, tools, false, true);
        matches!((render(Some(&tools)), render(None)), (Ok(with), Ok(without)) if with != without)
    }

    /// Returns the ids between an answer and the next one: the difference between two renderings of
    /// a made-up turn.
    fn bridge(&self, messages: &[Message], generation: bool) -> Result<Vec<u32>, TextError> {
        let contents: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
        let [_, _, question, answer] = free_marks(&contents).ok_or_else(no_marks)?;
        let lead = [message("user", question), message("assistant", answer)];
        self.encode_chat(&lead, messages, generation)
    }

    /// Renders and encodes messages. With `lead`, returns only what follows its last message.
    fn encode_chat(&self, lead: &[Message], messages: &[Message], generation: bool) -> Result<Vec<u32>, TextError> {
        let whole = messages;
        let (tools, messages) = split_tools(messages)?;
        if let Some(other) = messages.iter().find(|m| !m.is_said()) {
            return Err(TextError::Role {
                role: other.role.clone(),
            });
        }
        text_only(messages)?;
        let contents: Vec<&str> = whole.iter().map(|m| m.content.as_str()).collect();
        let [cut, place, ..] = free_marks::<4>(&contents).ok_or_else(no_marks)?;
        let tools = tools.map(|tools| self.all.mark_all(&tools, cut));
        let chat = Chat {
            lead,
            messages,
            tools: tools.as_ref(),
            generation,
        };
        let own = messages.iter().map(|m| self.guarded(m, cut));
        let ids = self.encode_pieces(&self.render_chat(chat, own)?, cut)?;
        // The same chat with harmless contents shows which control tokens belong here.
        let skeleton = self.skeleton(chat, place, cut)?;
        let control = ids.iter().filter(|id| self.is_control(**id));
        if control.eq(&skeleton.control) {
            return Ok(ids);
        }
        self.encode_apart(&skeleton.text, place, messages, cut)
    }

    /// Renders a chat with the given contents. With `lead`, returns only what follows its last
    /// message.
    fn render_chat(&self, chat: Chat<'_>, contents: impl Iterator<Item = String>) -> Result<String, TextError> {
        let Chat {
            lead,
            messages,
            tools,
            generation,
        } = chat;
        let own = messages
            .iter()
            .zip(contents)
            .map(|(message, content)| Message::new(message.role.clone(), content));
        let chat: Vec<Message> = lead.iter().cloned().chain(own).collect();
        // A bridge lists no tools. If it holds a tool's answer, the chat has tools.
        let bridged = !lead.is_empty() && messages.iter().any(|m| m.role == "tool");
        let text = self.template.render(&chat, tools, bridged, generation)?;
        Ok(match lead.last() {
            None => text,
            Some(last) => after(&text, &last.content)?.to_owned(),
        })
    }

    /// Returns the template's text around the contents, with `place` instead of each content.
    fn skeleton(&self, chat: Chat<'_>, place: char, cut: char) -> Result<Arc<Skeleton>, TextError> {
        let Chat {
            lead,
            messages,
            tools,
            generation,
        } = chat;
        let marks = || {
            messages.iter().map(|m| {
                if m.content.is_empty() {
                    String::new()
                } else {
                    place.into()
                }
            })
        };
        let marked = messages
            .iter()
            .zip(marks())
            .map(|(m, content)| Message::new(m.role.clone(), content));
        let listed = tools.map(|tools| Message::new(Message::TOOLS, tools.to_string()));
        let key = listed.into_iter().chain(lead.iter().cloned()).chain(marked);
        self.skeletons.of(key, (lead.len(), generation), || {
            let text = self.render_chat(chat, marks())?;
            let mut control = self.encode_pieces(&text, cut)?;
            control.retain(|id| self.is_control(*id));
            Ok(Skeleton { text, control })
        })
    }

    /// Encodes the skeleton and each content separately, and drops control tokens from contents.
    /// Some normalisers make control tokens of other texts, and this is the fallback for them.
    /// Tokens at the edges may differ from an encoding of the whole.
    fn encode_apart(
        &self,
        skeleton: &str,
        place: char,
        messages: &[Message],
        cut: char,
    ) -> Result<Vec<u32>, TextError> {
        let mut contents = messages.iter().filter(|m| !m.content.is_empty());
        let mut ids = Vec::new();
        for (i, piece) in skeleton.split(place).enumerate() {
            if let Some(message) = (i > 0).then(|| contents.next()).flatten() {
                let content = self.encode_pieces(&self.guarded(message, cut), cut)?;
                ids.extend(content.into_iter().filter(|id| !self.is_control(*id)));
            }
            ids.extend(self.encode_pieces(piece, cut)?);
        }
        Ok(ids)
    }

    fn guarded(&self, message: &Message, cut: char) -> String {
        let guard = if message.role == "assistant" {
            &self.special
        } else {
            &self.all
        };
        guard.mark(&message.content, cut)
    }

    fn encode_pieces(&self, text: &str, cut: char) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::new();
        for piece in text.split(cut) {
            ids.extend(self.encode(piece)?);
        }
        Ok(ids)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let encoding = self.tokenizer.encode_fast(text, false);
        Ok(encoding
            .map_err(|e| TextError::Encode { message: e.to_string() })?
            .get_ids()
            .to_vec())
    }
}

/// The input of a rendering.
#[derive(Clone, Copy)]
struct Chat<'a> {
    /// Messages that are rendered and then cut off.
    lead: &'a [Message],
    messages: &'a [Message],
    tools: Option<&'a Value>,
    generation: bool,
}

/// Separates the list of tools, if the messages begin with one.
fn split_tools(messages: &[Message]) -> Result<(Option<Value>, &[Message]), TextError> {
    match messages.split_first() {
        Some((first, rest)) if first.role == Message::TOOLS => {
            let list = serde_json::from_str(&first.content).map_err(|error| TextError::Template {
                message: format!("the list of tools is not JSON: {error}"),
            })?;
            Ok((Some(list), rest))
        }
        _ => Ok((None, messages)),
    }
}

fn message(role: &str, content: char) -> Message {
    Message::new(role, content)
}

fn after<'a>(text: &'a str, mark: &str) -> Result<&'a str, TextError> {
    let lost = || TextError::Template {
        message: "it leaves out the assistant's text".into(),
    };
    text.rfind(mark).map(|at| &text[at + mark.len()..]).ok_or_else(lost)
}

fn no_marks() -> TextError {
    TextError::Encode {
        message: "it contains every private-use character".into(),
    }
}

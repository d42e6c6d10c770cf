//! Reads a client's request: the fields that completions and chats share.
//!
//! Every field is either supported or rejected by its name. Only labels are ignored, because they
//! have no effect anywhere.

use broker::protocol::turn::{Message, Sampling};
use configs::{LEAST_TEMPERATURE, SamplingConfig};
use serde_json::{Value, json};

use super::json_fields::JsonFields;
use super::request_error::RequestError;
use super::stopping::{Stopping, stopping};
use super::{chat, completions};

/// The endpoint that a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    Completion,
    Chat,
}

/// The start of a generation.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    Chat {
        messages: Vec<Message>,
        /// True if the assistant's answer is begun.
        generation: bool,
    },
}

/// A request that was read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientRequest {
    pub kind: Endpoint,
    pub model: String,
    pub inputs: Vec<Prompt>,
    /// The number of choices per prompt.
    pub n: usize,
    /// The sampling parameters, without stop texts.
    pub sampling: Sampling,
    pub stop: Stopping,
    /// True if each choice's text begins with its prompt's text.
    pub echo: bool,
    pub seed: Option<u64>,
    pub stream: bool,
    pub include_usage: bool,
    /// True if the log-probs of the chosen tokens are wanted.
    pub logprobs: bool,
    /// The number of most likely tokens that are wanted in addition, in each place.
    pub top: u8,
    pub token_ids: bool,
    /// True if a text begins with the tokens that the tokenizer puts before every text.
    pub lead: bool,
}

/// OpenAI's own default for completions.
const COMPLETION_TOKENS: u32 = 16;
const MOST_CHOICES: i64 = 128;
/// The maximum of most likely tokens in one place: OpenAI's limit for chats, and vLLM's for both.
/// OpenAI's own limit for completions is 5.
pub(super) const MOST_LIKELY: i64 = 20;
/// Fields that only name a user or a purpose, and have no effect.
const LABELS: [&str; 7] = [
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "request_id",
    "cache_salt",
];
const LEAVE: &str = "leave it out";

impl ClientRequest {
    /// Reads a body; `usual` holds the values of absent fields.
    ///
    /// # Errors
    /// Fails with the name of a field that is wrong or not supported.
    pub fn read(kind: Endpoint, body: &[u8], usual: &SamplingConfig) -> Result<Self, RequestError> {
        let mut fields = JsonFields::read(body)?;
        let Some(model) = fields.text("model")? else {
            return Err(RequestError::wrong(
                "model",
                "is missing: write the agent's name, as GET /v1/models tells",
            ));
        };
        let inputs = match kind {
            Endpoint::Completion => completions::prompts(&mut fields)?,
            Endpoint::Chat => vec![chat::conversation(&mut fields)?],
        };
        let (stream, include_usage) = stream(&mut fields)?;
        let (logprobs, top) = match kind {
            Endpoint::Completion => completions::logprobs(&mut fields)?,
            Endpoint::Chat => chat::logprobs(&mut fields)?,
        };
        let echo = match kind {
            Endpoint::Completion => fields.flag("echo")?,
            Endpoint::Chat => false,
        };
        let ask = Self {
            kind,
            model,
            inputs,
            n: fields.whole("n", 1, MOST_CHOICES)?.unwrap_or(1) as usize,
            sampling: sampling(&mut fields, kind, echo, usual)?,
            stop: stopping(&mut fields)?,
            echo,
            seed: fields.whole("seed", i64::MIN, i64::MAX)?.map(|seed| seed as u64),
            stream,
            include_usage,
            logprobs,
            top,
            token_ids: fields.flag("return_token_ids")?,
            lead: lead(&mut fields, kind)?,
        };
        LABELS.iter().for_each(|label| drop(fields.take(label)));
        unsupported(&mut fields)?;
        fields.end()?;
        Ok(ask)
    }

    /// The number of most likely tokens per place of the prompt; `None` unless the log-probs of the
    /// prompts' own tokens are wanted.
    #[must_use]
    pub fn prompt_top(&self) -> Option<u8> {
        (self.echo && self.logprobs).then_some(self.top)
    }
}

/// Reads `add_special_tokens`. A chat's template writes all tokens of the chat itself.
fn lead(fields: &mut JsonFields, kind: Endpoint) -> Result<bool, RequestError> {
    if kind == Endpoint::Chat {
        let advice = "the chat template writes every token of a chat; send false, or leave it out";
        fields.only("add_special_tokens", &[json!(false)], advice)?;
        return Ok(true);
    }
    let without = fields.is_false("add_special_tokens");
    fields.flag("add_special_tokens")?;
    Ok(!without)
}

fn stream(fields: &mut JsonFields) -> Result<(bool, bool), RequestError> {
    let stream = fields.flag("stream")?;
    let Some(options) = fields.take("stream_options") else {
        return Ok((stream, false));
    };
    if !stream {
        return Err(RequestError::wrong(
            "stream_options",
            "is for streams: send stream = true, or leave it out",
        ));
    }
    let mut options = JsonFields::of(options, "stream_options")?;
    let include_usage = options.flag("include_usage")?;
    options.only("include_obfuscation", &[json!(false)], LEAVE)?;
    options.only("continuous_usage_stats", &[json!(false)], LEAVE)?;
    options.end()?;
    Ok((stream, include_usage))
}

fn sampling(
    fields: &mut JsonFields,
    kind: Endpoint,
    echo: bool,
    usual: &SamplingConfig,
) -> Result<Sampling, RequestError> {
    // A temperature near 0 makes infinite logits, which would end every generation of the engine.
    let temperature = |t: f32| t == 0.0 || (LEAST_TEMPERATURE..=10.0).contains(&t);
    let temperature = fields.number("temperature", temperature, "0, or a number from 0.01 to 10")?;
    let top_p = fields.number("top_p", |p| p > 0.0 && p <= 1.0, "a number above 0 and at most 1")?;
    let min_p = fields.number("min_p", |p| (0.0..=1.0).contains(&p), "a number from 0 to 1")?;
    let top_k = fields.whole("top_k", -1, i64::from(u32::MAX))?;
    Ok(Sampling {
        temperature: temperature.unwrap_or(usual.temperature),
        top_p: top_p.unwrap_or(usual.top_p),
        // Both -1 and 0 select all tokens.
        top_k: top_k.map_or(usual.top_k, |k| k.max(0) as u32),
        min_p: min_p.unwrap_or(usual.min_p),
        max_new_tokens: max_tokens(fields, kind, echo)?.unwrap_or(match kind {
            Endpoint::Completion => COMPLETION_TOKENS,
            Endpoint::Chat => usual.max_new_tokens,
        }),
        // HTTP clients are limited by `http.context` instead.
        max_context: None,
        stop: Vec::new(),
    })
}

/// A choice that begins with its prompt may have no generated token.
fn max_tokens(fields: &mut JsonFields, kind: Endpoint, echo: bool) -> Result<Option<u32>, RequestError> {
    let least = i64::from(!echo);
    let mut read = |field: &str| fields.whole(field, least, i64::from(i32::MAX));
    let old = read("max_tokens")?;
    let new = if kind == Endpoint::Chat {
        read("max_completion_tokens")?
    } else {
        None
    };
    match (old, new) {
        (Some(old), Some(new)) if old != new => Err(RequestError::wrong(
            "max_tokens",
            format!("is {old} and max_completion_tokens {new}: send one of them"),
        )),
        (old, new) => Ok(new.or(old).map(|tokens| tokens as u32)),
    }
}

/// Rejects fields of other servers that are not supported here. Each comes with the values that
/// have no effect.
fn unsupported(fields: &mut JsonFields) -> Result<(), RequestError> {
    let zero = [json!(0)];
    let off = [json!(false)];
    let none = [json!([])];
    let idle: [(&str, &[Value], &str); 37] = [
        (
            "frequency_penalty",
            &zero,
            "sampling keeps to the model's own distribution; leave it out",
        ),
        (
            "presence_penalty",
            &zero,
            "sampling keeps to the model's own distribution; leave it out",
        ),
        (
            "repetition_penalty",
            &[json!(1)],
            "sampling keeps to the model's own distribution; leave it out",
        ),
        (
            "logit_bias",
            &[json!({})],
            "sampling keeps to the model's own distribution; leave it out",
        ),
        ("best_of", &[json!(1)], "ask for n choices and choose among them"),
        // Completions have read the field by now.
        (
            "echo",
            &off,
            "it is for /v1/completions; the prompt's tokens come back with return_token_ids",
        ),
        ("suffix", &[json!("")], LEAVE),
        ("tools", &none, "agents call no tools; leave it out"),
        (
            "tool_choice",
            &[json!("none"), json!("auto")],
            "agents call no tools; leave it out",
        ),
        (
            "parallel_tool_calls",
            &[json!(true), json!(false)],
            "agents call no tools; leave it out",
        ),
        ("functions", &none, "agents call no functions; leave it out"),
        (
            "function_call",
            &[json!("none"), json!("auto")],
            "agents call no functions; leave it out",
        ),
        (
            "response_format",
            &[json!({"type": "text"})],
            "text is not held to a format; leave it out",
        ),
        ("modalities", &[json!(["text"])], "there is text alone; leave it out"),
        ("audio", &[], "there is text alone; leave it out"),
        ("prediction", &[], LEAVE),
        ("reasoning_effort", &[], LEAVE),
        ("verbosity", &[json!("medium")], LEAVE),
        ("detokenize", &[json!(true)], LEAVE),
        ("include_reasoning", &[json!(true)], LEAVE),
        (
            "return_tokens_as_token_ids",
            &off,
            "token ids come back with return_token_ids",
        ),
        (
            "truncate_prompt_tokens",
            &[json!(-1)],
            "a prompt is never cut; leave it out",
        ),
        ("web_search_options", &[], LEAVE),
        ("service_tier", &[json!("auto"), json!("default")], LEAVE),
        ("store", &off, "nothing is stored; leave it out"),
        ("ignore_eos", &off, LEAVE),
        ("min_tokens", &zero, LEAVE),
        (
            "skip_special_tokens",
            &[json!(true)],
            "control tokens come back with return_token_ids",
        ),
        (
            "prompt_logprobs",
            &off,
            "send echo = true with logprobs to /v1/completions, which tells those of the prompt too",
        ),
        ("continue_final_message", &off, "send its ids to /v1/completions"),
        ("spaces_between_special_tokens", &[json!(true)], LEAVE),
        (
            "chat_template_kwargs",
            &[json!({})],
            "agents.NAME.template_args of the run applies to every client; leave it out",
        ),
        (
            "bad_words",
            &none,
            "sampling keeps to the model's own distribution; leave it out",
        ),
        ("use_beam_search", &off, "answers are sampled; leave it out"),
        ("length_penalty", &[json!(1)], "answers are sampled; leave it out"),
        ("priority", &zero, "requests are served in their order; leave it out"),
        // Chats have read the field by now.
        (
            "top_logprobs",
            &zero,
            "completions ask for the most likely tokens by logprobs = how many of them",
        ),
    ];
    idle.iter()
        .try_for_each(|(field, idle, advice)| fields.only(field, idle, advice))
}

#[cfg(test)]
mod tests;

//! Limits the size of one part of an answer: an answer without a stream waits in memory until it is
//! sent, and so does a stream's event.

use super::client_request::{ClientRequest, Endpoint, Prompt};
use super::request_error::RequestError;

/// The maximum of most-likely log-probs in one answer without a stream: each takes hundreds of
/// bytes until it is sent.
const MOST_LOGPROBS: usize = 1 << 18;
/// The maximum of prompt text, in bytes, and of prompt ids that all choices of an answer without a
/// stream repeat. Each id takes 32 bytes until it is sent, so both limits stand for 16 MiB.
const MOST_ECHOED: usize = 16 << 20;
const MOST_REPEATED: usize = 1 << 19;
/// The assumed bytes of a token's text: few tokens have more.
const TOKEN_BYTES: usize = 16;

impl ClientRequest {
    /// Checks the log-probs of an answer with `choices` choices.
    ///
    /// # Errors
    /// Fails if an answer without a stream would hold too many most-likely log-probs.
    pub fn fits(&self, choices: usize) -> Result<(), RequestError> {
        let tokens = choices.saturating_mul(self.sampling.max_new_tokens as usize);
        let count = tokens.saturating_mul(self.top.into());
        if self.stream || count <= MOST_LOGPROBS {
            return Ok(());
        }
        let field = match self.kind {
            Endpoint::Completion => "logprobs",
            Endpoint::Chat => "top_logprobs",
        };
        Err(RequestError::wrong(
            field,
            format!(
                "of all tokens would be {count} log-probs in one answer: stream it, or ask for fewer tokens, choices or {field}"
            ),
        ))
    }

    /// Checks the log-probs of a prompt of `longest` tokens, which a stream sends in one event.
    ///
    /// # Errors
    /// Fails if one event would hold too many.
    pub fn prompt_fits(&self, longest: usize) -> Result<(), RequestError> {
        let count = longest.saturating_mul(self.top.max(1).into());
        if self.stream && self.prompt_top().is_some() && count > MOST_LOGPROBS {
            return Err(RequestError::wrong(
                "echo",
                format!(
                    "would tell {count} log-probs of a prompt in one event, and {MOST_LOGPROBS} are the most: ask for shorter prompts, or fewer logprobs"
                ),
            ));
        }
        Ok(())
    }

    /// Checks the prompts, of `read` tokens together, that an answer without a stream would repeat
    /// with every choice.
    ///
    /// # Errors
    /// Fails if `echo`, with or without log-probs, or `return_token_ids` would repeat too much.
    pub fn repeats_fit(&self, read: usize) -> Result<(), RequestError> {
        if self.stream || self.kind == Endpoint::Chat {
            return Ok(());
        }
        let text = |input: &Prompt| match input {
            Prompt::Text(text) => text.len(),
            Prompt::Ids(ids) => ids.len().saturating_mul(TOKEN_BYTES),
            Prompt::Chat { .. } => 0,
        };
        let texts: usize = self.inputs.iter().map(text).sum();
        let scores = read.saturating_mul(self.top.max(1).into());
        for (wanted, field, repeated, most, what) in [
            (self.echo, "echo", texts, MOST_ECHOED, "bytes of prompts"),
            (
                self.token_ids,
                "return_token_ids",
                read,
                MOST_REPEATED,
                "ids of prompts",
            ),
            (
                self.prompt_top().is_some(),
                "echo",
                scores,
                MOST_LOGPROBS,
                "log-probs of prompts",
            ),
        ] {
            let repeated = repeated.saturating_mul(self.n);
            if wanted && repeated > most {
                let advice = "stream it, ask for fewer choices or shorter prompts, or leave this out";
                return Err(RequestError::wrong(
                    field,
                    format!("would repeat {repeated} {what} in one answer, and {most} are the most: {advice}"),
                ));
            }
        }
        Ok(())
    }
}

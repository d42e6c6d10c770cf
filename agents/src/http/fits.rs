//! How much one piece of an answer may hold: what is not streamed waits in memory until it is sent, and so does an event of a stream.

use super::ask::{Ask, Input, Kind};
use super::refusal::Refusal;

/// Log-probs of most likely tokens in one answer that is not streamed, at most: each takes hundreds of bytes until it is sent.
const MOST_TOLD: usize = 1 << 18;
/// What all choices of one answer that is not streamed repeat of their prompts, at most: bytes of text, and token ids, of which
/// each takes 32 bytes until it is sent. 16 MiB of each.
const MOST_ECHOED: usize = 16 << 20;
const MOST_REPEATED: usize = 1 << 19;
/// What a token's text is reckoned at: few have more bytes.
const TOKEN_BYTES: usize = 16;

impl Ask {
    /// Judges how much an answer of `choices` would tell in one piece.
    ///
    /// # Errors
    /// More log-probs of most likely tokens than are kept until the end.
    pub fn fits(&self, choices: usize) -> Result<(), Refusal> {
        let tokens = choices.saturating_mul(self.sampling.max_new_tokens as usize);
        let told = tokens.saturating_mul(self.top.into());
        if self.stream || told <= MOST_TOLD {
            return Ok(());
        }
        let field = match self.kind {
            Kind::Completion => "logprobs",
            Kind::Chat => "top_logprobs",
        };
        Err(Refusal::wrong(
            field,
            format!(
                "of all tokens would be {told} log-probs in one answer: stream it, or ask for fewer tokens, choices or {field}"
            ),
        ))
    }

    /// Judges the log-probs of a prompt of `longest` tokens, which a stream tells in one event.
    ///
    /// # Errors
    /// More than an answer in one piece may have.
    pub fn prompt_fits(&self, longest: usize) -> Result<(), Refusal> {
        let told = longest.saturating_mul(self.top.max(1).into());
        if self.stream && self.prompt_top().is_some() && told > MOST_TOLD {
            return Err(Refusal::wrong(
                "echo",
                format!(
                    "would tell {told} log-probs of a prompt in one event, and {MOST_TOLD} are the most: ask for shorter prompts, or fewer logprobs"
                ),
            ));
        }
        Ok(())
    }

    /// Judges how much of the prompts, of `read` tokens together, an answer would repeat in one piece: once with every choice.
    ///
    /// # Errors
    /// More than is kept until the end, by `echo`, with log-probs or without, or `return_token_ids`.
    pub fn repeats_fit(&self, read: usize) -> Result<(), Refusal> {
        if self.stream || self.kind == Kind::Chat {
            return Ok(());
        }
        let text = |input: &Input| match input {
            Input::Text(text) => text.len(),
            Input::Ids(ids) => ids.len().saturating_mul(TOKEN_BYTES),
            Input::Chat { .. } => 0,
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
                MOST_TOLD,
                "log-probs of prompts",
            ),
        ] {
            let repeated = repeated.saturating_mul(self.n);
            if wanted && repeated > most {
                let advice = "stream it, ask for fewer choices or shorter prompts, or leave this out";
                return Err(Refusal::wrong(
                    field,
                    format!("would repeat {repeated} {what} in one answer, and {most} are the most: {advice}"),
                ));
            }
        }
        Ok(())
    }
}

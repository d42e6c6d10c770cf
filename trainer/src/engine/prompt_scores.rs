//! Log-probs of a prompt's own tokens: the model's score of a given text.
//!
//! A prompt with scores is computed in pieces ([`super::fill`]) from its first token: the prefix
//! cache keeps keys and values, but no states for the head. The head runs after each piece, over a
//! chunk of tokens at a time, and the log-probs accumulate. If new weights arrive between two
//! pieces, they score the later piece, and the spans record this. A request without this question
//! costs nothing extra.

use std::sync::Arc;

use broker::ids::WeightVersion;
use broker::protocol::engine::TopLogprob;
use broker::protocol::turn::VersionSpan;

use crate::model::Scored;

/// Log-probs of all tokens of a prompt except the first, which has no context.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptScores {
    /// f32 log-softmax(logits) over the full vocabulary at temperature 1, whatever the temperature
    /// of the request. One for each token from the second on.
    pub logprobs: Vec<f32>,
    /// The most likely tokens in each of these places, most likely first, the lower id first among
    /// equals. Empty if the request asked for none.
    pub top: Vec<Vec<TopLogprob>>,
    /// The weights that computed each log-prob, by the tokens' places in the prompt: from 1,
    /// without gaps.
    pub spans: Vec<VersionSpan>,
}

impl PromptScores {
    pub(super) fn take(&mut self, scored: Scored, version: WeightVersion) {
        self.logprobs.extend(scored.logprobs);
        self.top.extend(scored.top);
        let start = self.spans.last().map_or(1, |span| span.end);
        let end = self.logprobs.len() as u32 + 1;
        match self.spans.last_mut() {
            Some(span) if span.version == version => span.end = end,
            _ => self.spans.push(VersionSpan { version, start, end }),
        }
    }
}

/// The scores of a prompt that is being computed.
#[derive(Debug)]
pub(super) struct Scoring {
    /// The number of most likely tokens for each place.
    pub(super) top: u8,
    pub(super) made: Arc<PromptScores>,
}

impl Scoring {
    pub(super) fn new(top: u8) -> Self {
        Self {
            top,
            made: Arc::default(),
        }
    }

    /// Returns true if the scores hold at least `top` most likely tokens for each place.
    pub(super) fn serves(&self, top: u8) -> bool {
        self.top >= top
    }

    /// Discards the scores, because the prompt is computed again.
    pub(super) fn restart(&mut self) {
        self.made = Arc::default();
    }

    /// Returns the scores for a request with this `prompt_top`. Requests with equal questions share
    /// them.
    pub(super) fn of(&self, prompt_top: Option<u8>) -> Option<Arc<PromptScores>> {
        let wanted = prompt_top?;
        if wanted == self.top {
            return Some(self.made.clone());
        }
        let PromptScores { logprobs, top, spans } = &*self.made;
        let places: &[Vec<TopLogprob>] = if wanted == 0 { &[] } else { top };
        let first = |place: &Vec<TopLogprob>| place.iter().take(wanted.into()).copied().collect();
        Some(Arc::new(PromptScores {
            logprobs: logprobs.clone(),
            top: places.iter().map(first).collect(),
            spans: spans.clone(),
        }))
    }
}

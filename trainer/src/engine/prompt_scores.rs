//! Log-probs of a prompt's own tokens, for requests that ask for them: what a text that is there already is worth to the model.
//!
//! Such a prompt is computed in pieces ([`super::filling`]) from its first token on: what the prefix cache keeps are keys and values, and
//! no states that the head could be applied to. Behind each piece it is, to a chunk of tokens at a time, and the log-probs add up. Weights
//! that come between two pieces make those of the later one, as they make a generation's later tokens: the spans say so. Who asks for
//! nothing pays nothing.

use std::sync::Arc;

use broker::ids::WeightVersion;
use broker::protocol::engine::TopLogprob;
use broker::protocol::turn::VersionSpan;

use crate::model::Scored;

/// Log-probs of a prompt's tokens, of all but the first, before which there is nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptScores {
    /// f32 log-softmax(logits) over the full vocabulary, whatever the temperature of the request: one for each token from the second on.
    pub logprobs: Vec<f32>,
    /// In the place of each of these the most likely tokens, likeliest first, the lower id first among equals; empty if the request asked
    /// for none.
    pub top: Vec<Vec<TopLogprob>>,
    /// Which weights computed which, by the tokens' places in the prompt: from 1 on, without gaps.
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

/// Those of a prompt that is being computed.
#[derive(Debug)]
pub(super) struct Scoring {
    /// Most likely tokens of each place.
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

    /// Whether a request for so many of the most likely tokens finds them here.
    pub(super) fn serves(&self, top: u8) -> bool {
        self.top >= top
    }

    /// The prompt is computed anew.
    pub(super) fn restart(&mut self) {
        self.made = Arc::default();
    }

    /// What a request is given of them, if it asks for any; those who ask for the same share it.
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

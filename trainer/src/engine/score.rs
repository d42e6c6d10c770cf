//! Scores the tokens of prompts under way.

use std::sync::Arc;

use tch::Tensor;

use super::{Engine, EngineError};

impl Engine {
    /// Records the log-probs of newly computed prompt tokens. `counts[i]` is the number of new
    /// tokens of prompt `i`. `states` holds the states before the final norm, one prompt after the
    /// other.
    pub(super) fn score(&mut self, states: &Tensor, counts: &[usize]) -> Result<(), EngineError> {
        let (version, fixed) = (self.version(), self.options.deterministic);
        let mut next = 0;
        for (filling, &count) in self.filling.iter_mut().zip(counts) {
            let first = next as i64;
            next += count;
            let Some((scoring, targets)) = filling.foretold(count) else {
                continue;
            };
            let states = states.f_narrow(0, first, targets.len() as i64)?;
            let scored = self.decoder.score(&states, targets, scoring.top.into(), fixed)?;
            if !scored.logprobs.iter().all(|logprob| logprob.is_finite()) {
                let requests = filling.members.iter().map(|request| request.id).collect();
                return Err(EngineError::NotFinite { version, requests });
            }
            Arc::make_mut(&mut scoring.made).take(scored, version);
        }
        Ok(())
    }
}

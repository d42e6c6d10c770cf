//! A prompt that is being computed in pieces.

use std::sync::Arc;
use std::time::Instant;

use broker::ids::{RequestId, WeightVersion};

use super::generation::Generation;
use super::prompt_scores::Scoring;
use super::request::GenRequest;
use crate::model::RowKv;

/// A prompt that is being computed, and the requests that wait for it.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) ids: Arc<[u32]>,
    pub(super) kv: RowKv,
    pub(super) begun: Instant,
    /// The oldest weights that computed any part of it.
    pub(super) oldest: WeightVersion,
    pub(super) members: Vec<GenRequest>,
    /// A returning generation that continues after these tokens.
    pub(super) back: Option<Generation>,
    /// The number of tokens that came from the prefix cache.
    pub(super) reused: usize,
    /// Log-probs of its own tokens, if a request asks for them.
    pub(super) scoring: Option<Scoring>,
}

impl Filling {
    /// The number of tokens still to compute.
    pub(super) fn left(&self) -> usize {
        self.ids.len() - self.kv.filled()
    }

    /// The number of slots that its requests will take.
    pub(super) fn slots(&self) -> usize {
        self.with_slots().count()
    }

    /// The requests that will take slots.
    pub(super) fn with_slots(&self) -> impl Iterator<Item = &GenRequest> {
        let begin = self.members.iter().filter(|request| request.takes_slot());
        begin.chain(self.back.iter().map(|row| &row.request))
    }

    /// The number of requests that wait for it.
    pub(super) fn pending(&self) -> usize {
        self.members.len() + usize::from(self.back.is_some())
    }

    /// Returns the prompt tokens that the last `count` computed tokens predict, and the place to
    /// record their scores. `None` if no request asks for scores, or no token follows.
    pub(super) fn foretold(&mut self, count: usize) -> Option<(&mut Scoring, &[u32])> {
        let filled = self.kv.filled();
        let next = filled.checked_sub(count)? + 1..self.ids.len().min(filled + 1);
        let targets = self.ids.get(next).filter(|targets| !targets.is_empty())?;
        Some((self.scoring.as_mut()?, targets))
    }

    pub(super) fn is_of(&self, id: RequestId) -> bool {
        self.back.as_ref().is_some_and(|row| row.request.id == id)
    }

    /// Starts the computation again with other weights, from the first token.
    pub(super) fn restart(&mut self, version: WeightVersion) {
        self.kv.rewind();
        self.reused = 0;
        self.oldest = version;
        self.scoring.iter_mut().for_each(Scoring::restart);
    }
}

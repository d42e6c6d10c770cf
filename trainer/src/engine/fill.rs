//! Computes prompts in pieces.
//!
//! Three kinds of prompt take this way: long ones, so that they do not delay decoding (chunked
//! prefill: Agrawal et al., "Sarathi-Serve", arXiv:2403.02310), prompts that begin with an entry of
//! the prefix cache, and prompts with a request for their own log-probs.

use std::sync::Arc;
use std::time::Instant;

use broker::ids::RequestId;
use broker::protocol::turn::Finish;
use tch::Tensor;

use super::choose::{Chosen, Draw, choose};
use super::filling::Filling;
use super::generation::Generation;
use super::prompt_scores::Scoring;
use super::{Engine, EngineError, GenRequest};
use crate::model::{Piece, Prefixes, RowKv};

impl Engine {
    /// The number of slots that the prompts under way will take.
    pub(super) fn slots_promised(&self) -> usize {
        self.filling.iter().map(Filling::slots).sum()
    }

    /// The number of tokens that the prompts under way still need.
    pub(super) fn tokens_promised(&self) -> usize {
        self.filling.iter().map(Filling::left).sum()
    }

    /// The number of prompt tokens that the engine would compute if the request began now.
    pub(super) fn cost(&self, request: &GenRequest) -> usize {
        let prompt = &request.prompt_ids;
        if self.is_filling(prompt, request.prompt_top) {
            0
        } else if request.prompt_top.is_some() {
            prompt.len()
        } else {
            self.prefix_cache.cost(prompt)
        }
    }

    /// Returns true if a prompt is, or must be, computed in pieces.
    pub(super) fn in_pieces(&self, prompt: &[u32]) -> bool {
        self.options.deterministic
            || prompt.len() > self.options.prefill_tokens
            || self.is_filling(prompt, None)
            || self.prefix_cache.find(prompt).is_some()
    }

    fn is_filling(&self, prompt: &[u32], prompt_top: Option<u8>) -> bool {
        self.filling
            .iter()
            .any(|filling| *filling.ids == *prompt && self.may_join(filling, prompt_top))
    }

    /// Returns true if requests with the same prompt may wait for this computation. When requests
    /// must see one version only (deterministic or pinned), it must have begun with the current
    /// weights. When the request asks for log-probs of the prompt (`prompt_top`), it must record
    /// them.
    fn may_join(&self, filling: &Filling, prompt_top: Option<u8>) -> bool {
        let noted = |top| filling.scoring.as_ref().is_some_and(|scoring| scoring.serves(top));
        filling.back.is_none()
            && (!self.of_one_version() || filling.oldest == self.version())
            && prompt_top.is_none_or(noted)
    }

    /// Begins to compute a prompt in pieces. Requests for a prompt that is already under way join
    /// it.
    pub(super) fn fill(&mut self, ids: Arc<[u32]>, mut members: Vec<GenRequest>) -> Result<(), EngineError> {
        let prompt_top = members.iter().filter_map(|request| request.prompt_top).max();
        let same = self
            .filling
            .iter()
            .position(|filling| filling.ids == ids && self.may_join(filling, prompt_top));
        if let Some(same) = same.and_then(|at| self.filling.get_mut(at)) {
            same.members.append(&mut members);
            return Ok(());
        }
        let mut filling = self.begin_filling(ids, prompt_top)?;
        filling.members = members;
        self.filling.push_back(filling);
        Ok(())
    }

    /// Begins to compute the cache of a generation that returns.
    pub(super) fn fill_again(&mut self, row: Generation) -> Result<(), EngineError> {
        let mut filling = self.begin_filling(row.cached_ids().into(), None)?;
        filling.back = Some(row);
        self.filling.push_back(filling);
        Ok(())
    }

    fn begin_filling(&mut self, ids: Arc<[u32]>, prompt_top: Option<u8>) -> Result<Filling, EngineError> {
        let (device, kind) = (self.decoder.device(), self.cache.kind());
        let new = if self.options.deterministic {
            RowKv::in_buckets
        } else {
            RowKv::new
        };
        let mut kv = new(self.decoder.shape(), ids.len(), device, kind)?;
        let (mut oldest, mut reused) = (self.version(), 0);
        // A prompt that records its log-probs is computed from its first token.
        if prompt_top.is_none()
            && let Some(hit) = self.prefix_cache.find(&ids)
            && let Some((known, from)) = self.prefix_cache.take(hit)
        {
            kv.begin_with(known, hit.length)?;
            (oldest, reused) = (oldest.min(from), hit.length);
        }
        Ok(Filling {
            ids,
            kv,
            begun: Instant::now(),
            oldest,
            members: Vec::new(),
            back: None,
            reused,
            scoring: prompt_top.map(Scoring::new),
        })
    }

    /// Computes up to `tokens` more tokens of the prompts under way, oldest prompt first. Complete
    /// prompts get their first tokens and slots.
    pub(super) fn fill_on(&mut self, tokens: usize) -> Result<(), EngineError> {
        let mut left = tokens;
        let mut pieces = Vec::new();
        for Filling { ids, kv, .. } in &mut self.filling {
            let from = kv.filled();
            let count = left.min(ids.len() - from);
            if count == 0 {
                break;
            }
            left -= count;
            pieces.push(Piece {
                kv,
                ids: &ids[from..from + count],
            });
        }
        if pieces.is_empty() {
            return Ok(());
        }
        let counts: Vec<usize> = pieces.iter().map(|piece| piece.ids.len()).collect();
        let extended = if self.options.deterministic {
            self.decoder.extend_fixed(&mut pieces)?
        } else {
            self.decoder.extend(&mut pieces)?
        };
        drop(pieces);
        self.score(&extended.states, &counts)?;
        // Every prompt in the batch except perhaps the last is complete.
        let whole = self.filling.iter().take_while(|filling| filling.left() == 0).count();
        if whole == 0 {
            return Ok(());
        }
        let choices = self.first_choices(&extended.logits, whole)?;
        let done: Vec<Filling> = self.filling.drain(..whole).collect();
        self.seat_filled(done, choices)
    }

    /// Chooses first tokens for the requests that want one, in their order.
    fn first_choices(&self, logits: &Tensor, whole: usize) -> Result<Vec<Chosen>, EngineError> {
        let draws: Vec<Draw> = self
            .filling
            .iter()
            .take(whole)
            .enumerate()
            .flat_map(|(row, filling)| {
                let speaking = filling.members.iter().filter(|request| request.max_new_tokens > 0);
                speaking.map(move |request| Draw::first(row, request))
            })
            .collect();
        choose(&logits.f_narrow(0, 0, whole as i64)?, &draws)?.map_err(|requests| EngineError::NotFinite {
            version: self.version(),
            requests,
        })
    }

    /// Gives first tokens to the waiting requests. Requests that continue get slots after the live
    /// rows.
    fn seat_filled(&mut self, whole: Vec<Filling>, choices: Vec<Chosen>) -> Result<(), EngineError> {
        let (version, max_context) = (self.version(), self.decoder.shape().max_context);
        let mut choices = choices.into_iter().peekable();
        for Filling {
            ids,
            kv,
            begun,
            oldest,
            members,
            back,
            reused,
            scoring,
        } in whole
        {
            let mut rows = Vec::new();
            if let Some(mut row) = back {
                row.oldest_kv = oldest;
                rows.push(row);
            }
            for request in members {
                let choice = choices.next_if(|_| request.max_new_tokens > 0);
                let mut row = Generation::new(request, version, begun);
                (row.oldest_kv, row.reused) = (oldest, reused);
                row.prompt = scoring.as_ref().and_then(|scoring| scoring.of(row.request.prompt_top));
                // A request without new tokens has its prompt's log-probs now, and ends.
                let end = choice.map_or(Some(Finish::Length), |choice| row.push(choice, version, max_context));
                match end {
                    Some(finish) => self.done.push(row.finish(finish)),
                    None => rows.push(row),
                }
            }
            self.seat_rows(rows, ids.len(), kv)?;
        }
        Ok(())
    }

    /// Assigns slots to rows with the same prompt; `kv` holds its keys and values.
    fn seat_rows(&mut self, mut rows: Vec<Generation>, length: usize, kv: RowKv) -> Result<(), EngineError> {
        if rows.is_empty() {
            return Ok(());
        }
        let live = self.rows.len();
        let may_share = !self.options.deterministic && self.cache.shares();
        if may_share && Prefixes::pay(rows.len(), length, self.decoder.device()) {
            let shared = self.cache.prefixes.adopt(&kv, rows.len())?;
            rows.iter_mut().for_each(|row| row.shared = Some(shared));
            self.rows.append(&mut rows);
            return self.make_room(live);
        }
        let count = rows.len();
        self.rows.append(&mut rows);
        self.make_room(live)?;
        for slot in live..live + count {
            self.cache.fill(slot, &kv)?;
        }
        Ok(())
    }

    /// Keeps the keys and values of a row for a later request that begins with it. When memory is
    /// short, it keeps nothing.
    pub(super) fn keep(&mut self, index: usize) {
        let row = &self.rows[index];
        let stale = self.of_one_version() && row.oldest_kv != self.version();
        if stale || !row.request.keep || !self.prefix_cache.takes(row.cached()) {
            return;
        }
        let ids = row.cached_ids();
        self.prefix_cache.make_room(&ids);
        match self.cache.copy(index, row.in_slot(), row.shared) {
            Ok(kv) => self.prefix_cache.put(ids, kv, row.oldest_kv),
            Err(error) => {
                tracing::warn!(%error, "no memory to keep an ended turn; cleared the prefix cache");
                self.prefix_cache.clear();
            }
        }
    }

    /// Discards everything that earlier weights computed: prompts under way start again.
    pub(super) fn forget_computed(&mut self) {
        self.prefix_cache.clear();
        let version = self.version();
        self.filling.iter_mut().for_each(|filling| filling.restart(version));
    }

    /// Removes a request from the prompts under way.
    pub(super) fn leave_filling(&mut self, id: RequestId) {
        for filling in &mut self.filling {
            filling.members.retain(|request| request.id != id);
            if filling.is_of(id) {
                filling.back = None;
            }
        }
        self.filling.retain(|filling| filling.pending() > 0);
    }

    /// Removes a returning generation from the prompts under way.
    pub(super) fn take_back(&mut self, id: RequestId) -> Option<Generation> {
        let place = self.filling.iter().position(|filling| filling.is_of(id))?;
        self.filling.remove(place)?.back
    }
}

//! Prompts that are computed in pieces: long ones, so that they do not hold up decoding (chunked prefill: Agrawal et al.,
//! "Sarathi-Serve", arXiv:2403.02310), those that begin with what the prefix cache has, and those whose own log-probs are asked for.

use std::sync::Arc;

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
    /// Slots that are spoken for by prompts under way.
    pub(super) fn slots_promised(&self) -> usize {
        self.filling.iter().map(Filling::slots).sum()
    }

    /// Tokens that prompts under way still need.
    pub(super) fn tokens_promised(&self) -> usize {
        self.filling.iter().map(Filling::left).sum()
    }

    /// Tokens of a request's prompt that would have to be computed, did it begin now.
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

    /// Whether a prompt is computed in pieces, or is being so.
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

    /// Whether others of the same prompt may wait for it: with the same bits in every company, or pinned, if it began with the weights
    /// of now; with log-probs of the prompt (`prompt_top`), if it notes them.
    fn may_join(&self, filling: &Filling, prompt_top: Option<u8>) -> bool {
        let noted = |top| filling.scoring.as_ref().is_some_and(|scoring| scoring.serves(top));
        filling.back.is_none()
            && (!self.of_one_version() || filling.oldest == self.version())
            && prompt_top.is_none_or(noted)
    }

    /// Begins to compute a prompt in pieces; who asks for one that is under way waits with the others.
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

    /// Begins to compute the cache of a generation that was taken out.
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
        // All of a prompt is computed that notes its log-probs.
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
            oldest,
            members: Vec::new(),
            back: None,
            reused,
            scoring: prompt_top.map(Scoring::new),
        })
    }

    /// Computes up to `tokens` more tokens of the prompts under way, the first ones first; those that are whole get their first
    /// tokens and slots.
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
        // All but the last are whole, and the last may be.
        let whole = self.filling.iter().take_while(|filling| filling.left() == 0).count();
        if whole == 0 {
            return Ok(());
        }
        let choices = self.first_choices(&extended.logits, whole)?;
        let done: Vec<Filling> = self.filling.drain(..whole).collect();
        self.seat_filled(done, choices)
    }

    /// Of those that want a token, in their order.
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

    /// Gives first tokens to those who waited; those that go on get slots behind the live rows.
    fn seat_filled(&mut self, whole: Vec<Filling>, choices: Vec<Chosen>) -> Result<(), EngineError> {
        let (version, max_context) = (self.version(), self.decoder.shape().max_context);
        let mut choices = choices.into_iter().peekable();
        for Filling {
            ids,
            kv,
            oldest,
            members,
            back,
            reused,
            scoring,
        } in whole
        {
            let mut begun = Vec::new();
            if let Some(mut row) = back {
                row.oldest_kv = oldest;
                begun.push(row);
            }
            for request in members {
                let choice = choices.next_if(|_| request.max_new_tokens > 0);
                let mut row = Generation::new(request, version);
                (row.oldest_kv, row.reused) = (oldest, reused);
                row.prompt = scoring.as_ref().and_then(|scoring| scoring.of(row.request.prompt_top));
                // Who wants no token has the prompt's log-probs, and is done.
                let end = choice.map_or(Some(Finish::Length), |choice| row.push(choice, version, max_context));
                match end {
                    Some(finish) => self.done.push(row.finish(finish)),
                    None => begun.push(row),
                }
            }
            self.seat_rows(begun, ids.len(), kv)?;
        }
        Ok(())
    }

    /// Slots for rows that have one prompt, the keys and values of which are `kv`.
    fn seat_rows(&mut self, mut rows: Vec<Generation>, length: usize, kv: RowKv) -> Result<(), EngineError> {
        if rows.is_empty() {
            return Ok(());
        }
        let live = self.rows.len();
        if !self.options.deterministic && Prefixes::pay(rows.len(), length, self.decoder.device()) {
            let shared = self.cache.prefixes.adopt(&kv, rows.len())?;
            rows.iter_mut().for_each(|row| row.shared = Some(shared));
            self.rows.append(&mut rows);
            return Ok(self.cache.reserve(self.rows.len(), 1, live)?);
        }
        let count = rows.len();
        self.rows.append(&mut rows);
        self.cache.reserve(self.rows.len(), length + 1, live)?;
        for slot in live..live + count {
            self.cache.fill(slot, &kv)?;
        }
        Ok(())
    }

    /// Keeps what a row has computed, for a request that begins with it. Where there is no memory for it, nothing is kept.
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
                tracing::warn!(%error, "an ended turn cannot be kept: the prefix cache is emptied");
                self.prefix_cache.clear();
            }
        }
    }

    /// Other weights serve, and what was computed with the earlier ones does not count: prompts under way begin anew.
    pub(super) fn forget_computed(&mut self) {
        self.prefix_cache.clear();
        let version = self.version();
        self.filling.iter_mut().for_each(|filling| filling.restart(version));
    }

    /// Takes a request out of the prompts under way.
    pub(super) fn leave_filling(&mut self, id: RequestId) {
        for filling in &mut self.filling {
            filling.members.retain(|request| request.id != id);
            if filling.is_of(id) {
                filling.back = None;
            }
        }
        self.filling.retain(|filling| filling.pending() > 0);
    }

    /// Takes out a generation that was on its way back.
    pub(super) fn take_back(&mut self, id: RequestId) -> Option<Generation> {
        let place = self.filling.iter().position(|filling| filling.is_of(id))?;
        self.filling.remove(place)?.back
    }
}

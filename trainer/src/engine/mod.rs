//! The embedded inference engine: continuous batching over a slot cache, owned by one thread.
//!
//! Requests wait in line, begin together with those of the same prompt (computed once for all of them), and then share
//! decode steps with whatever else is under way. Random numbers belong to the request (seed, position), so a request meets
//! the same ones in every batch; the bits of its logits may differ with the batch, except in a wave ([`Engine::run_wave`]),
//! whose bits are a function of its content, and with [`EngineOptions::deterministic`].
//!
//! # Around it
//! [`Engine`] is synchronous and knows no queue. An agent's router wraps it as an `EngineClient`: a thread of its own calls
//! [`crate::device::init`], builds the engine and loops: drain the command channel (jobs -> [`Engine::submit`] or a whole wave
//! -> [`Engine::run_wave`]; weights -> [`Engine::swap`], only the newest of several; aborts -> [`Engine::abort`]); take the
//! process's compute permit; [`Engine::step`]; answer what finished. When [`Engine::is_idle`], it blocks on the channel. On
//! an error of `step` it calls [`Engine::abort_all`] and fails those requests: a failure of the machinery is never an answer.

mod admission;
mod begin;
mod choose;
mod fill;
mod filling;
mod generation;
mod order;
mod prefix_cache;
mod prompt_scores;
mod request;
mod score;
mod swap;
#[cfg(test)]
mod tests;
mod visit;
mod wave;

use std::collections::{HashSet, VecDeque};

use broker::ids::{RequestId, WeightVersion};
use configs::Swap;

pub use prompt_scores::PromptScores;
pub use request::{EngineError, Finished, GenRequest, RequestFault, StopRule, UnderWay};
pub use visit::Aside;

use crate::model::{Decoder, KvCache, ModelShape, Parts, Shared, Weights};
use crate::pulse::Pulse;
use crate::weights::Published;
use choose::{Draw, choose};
use filling::Filling;
use generation::Generation;
use prefix_cache::PrefixCache;

/// How an engine works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// Generations decoded together, at least 1.
    pub slots: usize,
    /// Tokens of distinct prompts computed in one step at most, at least 1; a longer prompt is computed in pieces.
    pub prefill_tokens: usize,
    /// Bytes of keys and values kept for requests that begin with what was said; 0: none.
    pub prefix_cache: usize,
    /// What happens to generations under way when new weights arrive.
    pub swap: Swap,
    /// A request has the same bits whatever is computed with it, at a price: on a CPU only.
    pub deterministic: bool,
    /// In f32 on a CPU the matrices (in bf16 the output matrix alone) are kept a second time, in the order in which the engine's own products
    /// want them: faster, at twice the memory. Without it, and elsewhere, libtorch's products compute with the one copy.
    pub prepack: bool,
}

impl From<&configs::EngineConfig> for EngineOptions {
    fn from(config: &configs::EngineConfig) -> Self {
        Self {
            slots: config.slots.max(1),
            prefill_tokens: config.prefill_tokens.max(1),
            prefix_cache: config.prefix_cache_mib.saturating_mul(1 << 20),
            swap: config.swap,
            deterministic: config.deterministic,
            prepack: config.prepack,
        }
    }
}

/// An engine. One thread owns it.
#[derive(Debug)]
pub struct Engine {
    // Before the weights that its views belong to, which go back to their pool when dropped.
    decoder: Decoder,
    /// The frozen model that the served weights are adapters of, if they are.
    base: Option<Weights>,
    served: Published,
    /// Weights that wait until what is under way has ended.
    next: Option<Published>,
    options: EngineOptions,
    cache: KvCache,
    /// Generation `i` has slot `i` of the cache.
    rows: Vec<Generation>,
    waiting: VecDeque<GenRequest>,
    /// Prompts that are computed in pieces.
    filling: VecDeque<Filling>,
    prefix_cache: PrefixCache,
    /// Nothing is begun with what other weights computed.
    pinned: bool,
    known: HashSet<RequestId>,
    done: Vec<Finished>,
    pulse: Pulse,
}

impl Engine {
    /// An engine that serves `weights`, on their device and in their kind.
    ///
    /// # Errors
    /// [`EngineError::Model`] when the weights are not of this shape.
    pub fn new(shape: &ModelShape, weights: Published, options: EngineOptions) -> Result<Self, EngineError> {
        Self::build(shape, None, weights, options)
    }

    /// An engine that serves adapters of `base`, which is of their kind, on their device, and changed by nobody: it may be
    /// shared.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_base(
        shape: &ModelShape,
        base: Weights,
        adapter: Published,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        Self::build(shape, Some(base), adapter, options)
    }

    fn build(
        shape: &ModelShape,
        base: Option<Weights>,
        weights: Published,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let _guard = tch::no_grad_guard();
        let (device, kind) = (weights.weights()?.device(), weights.weights()?.kind());
        let cache = KvCache::new(shape, device, kind)?;
        let prefix_cache = PrefixCache::new(options.prefix_cache / cache.bytes_per_token().max(1));
        let parts = Parts::over(base.as_ref(), weights.weights()?);
        let mut decoder = Decoder::new(shape, parts)?;
        if options.prepack {
            decoder.put_in_order();
        }
        if options.deterministic {
            can_be_deterministic(&decoder)?;
        }
        Ok(Self {
            decoder,
            base,
            served: weights,
            next: None,
            options,
            cache,
            rows: Vec::new(),
            waiting: VecDeque::new(),
            filling: VecDeque::new(),
            prefix_cache,
            pinned: false,
            known: HashSet::new(),
            done: Vec::new(),
            pulse: Pulse::default(),
        })
    }

    #[must_use]
    pub fn shape(&self) -> &ModelShape {
        self.decoder.shape()
    }

    /// The weights that compute now.
    #[must_use]
    pub fn version(&self) -> WeightVersion {
        self.served.version()
    }

    /// Requests under way or waiting.
    #[must_use]
    pub fn pending(&self) -> usize {
        let filling: usize = self.filling.iter().map(Filling::pending).sum();
        self.rows.len() + self.waiting.len() + filling
    }

    /// Nothing is under way, nothing waits, and no weights wait to be served: a step would do nothing.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending() == 0 && self.done.is_empty() && self.next.is_none()
    }

    /// Puts a request in line.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] for what can never be generated, [`EngineError::Duplicate`].
    pub fn submit(&mut self, request: GenRequest) -> Result<(), EngineError> {
        self.check(&request)
            .map_err(|source| EngineError::BadRequest { id: request.id, source })?;
        if !self.known.insert(request.id) {
            return Err(EngineError::Duplicate { id: request.id });
        }
        self.waiting.push_back(request);
        Ok(())
    }

    /// Whether a request could be generated at all: asking again does not change the answer.
    ///
    /// # Errors
    /// [`RequestFault`].
    pub fn check(&self, request: &GenRequest) -> Result<(), RequestFault> {
        request.check(self.shape())
    }

    /// What moves with each step, within a wave too.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Its steps move this one.
    pub(crate) fn mark_on(&mut self, pulse: Pulse) {
        self.pulse = pulse;
    }

    /// Forgets a request; `false` if it is not here (any more).
    ///
    /// # Errors
    /// [`EngineError::Model`].
    pub fn abort(&mut self, id: RequestId) -> Result<bool, EngineError> {
        if !self.known.remove(&id) {
            return Ok(false);
        }
        self.waiting.retain(|request| request.id != id);
        self.leave_filling(id);
        if let Some(index) = self.rows.iter().position(|row| row.request.id == id) {
            let _guard = tch::no_grad_guard();
            self.remove(index)?;
        }
        Ok(true)
    }

    /// Forgets every request that has no result yet and returns their ids: what to do after an error of [`Self::step`].
    ///
    /// # Errors
    /// [`EngineError::Model`] when even the memory cannot be cleared: build a new engine.
    pub fn abort_all(&mut self) -> Result<Vec<RequestId>, EngineError> {
        self.rows.clear();
        self.waiting.clear();
        self.filling.clear();
        self.prefix_cache.clear();
        self.done.clear();
        let ids = self.known.drain().collect();
        self.cache.wipe()?;
        Ok(ids)
    }

    /// Begins what fits, then makes one token for each row under way. Results in the order in which they ended.
    ///
    /// # Errors
    /// [`EngineError::NotFinite`], [`EngineError::Model`]. Requests stay under way: see [`Self::abort_all`].
    pub fn step(&mut self) -> Result<Vec<Finished>, EngineError> {
        let _guard = tch::no_grad_guard();
        self.install_waiting()?;
        self.begin()?;
        self.pulse.mark();
        self.decode()?;
        self.pulse.mark();
        let done = std::mem::take(&mut self.done);
        done.iter().for_each(|finished| {
            self.known.remove(&finished.id);
        });
        Ok(done)
    }

    /// One token for each row.
    fn decode(&mut self) -> Result<(), EngineError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let longest = self.rows.iter().map(Generation::in_slot).max().unwrap_or(0) + 1;
        self.cache.reserve(self.rows.len(), longest, self.rows.len())?;
        self.lay_out()?;
        let lengths: Vec<i64> = self.rows.iter().map(|row| row.cached() as i64).collect();
        let ids: Vec<i64> = self.rows.iter().map(Generation::last).collect();
        let shared: Vec<Option<Shared>> = self.rows.iter().map(|row| row.shared).collect();
        let logits = if self.options.deterministic {
            self.decoder.decode_fixed(&ids, &lengths, &self.cache)?
        } else {
            self.decoder.decode(&ids, &lengths, &shared, &self.cache)?
        };
        let draw = |(row, r): (usize, &Generation)| Draw::next(row, &r.request, r.made());
        let draws: Vec<Draw> = self.rows.iter().enumerate().map(draw).collect();
        let version = self.version();
        let choices = choose(&logits, &draws)?.map_err(|requests| EngineError::NotFinite { version, requests })?;
        let max_context = self.shape().max_context;
        let mut ended = Vec::new();
        for (index, (row, choice)) in self.rows.iter_mut().zip(choices).enumerate() {
            if let Some(finish) = row.push(choice, version, max_context) {
                ended.push((index, finish));
            }
        }
        let before = self.done.len();
        // From the back: a row that moves into a gap is never one that ends.
        for (index, finish) in ended.into_iter().rev() {
            self.keep(index);
            let row = self.remove(index)?;
            self.done.push(row.finish(finish));
        }
        self.done[before..].reverse();
        Ok(())
    }

    /// Takes a row out and moves the last one into its slot.
    fn remove(&mut self, index: usize) -> Result<Generation, EngineError> {
        let last = self.rows.len() - 1;
        if index < last {
            self.cache.move_row(last, index, self.rows[last].in_slot())?;
        }
        let row = self.rows.swap_remove(index);
        if let Some(shared) = row.shared {
            self.cache.prefixes.release(shared);
        }
        Ok(row)
    }
}

/// Refuses, by what is in the way, an engine whose bits could depend on what is computed together.
fn can_be_deterministic(decoder: &Decoder) -> Result<(), EngineError> {
    if decoder.device() != tch::Device::Cpu {
        return Err(EngineError::NotDeterministic(
            "a GPU's kernels add in an order of their own",
        ));
    }
    if !decoder.try_fixed()? {
        return Err(EngineError::NotDeterministic(
            "on this processor a row of a product depends on the rows beside it in this dtype",
        ));
    }
    Ok(())
}

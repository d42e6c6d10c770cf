//! The embedded inference engine: continuous batching over a slot cache, owned by one thread.
//!
//! Requests wait in line. Requests with equal prompts begin together, and their prompt is computed
//! once. Then each request shares decode steps with all other active requests.
//!
//! The random numbers of a request depend only on its seed and the position, so they are the same
//! in every batch. The bits of its logits may differ with the batch. On a CPU they do not differ in
//! a wave ([`Engine::run_wave`]), where they are a function of the wave's content, or with
//! [`EngineOptions::deterministic`].
//!
//! # How an agent uses it
//! [`Engine`] is synchronous and has no queue of commands. An agent's router wraps it as an
//! `EngineClient`. A dedicated thread calls [`crate::device::init`], builds the engine and then
//! repeats these steps:
//!
//! - Drain the command channel. Jobs go to [`Engine::submit`], a whole wave to
//!   [`Engine::run_wave`], aborts to [`Engine::abort`]. Only the newest of several weights goes to
//!   [`Engine::swap`].
//! - Take the process's compute permit.
//! - Call [`Engine::step`] and answer the finished requests.
//!
//! When [`Engine::is_idle`] holds, the thread blocks on the channel. When `step` returns an error,
//! the thread calls [`Engine::abort_all`] and fails those requests: a failure of the machinery is
//! never an answer.

mod admission;
mod begin;
mod cache;
mod choose;
mod draw;
mod fill;
mod filling;
mod generation;
mod given_up;
mod order;
mod prefix_cache;
mod prompt_scores;
mod request;
mod score;
mod swap;
#[cfg(test)]
mod tests;
mod times;
mod usage;
mod visit;
mod wave;

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use broker::ids::{RequestId, WeightVersion};
use configs::Swap;

pub use cache::CacheLimit;
pub use given_up::GivenUp;
pub use prompt_scores::PromptScores;
pub use request::{EngineError, Finished, GenRequest, RequestFault, StopRule, UnderWay};
pub use times::Times;
pub use usage::{EngineUsage, ROW_BOUNDS, StepCounts};
pub use visit::Aside;

use crate::model::{Decoder, KvCache, ModelShape, Parts, Shared, StepGraphs, Weights};
use crate::pulse::Pulse;
use crate::weights::Published;
use choose::{Draw, choose};
use filling::Filling;
use generation::Generation;
use prefix_cache::PrefixCache;

/// The options of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// The number of generations decoded together, at least 1.
    pub slots: usize,
    /// The largest number of tokens of distinct prompts computed in one step, at least 1. A longer
    /// prompt is computed in pieces.
    pub prefill_tokens: usize,
    /// Bytes of keys and values kept for requests that begin with an earlier conversation; 0 keeps
    /// none.
    pub prefix_cache: usize,
    /// The bound of the generations' own keys and values, if there is one.
    pub cache: Option<CacheLimit>,
    /// The treatment of active generations when new weights arrive.
    pub swap: Swap,
    /// Gives a request the same bits whatever is computed with it. Slower, and available on a CPU
    /// only.
    pub deterministic: bool,
    /// Keeps a second copy of the matrices in the order that the engine's own products need, on a
    /// CPU. Faster, at twice the memory. Without it, and on other devices, libtorch computes with
    /// the one copy.
    pub prepack: bool,
}

impl From<&configs::AgentConfig> for EngineOptions {
    fn from(agent: &configs::AgentConfig) -> Self {
        let config = &agent.engine;
        Self {
            slots: config.slots.max(1),
            prefill_tokens: config.prefill_tokens.max(1),
            prefix_cache: config.prefix_cache_mib.saturating_mul(1 << 20),
            cache: CacheLimit::of(agent),
            swap: config.swap,
            deterministic: config.deterministic,
            prepack: config.prepack,
        }
    }
}

/// An inference engine. One thread owns it.
#[derive(Debug)]
pub struct Engine {
    // Declared before the weights that its views borrow, which return to their pool when dropped.
    decoder: Decoder,
    /// The frozen base model, if the served weights are adapters.
    base: Option<Weights>,
    served: Published,
    /// New weights that wait until the active generations have ended.
    next: Option<Published>,
    options: EngineOptions,
    cache: KvCache,
    graphs: StepGraphs,
    /// Generation `i` has slot `i` of the cache.
    rows: Vec<Generation>,
    waiting: VecDeque<GenRequest>,
    /// Set if the next generation to be put back found no room: waiting requests begin after it.
    room_is_kept: bool,
    /// Prompts that are being computed in pieces.
    filling: VecDeque<Filling>,
    prefix_cache: PrefixCache,
    /// When true, no request begins with keys and values computed by other weights.
    pinned: bool,
    /// The arrival of each request that has no result yet.
    known: HashMap<RequestId, Instant>,
    done: Vec<Finished>,
    pulse: Pulse,
    usage: EngineUsage,
}

impl Engine {
    /// Builds an engine that serves `weights`, on their device and in their kind.
    ///
    /// # Errors
    /// [`EngineError::Model`] when the weights do not have this shape.
    pub fn new(shape: &ModelShape, weights: Published, options: EngineOptions) -> Result<Self, EngineError> {
        Self::build(shape, None, weights, options)
    }

    /// Builds an engine that serves adapters of `base`. The base has the adapters' kind and device.
    /// It is never changed, so several engines may share it.
    ///
    /// # Errors
    /// The same as for [`Self::new`].
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
        let cache = match options.cache {
            Some(limit) => limit.allocate(shape, device, kind)?,
            None => KvCache::new(shape, device, kind)?,
        };
        let whole = base.as_ref().map_or_else(|| weights.weights(), Ok)?;
        let prefix_cache = PrefixCache::new(
            options.prefix_cache / cache.bytes_per_token().max(1),
            prefix_cache::worth((device, kind), shape.layers, whole.layout().numel()),
        );
        let parts = Parts::over(base.as_ref(), weights.weights()?);
        let mut decoder = Decoder::new(shape, parts)?;
        if options.prepack {
            decoder.put_in_order()?;
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
            graphs: StepGraphs::default(),
            rows: Vec::new(),
            waiting: VecDeque::new(),
            room_is_kept: false,
            filling: VecDeque::new(),
            prefix_cache,
            pinned: false,
            known: HashMap::new(),
            done: Vec::new(),
            pulse: Pulse::default(),
            usage: EngineUsage::default(),
        })
    }

    #[must_use]
    pub fn shape(&self) -> &ModelShape {
        self.decoder.shape()
    }

    /// The version of the weights that compute now.
    #[must_use]
    pub fn version(&self) -> WeightVersion {
        self.served.version()
    }

    /// The number of active and waiting requests.
    #[must_use]
    pub fn pending(&self) -> usize {
        let filling: usize = self.filling.iter().map(Filling::pending).sum();
        self.rows.len() + self.waiting.len() + filling
    }

    /// Returns true if a step would do nothing: no request is active or waiting, and no weights
    /// wait.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending() == 0 && self.done.is_empty() && self.next.is_none()
    }

    /// Puts a request in line.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] for a request that this model can never answer,
    /// [`EngineError::Duplicate`].
    pub fn submit(&mut self, request: GenRequest) -> Result<(), EngineError> {
        self.check(&request)
            .map_err(|source| EngineError::BadRequest { id: request.id, source })?;
        if self.known.contains_key(&request.id) {
            return Err(EngineError::Duplicate { id: request.id });
        }
        self.known.insert(request.id, Instant::now());
        self.waiting.push_back(request);
        Ok(())
    }

    /// Checks that a request can be answered at all. A retry gives the same result.
    ///
    /// # Errors
    /// [`RequestFault`].
    pub fn check(&self, request: &GenRequest) -> Result<(), RequestFault> {
        request.check(self.shape())?;
        self.check_room(request)
    }

    /// Forgets a request. Returns `false` if the engine does not have it (any more).
    ///
    /// # Errors
    /// [`EngineError::Model`].
    pub fn abort(&mut self, id: RequestId) -> Result<bool, EngineError> {
        if self.known.remove(&id).is_none() {
            return Ok(false);
        }
        self.waiting.retain(|request| request.id != id);
        self.leave_filling(id);
        if let Some(index) = self.rows.iter().position(|row| row.request.id == id) {
            let _guard = tch::no_grad_guard();
            self.remove(index)?;
            self.show_cache();
        }
        Ok(true)
    }

    /// Forgets every request without a result and returns their ids. Call it after an error of
    /// [`Self::step`].
    ///
    /// # Errors
    /// [`EngineError::Model`] when the memory cannot be cleared either: build a new engine.
    pub fn abort_all(&mut self) -> Result<Vec<RequestId>, EngineError> {
        self.rows.clear();
        self.waiting.clear();
        self.filling.clear();
        self.prefix_cache.clear();
        self.done.clear();
        self.graphs.clear();
        let ids = self.known.drain().map(|(id, _)| id).collect();
        self.cache.wipe()?;
        self.show_cache();
        Ok(ids)
    }

    /// The number of active requests: those with a slot.
    #[must_use]
    pub fn active(&self) -> usize {
        self.rows.len() + self.slots_promised()
    }

    /// Begins the requests that fit, then makes one token for each active row. Returns the results
    /// in the order in which they ended.
    ///
    /// # Errors
    /// [`EngineError::NotFinite`], [`EngineError::Model`]. The requests stay active: see
    /// [`Self::abort_all`].
    pub fn step(&mut self) -> Result<Vec<Finished>, EngineError> {
        let _guard = tch::no_grad_guard();
        self.install_waiting()?;
        self.begin()?;
        self.pulse.mark();
        self.decode()?;
        self.pulse.mark();
        let mut done = std::mem::take(&mut self.done);
        for finished in &mut done {
            if let Some(arrived) = self.known.remove(&finished.id) {
                finished.times.arrived(arrived);
            }
        }
        Ok(done)
    }

    /// Makes one token for each row.
    fn decode(&mut self) -> Result<(), EngineError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.usage.count_step(self.rows.len());
        self.make_room(self.rows.len())?;
        self.lay_out()?;
        let lengths: Vec<i64> = self.rows.iter().map(|row| row.cached() as i64).collect();
        let ids: Vec<i64> = self.rows.iter().map(Generation::last).collect();
        let shared: Vec<Option<Shared>> = self.rows.iter().map(|row| row.shared).collect();
        let logits = if self.options.deterministic {
            self.decoder.decode_fixed(&ids, &lengths, &self.cache)?
        } else {
            self.graphs
                .decode(&self.decoder, &ids, &lengths, &shared, &self.cache)?
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
        // From the back, so that the row that moves into a gap never ends in this step.
        for (index, finish) in ended.into_iter().rev() {
            self.keep(index);
            let row = self.remove(index)?;
            self.done.push(row.finish(finish));
        }
        self.done[before..].reverse();
        self.show_cache();
        Ok(())
    }

    /// Removes a row and moves the last row into its slot.
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

/// Rejects a model on which the bits of a request could depend on other requests, and names the
/// cause.
fn can_be_deterministic(decoder: &Decoder) -> Result<(), EngineError> {
    if decoder.device() != tch::Device::Cpu {
        return Err(EngineError::NotDeterministic(
            "a GPU's kernels choose the order of their sums",
        ));
    }
    if !decoder.try_fixed()? {
        return Err(EngineError::NotDeterministic(
            "on this processor a row of a product depends on the other rows in this dtype",
        ));
    }
    Ok(())
}

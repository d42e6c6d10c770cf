//! The room of slots in the cache: its growth, and its bound.
//!
//! With a bound, a request begins only if the slots of all active requests still fit when each has
//! become as long as it can, and all slots have the room of the longest. So no row ever waits for
//! room between two of its tokens.

use configs::{AgentConfig, Dtype};
use tch::{Device, Kind};

use super::filling::Filling;
use super::generation::Generation;
use super::{Engine, EngineError, GenRequest, RequestFault};
use crate::model::{KvCache, ModelShape, Slots, kind_of, room_of};

/// The bound of an engine's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimit {
    /// Bytes of keys and values, allocated at the engine's start.
    pub bytes: usize,
    /// The longest row, in tokens, that must fit. The model's context is its limit.
    pub longest: usize,
}

impl CacheLimit {
    /// The bound that an agent's configuration sets (`engine.cache_mib`).
    pub(super) fn of(agent: &AgentConfig) -> Option<Self> {
        let mib = Some(agent.engine.cache_mib).filter(|mib| *mib > 0)?;
        let longest = agent.sampling.max_context.filter(|limit| *limit > 0);
        Some(Self {
            bytes: mib.saturating_mul(1 << 20),
            longest: longest.map_or(usize::MAX, |limit| limit as usize),
        })
    }

    fn mib(self) -> usize {
        self.bytes >> 20
    }

    /// Checks that the longest row fits, before any memory is allocated.
    ///
    /// # Errors
    /// [`EngineError::CacheTooSmall`].
    pub fn check(self, shape: &ModelShape, dtype: Dtype) -> Result<(), EngineError> {
        self.check_kind(shape, kind_of(dtype))
    }

    fn check_kind(self, shape: &ModelShape, kind: Kind) -> Result<(), EngineError> {
        let tokens = self.longest.min(shape.max_context);
        let needed = room_of(tokens).saturating_mul(KvCache::new(shape, Device::Cpu, kind)?.bytes_per_token());
        if needed > self.bytes {
            return Err(EngineError::CacheTooSmall {
                mib: self.mib(),
                tokens,
                needed: needed.div_ceil(1 << 20),
            });
        }
        Ok(())
    }

    /// Allocates the cache.
    pub(super) fn allocate(self, shape: &ModelShape, device: Device, kind: Kind) -> Result<KvCache, EngineError> {
        self.check_kind(shape, kind)?;
        let refused = |source| EngineError::CacheMemory {
            mib: self.mib(),
            source,
        };
        KvCache::bounded(shape, device, kind, self.bytes).map_err(refused)
    }
}

impl GenRequest {
    /// The number of tokens that its row can come to hold.
    pub(super) fn reach(&self, max_context: usize) -> usize {
        let all = self.prompt_ids.len().saturating_add(self.max_new_tokens as usize);
        all.min(max_context)
    }

    /// Returns true if it takes a slot: it ends with its prompt otherwise.
    pub(super) fn takes_slot(&self) -> bool {
        self.max_new_tokens > 1
    }
}

impl Engine {
    /// Makes room for the next token of each row, keeping the first `live` rows.
    pub(super) fn make_room(&mut self, live: usize) -> Result<(), EngineError> {
        let longest = self.rows.iter().map(Generation::in_slot).max().unwrap_or(0) + 1;
        Ok(self.cache.reserve(self.rows.len(), longest, live)?)
    }

    /// Checks that a request would fit into the cache alone.
    pub(super) fn check_room(&self, request: &GenRequest) -> Result<(), RequestFault> {
        let (budget, len) = (self.cache.budget(), request.reach(self.shape().max_context));
        match budget.tokens() {
            Some(most) if request.takes_slot() && !budget.holds_row(len) => Err(RequestFault::BeyondCache {
                len,
                most: most / room_of(1) * room_of(1),
            }),
            _ => Ok(()),
        }
    }

    /// Promises a slot to one more request. Returns false if there is no room.
    pub(super) fn promise(&mut self, request: &GenRequest) -> bool {
        let reach = request.reach(self.shape().max_context);
        let with = self.cache.budget().promise(self.cache.promised, reach);
        self.cache.promised = with.unwrap_or(self.cache.promised);
        with.is_some()
    }

    /// The slots that active requests may come to need. Empty without a bound, where nothing reads
    /// them.
    pub(super) fn promised(&self) -> Slots {
        if !self.cache.budget().is_bounded() {
            return Slots::default();
        }
        let max_context = self.shape().max_context;
        let live = self.rows.iter().map(|row| &row.request);
        let requests = live.chain(self.filling.iter().flat_map(Filling::with_slots));
        requests.fold(Slots::default(), |all, request| Slots {
            rows: all.rows + 1,
            room: all.room.max(room_of(request.reach(max_context))),
        })
    }
}

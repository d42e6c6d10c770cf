//! The memory that an engine gives up when it runs out.

use super::Engine;

/// Memory that an engine does without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// Kept prefixes of this size. No others are kept.
    Prefixes { bytes: usize },
    /// All slots but these.
    Slots { left: usize },
}

impl Engine {
    /// Needs less memory from now on. Call it when memory ran out with `active` generations, before
    /// [`Self::abort_all`]: the same needs would run out again. Gives up the kept prefixes first.
    /// Without any, at most half as many generations are active as were, and at least one.
    pub fn give_up(&mut self, active: usize) -> GivenUp {
        let tokens = self.prefix_cache.give_up();
        if tokens > 0 {
            let bytes = tokens * self.cache.bytes_per_token();
            return GivenUp::Prefixes { bytes };
        }
        self.options.slots = (self.options.slots.min(active) / 2).max(1);
        GivenUp::Slots {
            left: self.options.slots,
        }
    }
}

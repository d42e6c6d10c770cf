//! The memory that an engine gives up when it runs out.

use super::Engine;

/// Memory that an engine gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// All kept prefixes, of this size. None is kept from now on.
    Prefixes { bytes: usize },
    /// All slots except this number.
    Slots { left: usize },
}

impl Engine {
    /// Lowers the need of memory from now on. Call it when memory ran out with `active`
    /// generations, before [`Self::abort_all`]: the same load would run out again. Gives up the
    /// kept prefixes first. If there are none, allows half as many active generations, and at least
    /// one.
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

//! Engine functions for requests other than training's: tokens while they are made, and a way to
//! free slots.
//!
//! A generation can be taken out between two steps and put back later. It keeps its tokens and its
//! position in its random numbers. Its cache is recomputed, as after [`configs::Swap::Retract`].

use std::collections::VecDeque;
use std::time::Instant;

use broker::ids::RequestId;
use configs::Swap;

use super::generation::Generation;
use super::request::UnderWay;
use super::{Engine, EngineError};

/// A generation that was taken out, and when its request came.
#[derive(Debug)]
pub struct Aside(Generation, Instant);

impl Aside {
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.0.request.id
    }
}

impl Engine {
    /// Every active generation with its tokens so far. Waiting requests have no tokens and are not
    /// reported.
    pub fn under_way(&self) -> impl Iterator<Item = UnderWay<'_>> {
        self.rows.iter().map(Generation::so_far)
    }

    /// Returns true if new weights wait until active generations end.
    #[must_use]
    pub fn drains(&self) -> bool {
        self.options.swap == Swap::Drain
    }

    /// Takes a request out. `None` means that it had no tokens and is forgotten: submit it again.
    ///
    /// # Errors
    /// [`EngineError::Model`].
    pub fn take_out(&mut self, id: RequestId) -> Result<Option<Aside>, EngineError> {
        if let Some(row) = self.take_back(id) {
            return Ok(Some(self.set_aside(row)));
        }
        let Some(index) = self.rows.iter().position(|row| row.request.id == id) else {
            self.abort(id)?;
            return Ok(None);
        };
        let _guard = tch::no_grad_guard();
        let mut row = self.remove(index)?;
        row.shared = None;
        Ok(Some(self.set_aside(row)))
    }

    fn set_aside(&mut self, row: Generation) -> Aside {
        let came = self.known.remove(&row.request.id);
        Aside(row, came.unwrap_or_else(Instant::now))
    }

    /// Puts generations back in order, as many as have a free slot and room in the cache. Their
    /// caches are computed in pieces, as for long prompts. If the first has no room, no waiting
    /// request begins in the next step. Puts back none while new weights wait for active
    /// generations.
    ///
    /// # Errors
    /// [`EngineError::Model`]; the generation that was being put back is lost.
    pub fn put_back(&mut self, aside: &mut VecDeque<Aside>) -> Result<(), EngineError> {
        let _guard = tch::no_grad_guard();
        let taken = self.rows.len() + self.slots_promised();
        let free = self.options.slots.saturating_sub(taken);
        if self.next.is_some() || aside.is_empty() {
            return Ok(());
        }
        self.cache.promised = self.promised();
        for _ in 0..free {
            let fits = |aside: &mut Aside| self.promise(&aside.0.request);
            let Some(Aside(row, came)) = aside.pop_front_if(fits) else {
                self.room_is_kept = !aside.is_empty();
                break;
            };
            self.known.insert(row.request.id, came);
            self.fill_again(row)?;
        }
        Ok(())
    }
}

//! What an engine offers for requests that are not training's: their tokens as they are made, and a way to make room.
//!
//! A generation can be taken out between two steps and put back later. It keeps its tokens and its place in its random
//! numbers; what it had in the cache is computed anew, as after [`configs::Swap::Retract`].

use std::collections::VecDeque;

use broker::ids::RequestId;
use broker::protocol::turn::VersionSpan;
use configs::Swap;
use tch::{Kind, Tensor};

use super::row::Row;
use super::{Engine, EngineError};
use crate::model::RowBatch;

/// What a generation has made so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnderWay<'a> {
    pub id: RequestId,
    pub output_ids: &'a [u32],
    /// One per output id.
    pub logprobs: &'a [f32],
    pub spans: &'a [VersionSpan],
}

/// A generation that was taken out.
#[derive(Debug)]
pub struct Aside(Row);

impl Aside {
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.0.request.id
    }
}

impl Engine {
    /// Every generation under way, with what it has made; one that waits has made nothing and is not told.
    pub fn under_way(&self) -> impl Iterator<Item = UnderWay<'_>> {
        self.rows.iter().map(Row::so_far)
    }

    /// Whether new weights wait for what is under way.
    #[must_use]
    pub fn drains(&self) -> bool {
        self.options.swap == Swap::Drain
    }

    /// Takes a request out. `None`: it has made nothing yet, and is forgotten; submit it again.
    ///
    /// # Errors
    /// [`EngineError::Model`].
    pub fn take_out(&mut self, id: RequestId) -> Result<Option<Aside>, EngineError> {
        let Some(index) = self.rows.iter().position(|row| row.request.id == id) else {
            self.abort(id)?;
            return Ok(None);
        };
        let _guard = tch::no_grad_guard();
        let mut row = self.remove(index)?;
        row.shared = None;
        self.known.remove(&id);
        Ok(Some(Aside(row)))
    }

    /// Puts generations back, the first first: as many as have a slot, and as much as one step may compute of prompts. None
    /// while new weights wait for what is under way.
    ///
    /// # Errors
    /// [`EngineError::Model`], with those that were being put back lost.
    pub fn put_back(&mut self, aside: &mut VecDeque<Aside>) -> Result<(), EngineError> {
        let taken = self.rows.len() + self.slots_promised();
        let free = self.options.slots.saturating_sub(taken);
        if free == 0 || aside.is_empty() || self.next.is_some() {
            return Ok(());
        }
        let (mut rows, mut tokens) = (Vec::new(), 0);
        while let Some(Aside(row)) = aside.front()
            && rows.len() < free
        {
            tokens += row.cached();
            if tokens > self.options.prefill_tokens && !rows.is_empty() {
                break;
            }
            rows.extend(aside.pop_front().map(|Aside(row)| row));
        }
        let _guard = tch::no_grad_guard();
        self.seat_again(rows)?;
        self.pulse.mark();
        Ok(())
    }

    /// Computes the cache of rows anew, behind the live ones.
    fn seat_again(&mut self, rows: Vec<Row>) -> Result<(), EngineError> {
        let (live, version) = (self.rows.len(), self.version());
        let ids: Vec<Vec<u32>> = rows.iter().map(Row::cached_ids).collect();
        let batch = RowBatch::new(self.shape(), &ids, self.decoder.device())?;
        let (_, kept) = self.decoder.prefill(&batch, true)?;
        let longest = rows.iter().map(Row::cached).max().unwrap_or(0) + 1;
        let width = kept.first().map_or(0, |[keys, _]| keys.size()[2] as usize);
        self.cache.reserve(live + rows.len(), longest.max(width), live)?;
        let all = Tensor::f_arange(rows.len() as i64, (Kind::Int64, self.decoder.device()))?;
        self.cache.admit(live, &kept, &all)?;
        for mut row in rows {
            row.oldest_kv = version;
            self.known.insert(row.request.id);
            self.rows.push(row);
        }
        Ok(())
    }
}

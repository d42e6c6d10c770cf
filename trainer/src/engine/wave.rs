//! Synchronous waves: a closed set of requests, computed alone.

use std::collections::HashMap;

use broker::ids::RequestId;

use super::{Engine, EngineError, Finished, GenRequest};
use crate::model::{Slots, room_of};

/// New tokens per row for which a wave reserves room at its start. It reserves more when needed.
const WAVE_ROOM: u32 = 128;

impl Engine {
    /// Generates a closed set of requests in the given order, alone and with empty caches. Returns
    /// the results in that order. On a CPU the bits are a function of the requests, the weights and
    /// the options, and of no earlier computation.
    ///
    /// # Errors
    /// [`EngineError::Busy`] when a request is active or waiting. The errors of [`Self::submit`],
    /// after which no request has begun. The errors of [`Self::step`], after which every request is
    /// aborted.
    pub fn run_wave(&mut self, requests: Vec<GenRequest>) -> Result<Vec<Finished>, EngineError> {
        self.install_waiting()?;
        if !self.is_idle() {
            return Err(EngineError::Busy {
                pending: self.pending(),
            });
        }
        let order: HashMap<RequestId, usize> = requests.iter().enumerate().map(|(i, r)| (r.id, i)).collect();
        let mut results = Vec::with_capacity(requests.len());
        let run = self.wave(requests, &mut results);
        if let Err(error) = run {
            let _guard = tch::no_grad_guard();
            self.abort_all()?;
            return Err(error);
        }
        results.sort_by_key(|finished: &Finished| order.get(&finished.id).copied());
        Ok(results)
    }

    fn wave(&mut self, requests: Vec<GenRequest>, results: &mut Vec<Finished>) -> Result<(), EngineError> {
        self.cache.clear();
        self.prefix_cache.clear();
        // The room that is likely needed, as a function of the wave's content alone.
        let long = requests.iter().filter(|request| request.takes_slot());
        let max_context = self.shape().max_context;
        let reach = long.clone().map(|r| r.reach(max_context)).max().unwrap_or(0);
        let fit = self.cache.budget().rows_of(reach).min(self.options.slots);
        let rows = long.clone().count().min(fit);
        let length = long
            .map(|r| r.prompt_ids.len() + r.max_new_tokens.min(WAVE_ROOM) as usize)
            .max()
            .unwrap_or(0);
        for request in requests {
            self.submit(GenRequest { keep: false, ..request })?;
        }
        if rows > 0 {
            self.cache.promised = Slots {
                rows,
                room: room_of(reach),
            };
            self.cache.reserve(rows, length.min(max_context), 0)?;
        }
        while self.pending() > 0 {
            results.append(&mut self.step()?);
        }
        Ok(())
    }
}

//! Begins requests: computes each distinct prompt once, chooses first tokens and assigns slots.

use std::time::Instant;

use tch::Tensor;

use super::admission::{self, Admission, Room};
use super::choose::{Chosen, Draw, choose};
use super::generation::Generation;
use super::{Engine, EngineError};
use crate::model::{Prefilled, Prefixes, RowBatch, Shared};

impl Engine {
    /// Begins waiting requests and continues the prompts that are computed in pieces, within the
    /// prompt tokens of one step.
    pub(super) fn begin(&mut self) -> Result<(), EngineError> {
        let mut left = self.options.prefill_tokens;
        let room_is_kept = std::mem::take(&mut self.room_is_kept);
        if self.next.is_none() && !room_is_kept {
            let promised = self.tokens_promised();
            let room = Room {
                slots: self
                    .options
                    .slots
                    .saturating_sub(self.rows.len() + self.slots_promised()),
                tokens: left.saturating_sub(promised),
                free: promised == 0,
                budget: self.cache.budget(),
                promised: self.promised(),
                max_context: self.shape().max_context,
            };
            let mut waiting = std::mem::take(&mut self.waiting);
            let admission = admission::admit(&mut waiting, room, |request| self.cost(request));
            self.waiting = waiting;
            self.cache.promised = admission.promised;
            let (whole, in_pieces) = admission.split(|prompt| self.in_pieces(prompt));
            for (prompt, members) in in_pieces {
                self.fill(prompt, members)?;
            }
            left -= whole.prompts.iter().map(|prompt| prompt.len()).sum::<usize>().min(left);
            self.begin_whole(whole)?;
        }
        self.fill_on(left)
    }

    /// Computes whole prompts, then chooses first tokens and assigns slots.
    fn begin_whole(&mut self, admission: Admission) -> Result<(), EngineError> {
        if admission.members.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        match self.first_tokens(&admission) {
            Ok((choices, kept)) => self.seat(admission, choices, &kept, begun),
            Err(error) => {
                admission
                    .members
                    .into_iter()
                    .rev()
                    .for_each(|(request, _)| self.waiting.push_front(request));
                Err(error)
            }
        }
    }

    fn first_tokens(&self, admission: &Admission) -> Result<(Vec<Chosen>, Prefilled), EngineError> {
        let keep = admission.members.iter().any(|(request, _)| request.max_new_tokens > 1);
        let batch = RowBatch::new(self.shape(), &admission.prompts, self.decoder.device())?;
        let (logits, kept) = self.decoder.prefill(&batch, keep)?;
        let draws: Vec<Draw> = admission
            .members
            .iter()
            .map(|(request, row)| Draw::first(*row, request))
            .collect();
        let choices = choose(&logits, &draws)?.map_err(|requests| EngineError::NotFinite {
            version: self.version(),
            requests,
        })?;
        Ok((choices, kept))
    }

    /// Gives each request its first token. Requests that continue get slots after the live rows.
    fn seat(
        &mut self,
        admission: Admission,
        choices: Vec<Chosen>,
        kept: &Prefilled,
        begun: Instant,
    ) -> Result<(), EngineError> {
        let (version, max_context) = (self.version(), self.shape().max_context);
        let (live, mut seated) = (self.rows.len(), Vec::new());
        for ((request, prompt), choice) in admission.members.into_iter().zip(choices) {
            let mut row = Generation::new(request, version, begun);
            match row.push(choice, version, max_context) {
                Some(finish) => self.done.push(row.finish(finish)),
                None => seated.push((row, prompt)),
            }
        }
        if seated.is_empty() {
            return Ok(());
        }
        self.share(&mut seated, admission.prompts.len(), kept)?;
        // Rows with their own prompt come first, so that one copy fills their slots.
        seated.sort_by_key(|(row, _)| row.shared.is_some());
        let own: Vec<i64> = seated
            .iter()
            .filter(|(row, _)| row.shared.is_none())
            .map(|(_, prompt)| *prompt as i64)
            .collect();
        self.rows.extend(seated.into_iter().map(|(row, _)| row));
        self.make_room(live)?;
        if !own.is_empty() {
            let own = Tensor::f_from_slice(&own)?.f_to_device(self.decoder.device())?;
            self.cache.admit(live, kept, &own)?;
        }
        Ok(())
    }

    /// Shares the prompts that enough rows begin with.
    fn share(
        &mut self,
        begun: &mut [(Generation, usize)],
        prompts: usize,
        kept: &Prefilled,
    ) -> Result<(), EngineError> {
        if !self.cache.shares() {
            return Ok(());
        }
        let device = self.decoder.device();
        let mut members = vec![0; prompts];
        begun.iter().for_each(|(_, prompt)| members[*prompt] += 1);
        let mut shared: Vec<Option<Shared>> = vec![None; prompts];
        for (row, prompt) in begun {
            let (length, users) = (row.request.prompt_ids.len(), members[*prompt]);
            if Prefixes::pay(users, length, device) {
                row.shared = match shared[*prompt] {
                    None => Some(self.cache.prefixes.keep(kept, *prompt, length, users)?),
                    known => known,
                };
                shared[*prompt] = row.shared;
            }
        }
        Ok(())
    }
}

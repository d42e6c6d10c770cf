//! The state of all ranks, read on rank 0: rank 0 asks for a stretch of the flat buffer, and its
//! owners send their pieces. Rank 0 holds one block at a time, besides the copy that the reader
//! makes.

use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind, TchError, Tensor};

use super::compute_weights::ComputeWeights;
use super::ranks::{Request, Solo};
use super::stop::Stop;
use super::trainer::Trainer;
use crate::collective::{Collective, CollectiveError, Operation, Patience};
use crate::model::{Layout, ModelError, ParamSource};

/// Elements that are sent at once: 16 MiB.
const BLOCK: i64 = 1 << 22;

/// A buffer of the state. The numbers are those of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffer {
    Masters = 0,
    First = 1,
    Second = 2,
    Average = 3,
    /// The weights to compute with, in their own kind. All ranks may have all of them.
    Computing = 4,
    /// The same for the reference policy.
    Reference = 5,
}

impl Buffer {
    fn of(number: i64) -> Option<Self> {
        let state = [Self::Masters, Self::First, Self::Second, Self::Average];
        let mut all = state.into_iter().chain([Self::Computing, Self::Reference]);
        all.find(|buffer| *buffer as i64 == number)
    }
}

/// Reads the state on rank 0, while the other ranks [pass their pieces](Trainer::pass_pieces).
pub(super) struct Pieces<'a> {
    trainer: &'a Trainer,
    solo: &'a Solo<'a>,
}

impl Pieces<'_> {
    pub(super) fn stored(&self, buffer: Buffer) -> Stored<'_> {
        Stored { pieces: self, buffer }
    }

    /// Copies the elements of a stretch to all of `target`.
    fn copy(&self, buffer: Buffer, range: &Range<i64>, target: &Tensor) -> Result<(), ModelError> {
        let (trainer, target) = (self.trainer, target.f_detach()?);
        let mark = || trainer.ranks.pulse().mark();
        mark();
        if trainer.has_all(buffer) {
            let own = trainer.buffer(buffer)?.f_detach()?;
            let own = own.f_narrow(0, range.start, range.end - range.start)?;
            return Ok(target.shallow_clone().f_copy_(&own)?);
        }
        for start in range.clone().step_by(BLOCK as usize) {
            let block = start..(start + BLOCK).min(range.end);
            let target = target.f_narrow(0, start - range.start, block.end - start)?;
            let request = [buffer as i64, block.start, block.end];
            let asked = self
                .solo
                .ask(request, || trainer.exchange(buffer, &block, Some(&target)));
            // The end of the work reports the reason.
            asked.map_err(|_| ModelError::shape("another rank of the trainer is lost"))?;
            mark();
        }
        Ok(())
    }
}

/// One buffer of the state.
pub(super) struct Stored<'a> {
    pieces: &'a Pieces<'a>,
    buffer: Buffer,
}

impl ParamSource for Stored<'_> {
    fn layout(&self) -> &Arc<Layout> {
        &self.pieces.trainer.layout
    }

    fn kind(&self) -> Kind {
        let buffer = self.pieces.trainer.buffer(self.buffer);
        buffer.map_or(Kind::Float, Tensor::kind)
    }

    fn copy(&self, range: &Range<i64>, target: &Tensor) -> Result<(), ModelError> {
        self.pieces.copy(self.buffer, range, target)
    }
}

impl Trainer {
    /// Runs `work` on rank 0, which may read the state of all ranks. The others pass their pieces
    /// and get `None`, even if the work failed: all ranks must then [agree](super::ranks::Ranks).
    pub(super) fn on_first<T>(&self, work: impl FnOnce(&Pieces<'_>) -> Result<T, Stop>) -> Result<Option<T>, Stop> {
        if !self.ranks.is_first() {
            self.pass_pieces().map_err(Stop::Ended)?;
            return Ok(None);
        }
        let done = self.ranks.solo(|solo| work(&Pieces { trainer: self, solo }));
        done.map_err(Stop::Ended)?.map(Some)
    }

    /// Sends this rank's pieces when rank 0 asks for them, until it has done its work.
    fn pass_pieces(&self) -> Result<(), CollectiveError> {
        while let Some(request) = self.ranks.attend()? {
            let [number, start, end]: Request = request;
            if let Some(buffer) = Buffer::of(number) {
                self.exchange(buffer, &(start..end), None)?;
            }
        }
        Ok(())
    }

    /// Moves the pieces of a block to rank 0, which puts them into `target`.
    fn exchange(&self, buffer: Buffer, block: &Range<i64>, target: Option<&Tensor>) -> Result<(), CollectiveError> {
        let group = self.ranks.group();
        let call = |error: TchError| CollectiveError::of_call(group, Operation::Broadcast, &error);
        let own = self.buffer(buffer).and_then(|own| own.f_detach()).map_err(call)?;
        for held in self.parts.owners(block) {
            let length = held.range.end - held.range.start;
            let mut piece = if held.rank == self.ranks.rank() {
                let own = own.f_narrow(0, held.place, length).map_err(call)?;
                own.f_to_device(Device::Cpu).map_err(call)?
            } else {
                Tensor::f_zeros([length], (own.kind(), Device::Cpu)).map_err(call)?
            };
            if held.rank > 0 {
                group.broadcast(&mut piece, held.rank, Patience::Step)?;
            }
            if let Some(target) = target {
                let place = target.f_narrow(0, held.range.start - block.start, length);
                place.and_then(|mut place| place.f_copy_(&piece)).map_err(call)?;
            }
        }
        Ok(())
    }

    /// Returns true if this rank has all elements of a buffer.
    fn has_all(&self, buffer: Buffer) -> bool {
        let computing = match buffer {
            Buffer::Computing => Some(&self.computing),
            Buffer::Reference => self.reference.as_ref().map(|reference| &reference.computing),
            _ => None,
        };
        self.parts.is_whole() || matches!(computing, Some(ComputeWeights::Whole(_)))
    }

    fn buffer(&self, buffer: Buffer) -> Result<&Tensor, TchError> {
        let (first, second) = self.owned.optimizer.moments();
        match buffer {
            Buffer::Masters => Ok(&self.owned.masters),
            Buffer::First => Ok(first),
            Buffer::Second => Ok(second),
            Buffer::Average => {
                let average = self.owned.average.as_ref();
                average.ok_or_else(|| TchError::Torch("no average is kept".into()))
            }
            Buffer::Computing => Ok(self.computing.own()),
            Buffer::Reference => {
                let reference = self.reference.as_ref();
                let reference = reference.ok_or_else(|| TchError::Torch("no reference policy is kept".into()))?;
                Ok(reference.computing.own())
            }
        }
    }
}

#[cfg(test)]
impl Trainer {
    /// Returns both moments of all weights on rank 0, and nothing on the others. All ranks call it.
    pub(super) fn whole_moments(&self) -> Option<[Tensor; 2]> {
        let whole = 0..self.layout.numel() as i64;
        let moments = self.on_first(|pieces| {
            Ok([Buffer::First, Buffer::Second].map(|buffer| {
                let values = Tensor::zeros([whole.end], (Kind::Float, Device::Cpu));
                pieces.copy(buffer, &whole, &values).unwrap();
                values
            }))
        });
        moments.ok().unwrap()
    }
}

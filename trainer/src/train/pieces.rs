//! The state of all ranks, read on rank 0: rank 0 asks for a stretch of the flat buffer, and its
//! owners send their pieces. For a checkpoint rank 0 holds one parameter at a time. To publish or
//! sample split weights it holds all of them, in host memory.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind, TchError, Tensor};

use super::layout::Computing;
use super::stop::Stop;
use super::trainer::Trainer;
use crate::collective::{Collective, CollectiveError, Operation, Patience};
use crate::model::{Layout, ModelError, ParamSource, ParamSpec, Weights, kind_of};

/// Elements that are sent at once: 16 MiB.
const BLOCK: i64 = 1 << 22;
/// Rank 0's word that it needs no more pieces.
const END: i64 = -1;

/// A buffer of the state. The numbers are those of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffer {
    Masters = 0,
    First = 1,
    Second = 2,
    Average = 3,
}

impl Buffer {
    fn of(number: i64) -> Option<Self> {
        let all = [Self::Masters, Self::First, Self::Second, Self::Average];
        all.into_iter().find(|buffer| *buffer as i64 == number)
    }
}

/// Reads the state on rank 0, while the other ranks [pass their pieces](Trainer::pass_pieces).
pub(super) struct Pieces<'a> {
    trainer: &'a Trainer,
    lost: RefCell<Option<CollectiveError>>,
}

impl<'a> Pieces<'a> {
    pub(super) fn of(trainer: &'a Trainer) -> Self {
        Self {
            trainer,
            lost: RefCell::new(None),
        }
    }

    pub(super) fn stored(&self, buffer: Buffer) -> Stored<'_> {
        Stored { pieces: self, buffer }
    }

    /// Tells the other ranks that no request follows.
    pub(super) fn end(&self) -> Result<(), CollectiveError> {
        match self.lost.take() {
            Some(error) => Err(error),
            None if self.trainer.parts.is_whole() => Ok(()),
            None => self.trainer.request([END, 0, 0]),
        }
    }

    /// The elements of a stretch, in host memory.
    fn values(&self, buffer: Buffer, range: Range<i64>) -> Result<Tensor, ModelError> {
        let trainer = self.trainer;
        trainer.model.pulse().mark();
        let length = range.end - range.start;
        if trainer.parts.is_whole() {
            let own = trainer.buffer(buffer)?.f_detach()?;
            return Ok(own.f_narrow(0, range.start, length)?.f_to_device(Device::Cpu)?);
        }
        let lost = || ModelError::shape("another rank of the trainer is lost");
        if self.lost.borrow().is_some() {
            return Err(lost());
        }
        let values = Tensor::f_zeros([length], (Kind::Float, Device::Cpu))?;
        for start in range.clone().step_by(BLOCK as usize) {
            let block = start..(start + BLOCK).min(range.end);
            let target = values.f_narrow(0, start - range.start, block.end - start)?;
            let asked = trainer.request([buffer as i64, block.start, block.end]);
            if let Err(error) = asked.and_then(|()| trainer.exchange(buffer, &block, Some(&target))) {
                *self.lost.borrow_mut() = Some(error);
                return Err(lost());
            }
        }
        Ok(values)
    }
}

/// One buffer of the state, parameter by parameter.
pub(super) struct Stored<'a> {
    pieces: &'a Pieces<'a>,
    buffer: Buffer,
}

impl ParamSource for Stored<'_> {
    fn layout(&self) -> &Layout {
        &self.pieces.trainer.layout
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn bytes_as(&self, spec: &ParamSpec, kind: Kind) -> Result<Vec<u8>, ModelError> {
        let start = spec.offset as i64;
        let values = self.pieces.values(self.buffer, start..start + spec.numel as i64)?;
        let mut bytes = vec![0u8; spec.numel * kind.elt_size_in_bytes()];
        values.f_to_kind(kind)?.f_copy_data_u8(&mut bytes, spec.numel)?;
        Ok(bytes)
    }
}

impl Trainer {
    /// Sends this rank's pieces while rank 0 asks for them, between writes to its disk.
    pub(super) fn pass_pieces(&self) -> Result<(), Stop> {
        if self.parts.is_whole() {
            return Ok(());
        }
        loop {
            let [number, start, end] = self.requested().map_err(Stop::Ended)?;
            let Some(buffer) = Buffer::of(number) else {
                return Ok(());
            };
            self.exchange(buffer, &(start..end), None).map_err(Stop::Ended)?;
        }
    }

    fn request(&self, request: [i64; 3]) -> Result<(), CollectiveError> {
        let group = self.ranks.group();
        let call = |error: TchError| CollectiveError::of_call(group, Operation::Broadcast, &error);
        let mut value = Tensor::f_from_slice(&request).map_err(call)?;
        group.broadcast(&mut value, 0, Patience::Step)
    }

    fn requested(&self) -> Result<[i64; 3], CollectiveError> {
        let group = self.ranks.group();
        let call = |error: TchError| CollectiveError::of_call(group, Operation::Broadcast, &error);
        let mut value = Tensor::f_zeros([3], (Kind::Int64, Device::Cpu)).map_err(call)?;
        group.broadcast(&mut value, 0, Patience::Idle)?;
        let at = |index: i64| value.f_int64_value(&[index]).map_err(call);
        Ok([at(0)?, at(1)?, at(2)?])
    }

    /// Moves the pieces of a block to rank 0, which puts them into `target`.
    fn exchange(&self, buffer: Buffer, block: &Range<i64>, target: Option<&Tensor>) -> Result<(), CollectiveError> {
        let group = self.ranks.group();
        let call = |error: TchError| CollectiveError::of_call(group, Operation::Broadcast, &error);
        for held in self.parts.owners(block) {
            let length = held.range.end - held.range.start;
            let mut piece = if held.rank == self.ranks.rank() {
                let own = self.buffer(buffer).and_then(|own| own.f_detach()).map_err(call)?;
                let own = own.f_narrow(0, held.place, length).map_err(call)?;
                own.f_to_device(Device::Cpu).map_err(call)?
            } else {
                Tensor::f_zeros([length], (Kind::Float, Device::Cpu)).map_err(call)?
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
        }
    }
}

impl Trainer {
    /// Copies all weights to rank 0, in the dtype of the computation and in host memory, if no rank
    /// has them. The other ranks get `None`, and so do all if each has the weights.
    pub(super) fn weights_on_first(&self) -> Result<Option<Weights>, Stop> {
        if matches!(self.computing, Computing::Whole(_)) {
            return Ok(None);
        }
        if !self.ranks.is_first() {
            self.pass_pieces()?;
            return Ok(None);
        }
        let pieces = Pieces::of(self);
        let copied = || -> Result<Weights, ModelError> {
            let whole = Weights::of_layout(Arc::clone(&self.layout), Device::Cpu, kind_of(self.options.dtype))?;
            for spec in self.layout.params() {
                let (start, length) = (spec.offset as i64, spec.numel as i64);
                let values = pieces.values(Buffer::Masters, start..start + length)?;
                whole.flat().f_narrow(0, start, length)?.f_copy_(&values)?;
            }
            Ok(whole)
        };
        let copied = copied();
        pieces.end().map_err(Stop::Ended)?;
        copied.map(Some).map_err(|error| Stop::Failed(error.to_string()))
    }
}

#[cfg(test)]
impl Trainer {
    /// Returns both moments of all weights on rank 0, and nothing on the others. All ranks call it.
    pub(super) fn whole_moments(&self) -> Option<[Tensor; 2]> {
        if self.ranks.rank() > 0 {
            self.pass_pieces().ok().unwrap();
            return None;
        }
        let pieces = Pieces::of(self);
        let whole = 0..self.layout.numel() as i64;
        let moments = [Buffer::First, Buffer::Second].map(|buffer| pieces.values(buffer, whole.clone()).unwrap());
        pieces.end().unwrap();
        Some(moments)
    }
}

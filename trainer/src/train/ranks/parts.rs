//! The pieces of the flat buffers that the ranks own.
//!
//! The flat buffer of a model is cut into stretches, and the ranks split each stretch evenly
//! (Rajbhandari et al., ZeRO, arXiv:1910.02054). One stretch is enough for the optimizer's state. A
//! rank's own buffers hold its piece of each stretch, one after another. Pieces of a stretch are
//! equally long; zeros fill the end.

use std::ops::Range;

use tch::{Device, Kind, TchError, Tensor};

use crate::collective::{Collective, CollectiveError, Operation};
use crate::model::ModelError;
use crate::optim::{self, Shard, Stretch};

/// A stretch of the flat buffer, and its beginning in the buffers that receive it.
type Piece = (Range<i64>, i64);

/// A stretch of the flat buffer that the ranks split evenly.
#[derive(Debug, Clone)]
pub(in crate::train) struct Cut {
    /// In elements of the flat buffer.
    pub(in crate::train) range: Range<i64>,
    /// Elements of a piece.
    pub(in crate::train) stride: i64,
    /// The beginning of the piece in a rank's own buffers.
    pub(in crate::train) place: i64,
}

/// A stretch of the flat buffer in the own buffers of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::train) struct Held {
    pub(in crate::train) rank: usize,
    pub(in crate::train) range: Range<i64>,
    /// Its beginning in the rank's own buffers.
    pub(in crate::train) place: i64,
}

/// The pieces that each rank owns.
#[derive(Debug)]
pub(in crate::train) struct Parts {
    cuts: Vec<Cut>,
    rank: usize,
    ranks: usize,
}

impl Parts {
    /// Each rank owns the whole of `total` elements.
    pub(in crate::train) fn whole(total: i64) -> Self {
        Self::of(std::iter::once(0..total), 0, 1)
    }

    /// The ranks split each of `stretches`, which cover the flat buffer in order.
    pub(in crate::train) fn of(stretches: impl IntoIterator<Item = Range<i64>>, rank: usize, ranks: usize) -> Self {
        let mut place = 0;
        let cut = |range: Range<i64>| {
            let length = range.end - range.start;
            let stride = if ranks == 1 {
                length
            } else {
                Shard::stride(length, ranks)
            };
            place += stride;
            Cut {
                range,
                stride,
                place: place - stride,
            }
        };
        Self {
            cuts: stretches.into_iter().map(cut).collect(),
            rank,
            ranks,
        }
    }

    /// Returns true if this rank owns everything.
    pub(in crate::train) fn is_whole(&self) -> bool {
        self.ranks == 1
    }

    /// The number of ranks that the state is split among.
    pub(in crate::train) fn ranks(&self) -> usize {
        self.ranks
    }

    pub(in crate::train) fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// The length of a rank's own buffers.
    pub(in crate::train) fn length(&self) -> i64 {
        self.cuts.iter().map(|cut| cut.stride).sum()
    }

    /// The length of a buffer that begins with the flat one and that [`Self::gather`] can write.
    pub(in crate::train) fn room(&self) -> i64 {
        let end = |cut: &Cut| cut.range.start + cut.stride * self.ranks as i64;
        self.cuts.iter().map(end).max().unwrap_or(0)
    }

    fn held(&self, cut: &Cut, rank: usize) -> Held {
        let at = |rank: usize| (cut.range.start + cut.stride * rank as i64).min(cut.range.end);
        Held {
            rank,
            range: at(rank)..at(rank + 1),
            place: cut.place,
        }
    }

    /// This rank's pieces, without the zeros behind them.
    pub(in crate::train) fn pieces(&self) -> Vec<Piece> {
        let own = self.cuts.iter().map(|cut| self.held(cut, self.rank));
        own.map(|held| (held.range, held.place)).collect()
    }

    /// The parts of `wanted` by their owners, in the order of the flat buffer.
    pub(in crate::train) fn owners(&self, wanted: &Range<i64>) -> Vec<Held> {
        let near = |cut: &&Cut| cut.range.start < wanted.end && wanted.start < cut.range.end;
        let ranks = |cut| (0..self.ranks).map(move |rank| self.held(cut, rank));
        let cut = |held: Held| {
            let range = held.range.start.max(wanted.start)..held.range.end.min(wanted.end);
            Held {
                place: held.place + range.start - held.range.start,
                range,
                ..held
            }
        };
        let all = self.cuts.iter().filter(near).flat_map(ranks).map(cut);
        all.filter(|held| held.range.start < held.range.end).collect()
    }

    /// The stretches of this rank's own buffers; true for those that decay.
    pub(in crate::train) fn stretches(&self, decay: &[Range<i64>]) -> Vec<Stretch> {
        let moved = |(range, place): Piece| {
            let stretches = optim::stretches(&range, decay).into_iter();
            stretches.map(move |(part, decays)| (part.start + place..part.end + place, decays))
        };
        self.pieces().into_iter().flat_map(moved).collect()
    }

    /// Zeros as long as the own buffers.
    pub(in crate::train) fn zeros(&self, kind: Kind, device: Device) -> Result<Tensor, TchError> {
        Tensor::f_zeros([self.length()], (kind, device))
    }

    /// Fills this rank's pieces in `own`: `copy` writes a stretch of the flat buffer to a tensor.
    pub(in crate::train) fn take(
        &self,
        own: &Tensor,
        copy: impl Fn(&Range<i64>, &Tensor) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let own = own.f_detach()?;
        for (range, place) in self.pieces() {
            copy(&range, &own.f_narrow(0, place, range.end - range.start)?)?;
        }
        Ok(())
    }

    /// The sums of squares of this rank's own buffer, block by block.
    pub(in crate::train) fn squares(&self, own: &Tensor) -> Result<Vec<f64>, TchError> {
        let square = |(range, place): Piece| optim::squares(&own.f_narrow(0, place, range.end - range.start)?);
        let squares: Result<Vec<_>, _> = self.pieces().into_iter().map(square).collect();
        Ok(squares?.concat())
    }

    /// This rank's pieces inside `room`, if they are one.
    pub(in crate::train) fn view(&self, room: &Tensor) -> Result<Option<Tensor>, TchError> {
        match self.cuts.as_slice() {
            [cut] => {
                let start = cut.range.start + cut.stride * self.rank as i64;
                Ok(Some(room.f_narrow(0, start, cut.stride)?))
            }
            _ => Ok(None),
        }
    }

    /// Fills `room` with the pieces of all ranks; `own` has this rank's, in the kind and on the
    /// device of `room`. The zeros behind a stretch are overwritten by the next stretch.
    pub(in crate::train) fn gather(
        &self,
        group: &dyn Collective,
        own: &Tensor,
        room: &Tensor,
    ) -> Result<(), CollectiveError> {
        let call = |error: TchError| CollectiveError::of_call(group, Operation::AllGather, &error);
        for cut in &self.cuts {
            let piece = own.f_narrow(0, cut.place, cut.stride).map_err(call)?;
            let mut whole = room
                .f_narrow(0, cut.range.start, cut.stride * self.ranks as i64)
                .map_err(call)?;
            group.all_gather(&mut whole, &piece)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three stretches, one shorter than the number of ranks times the alignment.
    fn parts(rank: usize) -> Parts {
        Parts::of([0..1000, 1000..1003, 1003..1500], rank, 3)
    }

    #[test]
    fn pieces_of_all_ranks_cover_the_buffer_once() {
        let mut pieces: Vec<Range<i64>> = (0..3)
            .flat_map(|rank| parts(rank).pieces())
            .map(|(range, _)| range)
            .filter(|range| !range.is_empty())
            .collect();
        pieces.sort_by_key(|range| range.start);
        assert_eq!((pieces[0].start, pieces[pieces.len() - 1].end), (0, 1500));
        assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
    }

    #[test]
    fn owners_of_a_stretch_hold_it_in_order() {
        let flat = Tensor::arange(1500, (Kind::Float, Device::Cpu));
        let own: Vec<Tensor> = (0..3)
            .map(|rank| {
                let own = parts(rank).zeros(Kind::Float, Device::Cpu).unwrap();
                let copy = |range: &Range<i64>, target: &Tensor| {
                    let values = flat.narrow(0, range.start, range.end - range.start);
                    Ok(target.shallow_clone().f_copy_(&values)?)
                };
                parts(rank).take(&own, copy).unwrap();
                own
            })
            .collect();
        for wanted in [0..1500, 999..1004, 10..11, 1400..1500] {
            let found = parts(0).owners(&wanted);
            let values = found
                .iter()
                .map(|held| own[held.rank].narrow(0, held.place, held.range.end - held.range.start));
            let values: Vec<Tensor> = values.collect();
            assert!(Tensor::cat(&values, 0).equal(&flat.narrow(0, wanted.start, wanted.end - wanted.start)));
        }
    }

    #[test]
    fn decay_follows_the_pieces() {
        let parts = parts(1);
        let stretches = parts.stretches(std::slice::from_ref(&(900..1100)));
        let decaying = |place: i64| {
            stretches
                .iter()
                .any(|(range, decays)| *decays && range.contains(&place))
        };
        for (range, place) in parts.pieces() {
            for (at, flat) in (place..).zip(range) {
                assert_eq!(decaying(at), (900..1100).contains(&flat), "{flat}");
            }
        }
    }
}

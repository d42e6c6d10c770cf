//! A part of the flat buffer with one owner: the partition of optimizer states of ZeRO (Rajbhandari
//! et al., arXiv:1910.02054, stage 1).
//!
//! All parameters are in one flat buffer, so a part is a range of elements, and its ends may cut
//! through parameters. AdamW works element by element. Owners of all parts together therefore
//! compute the same as one owner of the whole, and each holds only its part of the moments.

use std::ops::Range;

/// Parts begin at multiples of this number of elements. Where one thread steps in blocks, vector
/// instructions then group the same elements as in the whole buffer, and the bits are equal.
/// Several threads cut blocks at arbitrary places, and the fused kernel's vectors begin at each
/// stretch; there the last digit may differ.
const ALIGN: i64 = 64;

/// A contiguous part of a flat buffer, in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    range: Range<i64>,
}

impl Shard {
    /// The whole of a buffer of `total` elements.
    #[must_use]
    pub fn whole(total: i64) -> Self {
        Self { range: 0..total }
    }

    /// Part `rank` (from 0) of `ranks` nearly equal ones. The last may be shorter, and parts of a
    /// small buffer may be empty.
    #[must_use]
    pub fn of(total: i64, rank: usize, ranks: usize) -> Self {
        let rank = i64::try_from(rank).unwrap_or(i64::MAX);
        let each = Self::stride(total, ranks);
        let at = |rank: i64| each.saturating_mul(rank).min(total);
        Self {
            range: at(rank)..at(rank.saturating_add(1)),
        }
    }

    /// The distance between the beginnings of two parts. A buffer of `ranks` times as many elements
    /// has parts of equal length.
    #[must_use]
    pub fn stride(total: i64, ranks: usize) -> i64 {
        let ranks = i64::try_from(ranks.max(1)).unwrap_or(i64::MAX);
        let share = total / ranks + i64::from(total % ranks > 0);
        (share / ALIGN + i64::from(share % ALIGN > 0)) * ALIGN
    }

    #[must_use]
    pub fn range(&self) -> Range<i64> {
        self.range.clone()
    }

    /// In elements.
    #[must_use]
    pub fn len(&self) -> i64 {
        self.range.end - self.range.start
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A stretch of an owner's buffers, and true if it decays.
pub type Stretch = (Range<i64>, bool);

/// Cuts a piece of the flat buffer into neighbouring stretches. They are counted from the beginning
/// of the piece. `decay` lists the decaying ranges of the whole buffer, in order.
#[must_use]
pub fn stretches(piece: &Range<i64>, decay: &[Range<i64>]) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    let mut next = piece.start;
    let mut push = |range: Range<i64>, decays: bool| {
        if range.start < range.end {
            stretches.push((range.start - piece.start..range.end - piece.start, decays));
        }
    };
    for range in decay {
        let (start, end) = (range.start.max(next), range.end.min(piece.end));
        if start < end {
            push(next..start, false);
            push(start..end, true);
            next = end;
        }
    }
    push(next..piece.end, false);
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_cover_the_buffer_once(total in 0i64..5000, ranks in 1usize..9) {
            let mut next = 0;
            for rank in 0..ranks {
                let shard = Shard::of(total, rank, ranks);
                prop_assert_eq!(shard.range().start, next);
                prop_assert!(shard.is_empty() || next % ALIGN == 0);
                prop_assert!(shard.len() <= Shard::stride(total, ranks));
                prop_assert!(shard.len() <= total / ranks as i64 + ALIGN);
                next = shard.range().end;
            }
            prop_assert_eq!(next, total);
            prop_assert!(Shard::of(total, ranks, ranks).is_empty());
        }

        #[test]
        fn stretches_cover_a_part_and_know_which_decay(
            total in 1i64..600, ranks in 1usize..4, cuts in prop::collection::vec(0i64..600, 0..9),
        ) {
            let mut cuts: Vec<i64> = cuts.into_iter().map(|cut| cut.min(total)).collect();
            cuts.sort_unstable();
            let decay: Vec<Range<i64>> = cuts.chunks_exact(2).map(|ends| ends[0]..ends[1]).collect();
            for rank in 0..ranks {
                let piece = Shard::of(total, rank, ranks).range();
                let mut next = 0;
                for (range, decays) in stretches(&piece, &decay) {
                    prop_assert_eq!(range.start, next);
                    prop_assert!(range.start < range.end);
                    for i in range.clone() {
                        prop_assert_eq!(decays, decay.iter().any(|d| d.contains(&(piece.start + i))));
                    }
                    next = range.end;
                }
                prop_assert_eq!(next, piece.end - piece.start);
            }
        }
    }
}

//! Splits a batch into micro-batches and assigns each micro-batch to a rank.

use std::cmp::Reverse;

use broker::protocol::train::TrainBatch;

use super::micro::{MicroBatch, cost, member, pack, torn};
use super::rows::{Row, Trained};
use crate::loss::joint::Member;

/// The log-probs, entropies and reference log-probs of a micro-batch's tokens. Without a reference
/// the last list is empty.
pub(crate) type HeadLists = (Vec<f32>, Vec<f32>, Vec<f32>);

/// A batch and its micro-batches, seen from one rank. The micro-batches do not depend on the number
/// of ranks; only their assignment does.
pub(crate) struct Work<'a> {
    pub(crate) batch: &'a TrainBatch,
    pub(crate) rows: Vec<Row>,
    packed: Vec<MicroBatch>,
    /// For each rank, the indices of its micro-batches in `packed`, ascending.
    dealt: Vec<Vec<usize>>,
    rank: usize,
}

impl<'a> Work<'a> {
    pub(crate) fn new(batch: &'a TrainBatch, rows: Vec<Row>, budget: usize, rank: usize, ranks: usize) -> Self {
        let packed = pack(&rows, budget);
        let costs: Vec<usize> = packed.iter().map(|indices| cost(&rows, indices)).collect();
        Self {
            batch,
            dealt: deal(&costs, ranks),
            packed,
            rows,
            rank,
        }
    }

    /// The index of the micro-batch that this rank computes in a pass, ascending; `None` in a pass
    /// of other ranks only.
    pub(crate) fn of_pass(&self, pass: usize) -> Option<usize> {
        broker::fail::point_of("pass.begun", &self.rank);
        self.dealt[self.rank].get(pass).copied()
    }

    /// The largest number of micro-batches that any rank computes.
    pub(crate) fn passes(&self) -> usize {
        self.dealt.iter().map(Vec::len).max().unwrap_or(0)
    }

    pub(crate) fn rows_of(&self, micro: usize) -> &[usize] {
        &self.packed[micro]
    }

    /// The trained tokens of a micro-batch, in order.
    pub(crate) fn tokens(&self, micro: usize) -> impl Iterator<Item = Trained> {
        let rows = self.packed[micro].iter().map(|row| &self.rows[*row]);
        rows.flat_map(|row| row.trained.iter().copied())
    }

    /// Returns true if the tokens of one answer are in different micro-batches.
    pub(crate) fn tears_answers(&self) -> bool {
        torn(&self.rows, &self.packed, self.batch)
    }

    /// Merges the results of all ranks into the order of the micro-batches. `of_ranks` holds, for
    /// each rank, one entry per micro-batch of that rank. Returns `None` if an entry is missing.
    pub(crate) fn in_order<T>(&self, of_ranks: Vec<Vec<T>>) -> Option<Vec<T>> {
        let mut places: Vec<Option<T>> = self.packed.iter().map(|_| None).collect();
        for (own, lists) in self.dealt.iter().zip(of_ranks) {
            for (micro, list) in own.iter().zip(lists) {
                places[*micro] = Some(list);
            }
        }
        places.into_iter().collect()
    }

    /// All trained tokens of the batch, micro-batch after micro-batch.
    pub(crate) fn members(&self, lists: &[HeadLists]) -> Vec<Member> {
        let mut members = Vec::new();
        for (micro, (logprobs, entropies, reference)) in lists.iter().enumerate() {
            let values = logprobs.iter().zip(entropies).enumerate();
            for (token, (place, (logprob, entropy))) in self.tokens(micro).zip(values) {
                let reference = reference.get(place).copied();
                members.push(member(self.batch, token, *logprob, *entropy, reference));
            }
        }
        members
    }

    /// The number of trained tokens before each micro-batch.
    pub(crate) fn starts(&self) -> Vec<usize> {
        let counts = (0..self.packed.len()).map(|micro| self.tokens(micro).count());
        let starts = counts.scan(0, |end, count| {
            let start = *end;
            *end += count;
            Some(start)
        });
        starts.collect()
    }
}

/// Assigns micro-batches to ranks and returns each rank's indices, ascending. Takes the
/// micro-batches in order of falling cost. Each goes to the rank with the lowest total cost so far.
/// In a tie the smaller index wins, for micro-batches and for ranks.
fn deal(costs: &[usize], ranks: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by_key(|micro| (Reverse(costs[*micro]), *micro));
    let mut loads = vec![0; ranks];
    let mut dealt = vec![Vec::new(); ranks];
    for micro in order {
        let rank = (0..ranks).min_by_key(|rank| (loads[*rank], *rank)).unwrap_or(0);
        loads[rank] += costs[micro];
        dealt[rank].push(micro);
    }
    for own in &mut dealt {
        own.sort_unstable();
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dearest_goes_to_the_least_loaded_rank() {
        assert_eq!(deal(&[3, 9, 4, 4, 1], 2), [vec![1, 4], vec![0, 2, 3]]);
        assert_eq!(deal(&[5, 5, 5], 2), [vec![0, 2], vec![1]]);
        assert_eq!(deal(&[7], 3), [vec![0], vec![], vec![]]);
    }

    proptest! {
        #[test]
        fn each_micro_batch_has_one_rank_and_loads_are_near(costs in prop::collection::vec(1usize..50, 0..30), ranks in 1usize..5) {
            let dealt = deal(&costs, ranks);
            let mut seen: Vec<usize> = dealt.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..costs.len()).collect::<Vec<_>>());
            let loads: Vec<usize> = dealt.iter().map(|own| own.iter().map(|micro| costs[*micro]).sum()).collect();
            let (most, least) = (loads.iter().max().unwrap(), loads.iter().min().unwrap());
            prop_assert!(most - least <= costs.iter().copied().max().unwrap_or(0));
            prop_assert!(dealt.iter().all(|own| own.is_sorted()));
        }
    }
}

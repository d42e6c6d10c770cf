//! Which rows of a decode step are attended together where libtorch attends: one call reads as many keys for each of its rows as the longest of
//! them has. So rows of like lengths stand beside each other, and each bucket of them has a call of its own where that reads less than the
//! call costs.

use tch::{Device, Kind};

/// How a decode step reads the keys of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Each row its own, by kernels of this crate.
    Own,
    /// Each row as many as the longest of its bucket has, by libtorch. One more bucket costs as much as reading `call` bytes of keys and
    /// values of one layer.
    Buckets { call: usize },
}

/// By `engine_bench`, in f32 and bf16: libtorch's attention reads so much in the time that one more call of it takes.
const CPU_CALL: usize = 256 << 10;
/// Reckoned: some launches of 5 microseconds each, at 2 to 3 TB a second. No GPU has measured it.
const GPU_CALL: usize = 64 << 20;

impl Reading {
    /// What a CPU without wide vectors does.
    pub const BUCKETS: Self = Self::Buckets { call: CPU_CALL };

    /// All rows in one call.
    pub const LONGEST: Self = Self::Buckets { call: usize::MAX };

    /// The fastest one there.
    #[must_use]
    pub fn of(device: Device, kind: Kind) -> Self {
        match (device, kind) {
            (Device::Cpu, Kind::Float | Kind::BFloat16) if kernels::pays() => Self::Own,
            (Device::Cpu, _) => Self::BUCKETS,
            _ => Self::Buckets { call: GPU_CALL },
        }
    }
}

/// Neighbouring rows that are attended in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) rows: usize,
    pub(super) longest: usize,
}

/// Rows are told apart by this many tokens.
const WIDTH: usize = 64;

/// Steps that an order of the rows is expected to last, before others come and go.
const LASTS: usize = 32;

/// Cuts rows as they stand into the buckets that cost least together: the keys that are read, and `call` keys for each bucket.
pub(super) fn cut(lengths: &[usize], call: usize) -> Vec<Bucket> {
    let like = |a: &usize, b: &usize| a.div_ceil(WIDTH) == b.div_ceil(WIDTH);
    let bucket = |rows: &[usize]| Bucket {
        rows: rows.len(),
        longest: rows.iter().copied().max().unwrap_or(0),
    };
    let whole = bucket(lengths);
    let wasted = whole.rows * whole.longest - lengths.iter().sum::<usize>();
    if lengths.is_empty() || wasted <= call {
        return vec![whole];
    }
    let units: Vec<Bucket> = lengths.chunk_by(like).map(bucket).collect();
    // Of the first `end` units: what they cost at least, and where the last bucket of that begins.
    let mut least = vec![(0, 0)];
    for end in 1..=units.len() {
        let mut last = Bucket { rows: 0, longest: 0 };
        let mut best = (usize::MAX, 0);
        for start in (0..end).rev() {
            last = last.with(units[start]);
            best = best.min((last.cost(call).saturating_add(least[start].0), start));
        }
        least.push(best);
    }
    let (mut buckets, mut end) = (Vec::new(), units.len());
    while end > 0 {
        let start = least[end].1;
        let none = Bucket { rows: 0, longest: 0 };
        buckets.push(units[start..end].iter().fold(none, |all, unit| all.with(*unit)));
        end = start;
    }
    buckets.reverse();
    buckets
}

impl Bucket {
    fn with(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            longest: self.longest.max(other.longest),
        }
    }

    fn cost(self, call: usize) -> usize {
        (self.rows * self.longest).saturating_add(call)
    }
}

fn cost(buckets: &[Bucket], call: usize) -> usize {
    let costs = buckets.iter().map(|bucket| bucket.cost(call));
    costs.fold(0, usize::saturating_add)
}

/// Which rows to exchange, one pair after the other, so that rows of like lengths stand beside each other, the longest first. None where the
/// keys that are then not read, in the steps that this is expected to last, are fewer than the exchanges cost.
pub(crate) fn exchanges(lengths: &[usize], call: usize) -> Vec<[usize; 2]> {
    let now = cost(&cut(lengths, call), call);
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&row| std::cmp::Reverse(lengths[row]));
    let sorted: Vec<usize> = order.iter().map(|&row| lengths[row]).collect();
    let buckets = cut(&sorted, call);
    let spared = now.saturating_sub(cost(&buckets, call));
    if spared == 0 {
        return Vec::new();
    }
    // The bucket of each place, and the one that the row there belongs to.
    let of_place: Vec<usize> = (0..)
        .zip(&buckets)
        .flat_map(|(at, bucket)| vec![at; bucket.rows])
        .collect();
    let mut of_row = vec![0; lengths.len()];
    order
        .iter()
        .zip(&of_place)
        .for_each(|(&row, &bucket)| of_row[row] = bucket);
    let (mut found, mut price, mut lengths) = (Vec::new(), 0usize, lengths.to_vec());
    for place in 0..of_row.len() {
        while let Some(other) = partner(place, &of_row, &of_place) {
            price = price.saturating_add(price_of(lengths[place].max(lengths[other]), call));
            of_row.swap(place, other);
            lengths.swap(place, other);
            found.push([place, other]);
        }
    }
    if spared.saturating_mul(LASTS) > price {
        found
    } else {
        Vec::new()
    }
}

/// With whom the row at `place` is exchanged: a row in the bucket it belongs to that belongs elsewhere, here if there is one.
fn partner(place: usize, of_row: &[usize], of_place: &[usize]) -> Option<usize> {
    let (here, wanted) = (of_place[place], of_row[place]);
    if here == wanted {
        return None;
    }
    let strange = |&other: &usize| of_place[other] == wanted && of_row[other] != wanted;
    let mut strangers = (0..of_row.len()).filter(strange);
    let first = strangers.clone().next();
    strangers.find(|&other| of_row[other] == here).or(first)
}

/// Three copies of two tensors, each read and written.
fn price_of(longest: usize, call: usize) -> usize {
    (6 * longest).saturating_add(call.saturating_mul(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(buckets: &[Bucket]) -> Vec<(usize, usize)> {
        buckets.iter().map(|bucket| (bucket.rows, bucket.longest)).collect()
    }

    fn exchanged(lengths: &[usize], call: usize) -> Vec<usize> {
        let mut after = lengths.to_vec();
        exchanges(lengths, call).iter().for_each(|&[a, b]| after.swap(a, b));
        after
    }

    #[test]
    fn kernels_are_of_cpus_in_f32_and_bf16() {
        for kind in [Kind::Float, Kind::BFloat16] {
            assert_eq!(Reading::of(Device::Cpu, kind) == Reading::Own, kernels::pays());
        }
        assert_eq!(Reading::of(Device::Cpu, Kind::Half), Reading::BUCKETS);
        let gpu = Reading::Buckets { call: GPU_CALL };
        assert_eq!(Reading::of(Device::Cuda(0), Kind::BFloat16), gpu);
    }

    #[test]
    fn a_bucket_more_must_spare_more_than_its_call() {
        let rows = [500, 500, 100, 100, 100];
        assert_eq!(pairs(&cut(&rows, 1199)), [(2, 500), (3, 100)]);
        assert_eq!(pairs(&cut(&rows, 1200)), [(5, 500)]);
        assert_eq!(pairs(&cut(&rows, usize::MAX)), [(5, 500)]);
        assert_eq!(pairs(&cut(&[], 0)), [(0, 0)]);
        // Lengths that are nearly alike are no reason for a call, however little it costs.
        assert_eq!(pairs(&cut(&[100, 70, 128, 65], 0)), [(4, 128)]);
    }

    #[test]
    fn one_long_row_among_many_is_brought_to_the_front() {
        let mut rows = vec![100; 40];
        rows[17] = 4000;
        assert_eq!(exchanges(&rows, 1000), [[0, 17]]);
        assert_eq!(exchanges(&rows, usize::MAX), [[0; 2]; 0]);
        rows.swap(0, 17);
        assert_eq!(exchanges(&rows, 1000), [[0; 2]; 0], "it stays");
    }

    #[test]
    fn rows_are_not_moved_for_less_than_the_moving_costs() {
        // A call fewer in each of 32 steps.
        let rows = |length: usize| [length, 2 * length, length];
        assert_eq!(exchanges(&rows(64), 40), [[0, 1]]);
        assert_eq!(exchanges(&rows(640), 40), [[0; 2]; 0]);
    }

    /// What the rows cost at least, in whatever buckets, each of neighbours.
    fn least(lengths: &[usize], call: usize) -> usize {
        let places = lengths.len() - 1;
        (0..1u32 << places)
            .map(|cuts| {
                let mut buckets = vec![vec![]];
                for (row, length) in lengths.iter().enumerate() {
                    buckets.last_mut().unwrap().push(*length);
                    if row < places && cuts >> row & 1 == 1 {
                        buckets.push(vec![]);
                    }
                }
                let of = |rows: &Vec<usize>| rows.len() * rows.iter().max().unwrap() + call;
                buckets.iter().map(of).sum()
            })
            .min()
            .unwrap()
    }

    proptest! {
        #[test]
        fn no_other_cut_costs_less(lengths in prop::collection::vec(1usize..9, 1..9), call in 0usize..1000) {
            let lengths: Vec<usize> = lengths.iter().map(|length| length * WIDTH).collect();
            let buckets = cut(&lengths, call);
            prop_assert_eq!(cost(&buckets, call), least(&lengths, call));
            let mut rows = lengths.as_slice();
            for bucket in buckets {
                let (these, rest) = rows.split_at(bucket.rows);
                prop_assert_eq!(these.iter().max(), Some(&bucket.longest));
                rows = rest;
            }
            prop_assert!(rows.is_empty());
        }

        #[test]
        fn exchanged_rows_cost_what_sorted_ones_do_and_stay(lengths in prop::collection::vec(1usize..3000, 1..70), call in 0usize..5000) {
            let after = exchanged(&lengths, call);
            let [mut sorted, mut same] = [lengths.clone(), after.clone()];
            sorted.sort_by_key(|length| std::cmp::Reverse(*length));
            same.sort_by_key(|length| std::cmp::Reverse(*length));
            prop_assert_eq!(&sorted, &same, "no row is lost");
            if after != lengths {
                prop_assert_eq!(cost(&cut(&after, call), call), cost(&cut(&sorted, call), call));
                prop_assert!(exchanges(&lengths, call).len() < lengths.len());
            }
            // A step later all are longer, and nothing has changed.
            let later: Vec<usize> = after.iter().map(|length| length + WIDTH).collect();
            prop_assert_eq!(exchanged(&later, call), later);
        }
    }
}

//! Groups the rows of a decode step where libtorch computes attention.
//!
//! One call reads the same number of keys for each of its rows: the length of the longest row.
//! Rows of similar length are therefore brought together in buckets. A bucket gets a separate call
//! if this saves more keys than the call costs. All rows grow by one token a step. The cheapest
//! layout therefore stays the cheapest until rows come or go.

use tch::{Device, Kind};

use crate::shim::flash;

/// How a decode step reads the keys of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Each row reads its own keys, through the crate `kernels`.
    Own,
    /// Each row reads its own keys on a GPU, in one call of flash attention.
    Ragged,
    /// Each row reads as many keys as the longest row of its bucket has, through libtorch. An
    /// additional bucket costs as much as reading `call` bytes of keys and values of one layer.
    Buckets { call: usize },
}

/// The cost of a call on a CPU, in bytes. It is better than 64 KiB and 1 MiB by a
/// few percent, for rows of different lengths in f32 and bf16.
const CPU_CALL: usize = 256 << 10;
/// The cost of a call on a GPU, in bytes. This is an estimate, not a measurement: the bytes that a
/// GPU reads at 2 to 3 TB a second during some launches of 5 microseconds each.
const GPU_CALL: usize = 64 << 20;

impl Reading {
    /// The buckets for libtorch's attention on a CPU.
    pub const BUCKETS: Self = Self::Buckets { call: CPU_CALL };

    /// All rows in one call.
    pub const LONGEST: Self = Self::Buckets { call: usize::MAX };

    /// Returns an engine's default for this device and kind, and heads of this size.
    #[must_use]
    pub fn of(device: Device, kind: Kind, head_dim: usize) -> Self {
        match (device, kind) {
            (Device::Cpu, Kind::Float | Kind::BFloat16) if kernels::pays() => Self::Own,
            (Device::Cpu, _) => Self::BUCKETS,
            (_, Kind::BFloat16) if flash::takes(device, head_dim) => Self::Ragged,
            _ => Self::Buckets { call: GPU_CALL },
        }
    }
}

/// An order of rows, and their buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketLayout {
    /// Pairs of slots that exchange their rows, one pair after the other.
    pub(crate) exchanges: Vec<[usize; 2]>,
    /// The number of neighbouring rows in each bucket, after the exchanges.
    pub(crate) buckets: Vec<usize>,
}

/// The number of steps that a layout is expected to last before rows come or go.
const LASTS: usize = 32;

/// The factors on the cost of a call that [`lay_out`] tries. A higher cost gives fewer buckets, and
/// fewer buckets need fewer exchanges.
const DEARER: [usize; 3] = [1, 4, 16];

/// Returns the cheapest layout for rows of these lengths. The rows move into buckets with the
/// longest first if the layout is expected to save more than the exchanges cost. Otherwise they
/// keep their order. Each bucket adds a cost of `call` keys.
pub(crate) fn lay_out(lengths: &[usize], call: usize) -> BucketLayout {
    let as_they_stand = cut(lengths, call);
    let now = cost(&as_they_stand, call);
    let mut best = BucketLayout {
        exchanges: Vec::new(),
        buckets: counts(&as_they_stand),
    };
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&row| std::cmp::Reverse(lengths[row]));
    let sorted: Vec<usize> = order.iter().map(|&row| lengths[row]).collect();
    let mut most = 0;
    for dearer in DEARER {
        let buckets = cut(&sorted, call.saturating_mul(dearer));
        let spared = now.saturating_sub(cost(&buckets, call)).saturating_mul(LASTS);
        if spared <= most {
            continue;
        }
        let exchanges = exchanges(&order, &buckets);
        let gain = spared.saturating_sub(price(&exchanges, lengths, call));
        if gain > most {
            most = gain;
            best = BucketLayout {
                exchanges,
                buckets: counts(&buckets),
            };
        }
    }
    best
}

/// Neighbouring rows that share one call of attention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bucket {
    rows: usize,
    longest: usize,
}

impl Bucket {
    fn of(lengths: &[usize]) -> Self {
        Self {
            rows: lengths.len(),
            longest: lengths.iter().copied().max().unwrap_or(0),
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            longest: self.longest.max(other.longest),
        }
    }

    /// Returns the cost of attention over this bucket, in keys.
    fn cost(self, call: usize) -> usize {
        (self.rows * self.longest).saturating_add(call)
    }
}

fn all_of(buckets: &[Bucket]) -> Bucket {
    let none = Bucket::default();
    buckets.iter().fold(none, |all, bucket| all.with(*bucket))
}

fn counts(buckets: &[Bucket]) -> Vec<usize> {
    buckets.iter().map(|bucket| bucket.rows).collect()
}

fn cost(buckets: &[Bucket], call: usize) -> usize {
    let costs = buckets.iter().map(|bucket| bucket.cost(call));
    costs.fold(0, usize::saturating_add)
}

/// The largest number of units that [`cut`] divides into buckets. A unit is a run of neighbouring
/// rows of equal length. If there are too many, several neighbouring runs form a unit. The time for
/// cutting grows with the square of this number.
const MOST_UNITS: usize = 256;

/// Cuts rows into the buckets with the least total cost, in the order of the rows. With more than
/// [`MOST_UNITS`] runs of equal length, some neighbours of different lengths stay together.
fn cut(lengths: &[usize], call: usize) -> Vec<Bucket> {
    let whole = Bucket::of(lengths);
    let wasted = whole.rows * whole.longest - lengths.iter().sum::<usize>();
    if lengths.is_empty() || wasted <= call {
        return vec![whole];
    }
    // Rows of equal length stay together.
    let alike: Vec<Bucket> = lengths.chunk_by(|a, b| a == b).map(Bucket::of).collect();
    let runs = alike.chunks(alike.len().div_ceil(MOST_UNITS));
    let units: Vec<Bucket> = runs.map(all_of).collect();
    // `least[end]` is about the first `end` units: their least cost, and the start of their last
    // bucket.
    let mut least = vec![(0, 0)];
    for end in 1..=units.len() {
        let (mut last, mut best) = (Bucket::default(), (usize::MAX, 0));
        for start in (0..end).rev() {
            last = last.with(units[start]);
            if last.cost(call) >= best.0 {
                break;
            }
            best = best.min((last.cost(call).saturating_add(least[start].0), start));
        }
        least.push(best);
    }
    let (mut buckets, mut end) = (Vec::new(), units.len());
    while end > 0 {
        let start = least[end].1;
        buckets.push(all_of(&units[start..end]));
        end = start;
    }
    buckets.reverse();
    buckets
}

/// Returns pairs of places. Exchanging the rows of each pair in turn brings every row into its
/// bucket. `order` lists the rows of the first bucket, then those of the next. No exchange moves a
/// row that is already in its bucket.
fn exchanges(order: &[usize], buckets: &[Bucket]) -> Vec<[usize; 2]> {
    let of_place: Vec<usize> = (0..)
        .zip(buckets)
        .flat_map(|(at, bucket)| std::iter::repeat_n(at, bucket.rows))
        .collect();
    let mut of_row = vec![0; order.len()];
    order
        .iter()
        .zip(&of_place)
        .for_each(|(&row, &bucket)| of_row[row] = bucket);
    // For each bucket, the places with rows of other buckets.
    let mut strange: Vec<Vec<usize>> = vec![Vec::new(); buckets.len()];
    for (place, (&row, &own)) in of_row.iter().zip(&of_place).enumerate() {
        if row != own {
            strange[own].push(place);
        }
    }
    let mut found = Vec::new();
    for place in 0..of_row.len() {
        while of_row[place] != of_place[place] {
            let there = &mut strange[of_row[place]];
            there.retain(|&other| of_row[other] != of_place[other]);
            // A row that belongs here is the best choice: one exchange then settles both rows.
            let fits = there.iter().find(|&&other| of_row[other] == of_place[place]);
            let Some(&other) = fits.or(there.first()) else { break };
            of_row.swap(place, other);
            found.push([place, other]);
        }
    }
    found
}

/// Returns the cost of exchanges in keys. An exchange makes three copies of two tensors each. Each
/// copy costs a read, a write and a call.
fn price(exchanges: &[[usize; 2]], lengths: &[usize], call: usize) -> usize {
    let mut lengths = lengths.to_vec();
    let of_one = |[a, b]: &[usize; 2]| {
        lengths.swap(*a, *b);
        (6 * lengths[*a].max(lengths[*b])).saturating_add(call.saturating_mul(3))
    };
    exchanges.iter().map(of_one).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(buckets: &[Bucket]) -> Vec<(usize, usize)> {
        buckets.iter().map(|bucket| (bucket.rows, bucket.longest)).collect()
    }

    /// Returns the lengths in their order after the exchanges, and the layout.
    fn laid_out(lengths: &[usize], call: usize) -> (Vec<usize>, BucketLayout) {
        let (mut after, layout) = (lengths.to_vec(), lay_out(lengths, call));
        layout.exchanges.iter().for_each(|&[a, b]| after.swap(a, b));
        (after, layout)
    }

    fn cost_of(lengths: &[usize], buckets: &[usize], call: usize) -> usize {
        let (mut rows, mut all) = (lengths, 0);
        for bucket in buckets {
            let (these, rest) = rows.split_at(*bucket);
            all += Bucket::of(these).cost(call);
            rows = rest;
        }
        assert!(rows.is_empty());
        all
    }

    #[test]
    fn kernels_are_of_cpus_in_f32_and_bf16() {
        for kind in [Kind::Float, Kind::BFloat16] {
            assert_eq!(Reading::of(Device::Cpu, kind, 64) == Reading::Own, kernels::pays());
        }
        assert_eq!(Reading::of(Device::Cpu, Kind::Half, 64), Reading::BUCKETS);
        let gpu = Reading::Buckets { call: GPU_CALL };
        assert_eq!(Reading::of(Device::Cuda(0), Kind::Float, 64), gpu);
    }

    #[test]
    fn a_bucket_more_must_spare_more_than_its_call() {
        let rows = [500, 500, 100, 100, 100];
        assert_eq!(pairs(&cut(&rows, 1199)), [(2, 500), (3, 100)]);
        assert_eq!(pairs(&cut(&rows, 1200)), [(5, 500)]);
        assert_eq!(pairs(&cut(&rows, usize::MAX)), [(5, 500)]);
        assert_eq!(pairs(&cut(&[], 0)), [(0, 0)]);
    }

    #[test]
    fn one_long_row_among_many_is_brought_to_the_front() {
        let mut rows = vec![100; 40];
        rows[17] = 4000;
        let found = lay_out(&rows, 1000);
        assert_eq!((found.exchanges, found.buckets), (vec![[0, 17]], vec![1, 39]));
        let found = lay_out(&rows, usize::MAX);
        assert_eq!((found.exchanges, found.buckets), (vec![], vec![40]));
        rows.swap(0, 17);
        let found = lay_out(&rows, 1000);
        assert_eq!((found.exchanges, found.buckets), (vec![], vec![1, 39]), "it stays");
    }

    #[test]
    fn rows_are_not_moved_for_less_than_the_moving_costs() {
        // The exchange saves one call in each of 32 steps.
        let rows = |length: usize| [length, 2 * length, length];
        assert_eq!(lay_out(&rows(64), 40).exchanges, [[0, 1]]);
        assert_eq!(lay_out(&rows(640), 40).exchanges, [[0; 2]; 0]);
    }

    #[test]
    fn of_very_many_rows_some_stay_together() {
        let rows: Vec<usize> = (0..1025).map(|row| 3000 - row).collect();
        let found = cut(&rows, 0);
        assert_eq!(found.len(), 205);
        assert!(found.iter().all(|bucket| bucket.rows == 5));
        assert_eq!((found[0].longest, found[204].longest), (3000, 1980));
    }

    /// The buckets with the least cost need exchanges that cost more than they save. With fewer
    /// buckets the exchanges save more than they cost.
    #[test]
    fn where_many_buckets_do_not_pay_fewer_may() {
        let rows: Vec<usize> = (0..1024).map(|row| row * 389 % 1024 * 2).collect();
        let call = 16 << 10;
        let (after, layout) = laid_out(&rows, call);
        assert!(!layout.exchanges.is_empty() && layout.buckets.len() > 1, "{layout:?}");
        let dear = cut(
            &{
                let mut sorted = rows.clone();
                sorted.sort_by_key(|length| std::cmp::Reverse(*length));
                sorted
            },
            call,
        );
        assert!(
            layout.buckets.len() < dear.len(),
            "{} of {}",
            layout.buckets.len(),
            dear.len()
        );
        assert!(cost_of(&after, &layout.buckets, call) < cost(&cut(&rows, call), call));
    }

    /// Returns the least cost of the rows over all ways to cut them in their order.
    fn least(lengths: &[usize], call: usize) -> usize {
        let places = lengths.len() - 1;
        (0..1u32 << places)
            .map(|cuts| {
                let mut buckets = vec![1];
                for row in 0..places {
                    if cuts >> row & 1 == 1 {
                        buckets.push(0);
                    }
                    *buckets.last_mut().unwrap() += 1;
                }
                cost_of(lengths, &buckets, call)
            })
            .min()
            .unwrap()
    }

    proptest! {
        #[test]
        fn no_other_cut_costs_less(lengths in prop::collection::vec(1usize..400, 1..9), call in 0usize..1000) {
            let buckets = cut(&lengths, call);
            prop_assert_eq!(cost(&buckets, call), least(&lengths, call));
            prop_assert_eq!(cost_of(&lengths, &counts(&buckets), call), cost(&buckets, call));
        }

        #[test]
        fn no_row_is_lost_and_what_is_moved_pays(lengths in prop::collection::vec(1usize..3000, 1..70), call in 0usize..5000) {
            let (after, layout) = laid_out(&lengths, call);
            let [mut before, mut same] = [lengths.clone(), after.clone()];
            before.sort_unstable();
            same.sort_unstable();
            prop_assert_eq!(before, same);
            let (now, then) = (cost(&cut(&lengths, call), call), cost_of(&after, &layout.buckets, call));
            if layout.exchanges.is_empty() {
                prop_assert_eq!(then, now);
            } else {
                prop_assert!((now - then) * LASTS > price(&layout.exchanges, &lengths, call));
                prop_assert!(layout.exchanges.len() < lengths.len());
            }
        }

        /// The cut stays the cheapest while all rows grow. A layout therefore holds until rows come
        /// or go.
        #[test]
        fn steps_that_all_rows_take_change_no_bucket(lengths in prop::collection::vec(1usize..300, 1..30), call in 0usize..500, steps in 1usize..200) {
            let later: Vec<usize> = lengths.iter().map(|length| length + steps).collect();
            let cost_later = cost_of(&later, &counts(&cut(&lengths, call)), call);
            prop_assert_eq!(cost_later, cost(&cut(&later, call), call));
        }
    }
}

//! Assigns a source of a mix to each place of a pass: by their weights, as evenly as possible, and
//! in such a way that a source repeats no task before its last.

use configs::Stopping;

/// The most tasks that a pass may have: its schedule is in memory, 6 bytes per task.
const LONGEST: usize = 1 << 26;

/// A source of a mix.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Share {
    pub(super) name: String,
    /// Tasks of one round, at least 1.
    pub(super) tasks: u64,
    /// Above 0.
    pub(super) weight: f64,
}

/// The places of one pass, the same in every pass.
#[derive(Debug)]
pub(super) struct Schedule {
    /// The source at each place, and the number of its tasks before that place.
    lanes: Vec<u16>,
    nths: Vec<u32>,
    /// Tasks of each source in a pass.
    per_pass: Vec<u64>,
}

/// The origin of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) lane: usize,
    /// The number of the source's tasks before it, over all passes.
    pub(super) nth: u64,
}

impl Schedule {
    /// Makes the schedule. The j-th task of a source (from 0) is due at (j + 1/2) / weight. Places
    /// are filled in the order of due times, and with equal times in the order of the sources.
    /// After k tasks of a pass each source has given its share of k, within less than one task for
    /// each other source.
    ///
    /// Every pass is the same: rounding is equal in all passes, so the shares over all passes are
    /// those of one.
    ///
    /// `limit` cuts a pass off. The error says what is impossible, and for which source.
    pub(super) fn new(shares: &[Share], stopping: Stopping, limit: Option<u64>) -> Result<Self, String> {
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if shares.is_empty() || shares.len() > usize::from(u16::MAX) {
            return Err(format!("{} sources cannot be mixed", shares.len()));
        }
        if limit < shares.len() {
            return Err(format!(
                "tasks.limit is {limit} and there are {} sources, each of which must have a task in a pass: raise tasks.limit",
                shares.len()
            ));
        }
        if length(shares, stopping).min(limit as f64) > LONGEST as f64 {
            return Err(format!(
                "a pass has more than {LONGEST} tasks: set tasks.limit, stopping = \"first_exhausted\", or weights nearer to each \
                 other"
            ));
        }
        let mut per_pass = vec![0_u64; shares.len()];
        let (mut lanes, mut nths) = (Vec::new(), Vec::new());
        let mut through = 0;
        while lanes.len() < limit {
            let due = |lane: usize| (per_pass[lane] as f64 + 0.5) / shares[lane].weight;
            let lane = (0..shares.len())
                .min_by(|a, b| due(*a).total_cmp(&due(*b)))
                .unwrap_or(0);
            lanes.push(lane as u16);
            nths.push(per_pass[lane] as u32);
            per_pass[lane] += 1;
            through += usize::from(per_pass[lane] == shares[lane].tasks);
            let all = match stopping {
                Stopping::FirstExhausted => 1,
                Stopping::AllExhausted => shares.len(),
            };
            if through >= all {
                break;
            }
        }
        if let Some(starved) = (0..shares.len()).find(|lane| per_pass[*lane] == 0) {
            return Err(format!(
                "{} gets none of the {} tasks of a pass: raise its weight, or write stopping = \"all_exhausted\"",
                shares[starved].name,
                lanes.len()
            ));
        }
        Ok(Self { lanes, nths, per_pass })
    }

    /// Returns the tasks of a pass.
    pub(super) fn len(&self) -> u64 {
        self.lanes.len() as u64
    }

    /// Returns the tasks of a source in a pass.
    pub(super) fn of_lane(&self, lane: usize) -> u64 {
        self.per_pass.get(lane).copied().unwrap_or(0)
    }

    /// Returns the slot at `index` of `pass`; `None` beyond the end of the pass.
    pub(super) fn slot(&self, pass: u32, index: u64) -> Option<Slot> {
        let index = usize::try_from(index).ok()?;
        let lane = usize::from(*self.lanes.get(index)?);
        let nth = u64::from(pass) * self.of_lane(lane) + u64::from(*self.nths.get(index)?);
        Some(Slot { lane, nth })
    }
}

/// Returns the approximate number of tasks of a pass.
fn length(shares: &[Share], stopping: Stopping) -> f64 {
    let sum: f64 = shares.iter().map(|share| share.weight).sum();
    let through = shares.iter().map(|share| share.tasks as f64 / share.weight);
    let last = match stopping {
        Stopping::FirstExhausted => through.fold(f64::INFINITY, f64::min),
        Stopping::AllExhausted => through.fold(0.0, f64::max),
    };
    last * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn share(tasks: u64, weight: f64) -> Share {
        Share {
            name: format!("{tasks}x{weight}"),
            tasks,
            weight,
        }
    }

    fn lanes(shares: &[Share], stopping: Stopping) -> String {
        let schedule = Schedule::new(shares, stopping, None).unwrap();
        (0..schedule.len())
            .map(|index| schedule.slot(0, index).unwrap().lane.to_string())
            .collect()
    }

    #[test]
    fn sources_follow_their_weights_until_the_first_or_all_end() {
        let shares = [share(6, 2.0), share(2, 1.0)];
        assert_eq!(lanes(&shares, Stopping::FirstExhausted), "01001");
        assert_eq!(lanes(&shares, Stopping::AllExhausted), "010010010");
        let even = [share(3, 1.0), share(3, 1.0)];
        assert_eq!(lanes(&even, Stopping::AllExhausted), "010101");
        assert_eq!(lanes(&even, Stopping::FirstExhausted), "01010");
    }

    #[test]
    fn what_starves_or_never_ends_is_refused_by_name() {
        let starved = Schedule::new(&[share(3, 1.0), share(9, 0.1)], Stopping::FirstExhausted, None).unwrap_err();
        assert!(starved.starts_with("9x0.1 gets none of the 3 tasks"), "{starved}");
        let endless = Schedule::new(&[share(1000, 1e-9), share(9, 1.0)], Stopping::AllExhausted, None).unwrap_err();
        assert!(endless.contains("tasks.limit"), "{endless}");
        let few = Schedule::new(&[share(3, 1.0), share(3, 1.0)], Stopping::FirstExhausted, Some(1)).unwrap_err();
        assert!(few.starts_with("tasks.limit is 1 and there are 2 sources"), "{few}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// At every place of a pass each source has its share of that pass, within less than one
        /// task per other source. All passes are the same, and each source gives its tasks in order
        /// over all of them.
        #[test]
        fn shares_are_kept_at_every_place(
            sources in prop::collection::vec((1u64..40, 0.2f64..5.0), 1..5),
            all in any::<bool>(),
            limit in prop::option::of(1u64..60),
        ) {
            let shares: Vec<Share> = sources.iter().map(|(tasks, weight)| share(*tasks, *weight)).collect();
            let stopping = if all { Stopping::AllExhausted } else { Stopping::FirstExhausted };
            let schedule = match Schedule::new(&shares, stopping, limit) {
                Ok(schedule) => schedule,
                Err(error) => {
                    prop_assert!(error.contains("gets none of") || error.starts_with("tasks.limit is"), "{error}");
                    return Ok(());
                }
            };
            let sum: f64 = shares.iter().map(|share| share.weight).sum();
            let mut given = vec![0u64; shares.len()];
            for pass in 0..3 {
                let before = given.clone();
                for index in 0..schedule.len() {
                    let slot = schedule.slot(pass, index).unwrap();
                    prop_assert_eq!(slot.nth, given[slot.lane]);
                    given[slot.lane] += 1;
                    for (lane, share) in shares.iter().enumerate() {
                        let fair = (index + 1) as f64 * share.weight / sum;
                        let off = (given[lane] - before[lane]) as f64 - fair;
                        prop_assert!(off.abs() < shares.len() as f64, "{lane} is off by {off}");
                    }
                }
                prop_assert!(schedule.slot(pass, schedule.len()).is_none());
                for (lane, given) in given.iter().enumerate() {
                    prop_assert_eq!(*given, u64::from(pass + 1) * schedule.of_lane(lane));
                }
            }
            let through = |lane: usize| schedule.of_lane(lane) >= shares[lane].tasks;
            if limit.is_none() {
                let count = (0..shares.len()).filter(|lane| through(*lane)).count();
                let least = if all { shares.len() } else { 1 };
                prop_assert!(count >= least);
            }
        }
    }
}

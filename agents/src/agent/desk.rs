//! What lies before the engine: usually everything at once; suspects of an earlier death one group at a time, with nothing
//! beside them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use broker::ids::GroupId;

use crate::engine::Job;
use crate::run_folder::crash_marks::{Standing, Strikes};

/// Jobs that begin together; as a closed wave or not.
type Batch = (Vec<Job>, bool);

/// Decides what an engine works on, and marks it.
pub(super) struct Desk {
    strikes: Strikes,
    /// Jobs in the engine, by group.
    working: HashMap<GroupId, usize>,
    /// Waits until nothing is left of the suspects.
    free: VecDeque<(Batch, Vec<GroupId>)>,
    /// One group each: worked on alone.
    suspects: VecDeque<(Batch, GroupId)>,
    /// A suspect is being worked on.
    alone: bool,
}

impl Desk {
    pub(super) fn new(strikes: Strikes) -> Self {
        Self {
            strikes,
            working: HashMap::new(),
            free: VecDeque::new(),
            suspects: VecDeque::new(),
            alone: false,
        }
    }

    /// Whether a group is not to be worked on any more.
    pub(super) fn is_out(&self, group: &GroupId) -> bool {
        self.strikes.standing(group) == Standing::Out
    }

    /// Takes jobs in their order.
    pub(super) fn take(&mut self, jobs: Vec<(GroupId, Job)>, wave: bool) {
        let (mut free, mut groups) = (Vec::new(), Vec::new());
        let mut suspects: BTreeMap<GroupId, Vec<Job>> = BTreeMap::new();
        for (group, job) in jobs {
            if self.strikes.standing(&group) == Standing::Alone {
                suspects.entry(group).or_default().push(job);
            } else {
                free.push(job);
                groups.push(group);
            }
        }
        if !free.is_empty() {
            self.free.push_back(((free, wave), groups));
        }
        let alone = suspects.into_iter().map(|(group, jobs)| ((jobs, wave), group));
        self.suspects.extend(alone);
    }

    /// What to hand to the engine now.
    pub(super) fn next(&mut self) -> Option<Batch> {
        if self.alone {
            return None;
        }
        if !self.suspects.is_empty() {
            if !self.working.is_empty() {
                return None;
            }
            let (batch, group) = self.suspects.pop_front()?;
            self.alone = true;
            self.begin(&vec![group; batch.0.len()]);
            return Some(batch);
        }
        let (batch, groups) = self.free.pop_front()?;
        self.begin(&groups);
        Some(batch)
    }

    fn begin(&mut self, groups: &[GroupId]) {
        for group in groups {
            *self.working.entry(*group).or_default() += 1;
        }
        self.strikes.begin(groups.iter().copied());
        groups
            .iter()
            .for_each(|group| broker::fail::point_of("job.begun", group));
    }

    /// Jobs have ended, well or not, one of each of these groups. Those that end together are marked so in one write: a death between two
    /// would find the last group alone with the blame, and have its part of a wave computed by itself, to other bits.
    pub(super) fn finished(&mut self, groups: impl IntoIterator<Item = GroupId>) {
        let done = self.done(groups);
        self.strikes.end(done);
        self.alone &= !self.working.is_empty();
    }

    /// The groups whose last jobs these are.
    fn done(&mut self, groups: impl IntoIterator<Item = GroupId>) -> Vec<GroupId> {
        let mut done = Vec::new();
        for group in groups {
            let Some(left) = self.working.get_mut(&group) else {
                continue;
            };
            *left -= 1;
            if *left == 0 {
                self.working.remove(&group);
                done.push(group);
            }
        }
        done
    }

    /// Nothing that waits is begun any more, and nothing that is under way is to blame for what comes.
    pub(super) fn clear(&mut self) {
        self.free.clear();
        self.suspects.clear();
        self.strikes.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use broker::ids::RequestId;
    use broker::protocol::turn::Sampling;

    use super::*;
    use crate::run_folder::RunFolder;
    use crate::run_folder::crash_marks::OUT;
    use crate::run_folder::tests::config_in;

    fn job(group: u8) -> (GroupId, Job) {
        let sampling = Sampling {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_new_tokens: 1,
            max_context: None,
            stop: Vec::new(),
        };
        let job = Job {
            request: RequestId([group; 16]),
            group: GroupId([group; 16]),
            member: 0,
            prompt_ids: Arc::from([u32::from(group)]),
            sampling: Arc::new(sampling),
            seed: 0,
            keep: false,
        };
        (GroupId([group; 16]), job)
    }

    fn of(job: &Job) -> u8 {
        job.request.0[0]
    }

    fn desk(folder: &RunFolder) -> Desk {
        Desk::new(Strikes::open(folder, "a").unwrap())
    }

    /// One life of a process that dies whenever it works on `poison`: which of these were done, and whether it died.
    fn live(folder: &RunFolder, groups: &BTreeSet<u8>, poison: u8) -> (Vec<u8>, bool) {
        let mut desk = desk(folder);
        let (mut done, mut jobs) = (Vec::new(), Vec::new());
        for group in groups {
            match desk.is_out(&GroupId([*group; 16])) {
                true => done.push(*group),
                false => jobs.push(job(*group)),
            }
        }
        desk.take(jobs, false);
        while let Some((batch, _)) = desk.next() {
            if batch.iter().any(|job| of(job) == poison) {
                return (done, true);
            }
            for job in &batch {
                done.push(of(job));
                desk.finished([GroupId([of(job); 16])]);
            }
        }
        (done, false)
    }

    #[test]
    fn what_waits_for_a_suspect_is_not_begun_when_all_is_cleared() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        for _ in 0..2 {
            // A death with one group under way.
            let mut desk = desk(&folder);
            desk.take(vec![job(1)], false);
            assert!(desk.next().is_some());
        }
        let mut desk = desk(&folder);
        desk.take(vec![job(1), job(2)], false);
        assert_eq!(desk.next().map(|(jobs, _)| jobs.len()), Some(1), "alone");
        desk.clear();
        desk.finished([GroupId([1; 16])]);
        assert!(desk.next().is_none());
    }

    /// Everything comes again after each death, as its deliveries do.
    #[test]
    fn a_group_that_kills_is_put_out_and_takes_none_of_its_neighbours_with_it() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let (poison, mut left) = (17, (0..64).collect::<BTreeSet<u8>>());
        let mut deaths = 0;
        loop {
            let (done, died) = live(&folder, &left, poison);
            assert!(died || done.contains(&poison), "it ends when the poison is out");
            left.retain(|group| !done.contains(group));
            if !died {
                break;
            }
            deaths += 1;
            assert!(deaths < 10, "left: {left:?}");
        }
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(deaths, 2 + OUT, "twice among others, then alone");
        let strikes = Strikes::open(&folder, "a").unwrap();
        for group in 0..64 {
            let out = strikes.standing(&GroupId([group; 16])) == Standing::Out;
            assert_eq!(out, group == poison, "group {group}");
        }
    }

    #[test]
    fn groups_that_end_together_are_marked_together() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let mut desk = desk(&folder);
        let wave = || [1, 2, 1, 3].map(|group| GroupId([group; 16]));
        desk.take([1, 2, 1, 3].map(job).into(), true);
        desk.next().unwrap();
        let done = desk.done(wave());
        assert_eq!(done, [2, 1, 3].map(|group| GroupId([group; 16])));
        assert!(desk.done(wave()).is_empty(), "once");
    }

    #[test]
    fn nothing_is_beside_a_suspect_and_others_go_on_after_it() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        for _ in 0..2 {
            let mut desk = desk(&folder);
            desk.take(vec![job(1), job(2)], false);
            assert_eq!(desk.next().unwrap().0.len(), 2, "and dies with both");
        }
        let mut desk = desk(&folder);
        desk.take(vec![job(3)], false);
        assert_eq!(of(&desk.next().unwrap().0[0]), 3);
        desk.take(vec![job(1), job(4), job(2)], true);
        assert!(desk.next().is_none(), "3 is still being worked on");
        desk.finished([GroupId([3; 16])]);
        for suspect in [1, 2] {
            let (batch, wave) = desk.next().unwrap();
            assert_eq!((batch.len(), of(&batch[0]), wave), (1, suspect, true));
            assert!(desk.next().is_none(), "{suspect} is alone");
            desk.finished([GroupId([suspect; 16])]);
        }
        assert_eq!(of(&desk.next().unwrap().0[0]), 4);
    }
}

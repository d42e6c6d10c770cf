//! The queue before the engine. Usually every job begins at once; suspects of an earlier crash run
//! one group at a time, alone.

use std::collections::{BTreeMap, HashMap, VecDeque};

use broker::ids::GroupId;

use crate::engine::GenerationJob;
use crate::run_folder::crash_marks::{Isolation, Strikes};

/// Jobs that begin together, and whether they are a closed wave.
type Batch = (Vec<GenerationJob>, bool);

/// Decides which jobs the engine works on, and marks them on disk.
pub(super) struct JobQueue {
    strikes: Strikes,
    /// The number of jobs in the engine, by group.
    working: HashMap<GroupId, usize>,
    /// Jobs that wait until no suspect is left.
    free: VecDeque<(Batch, Vec<GroupId>)>,
    /// Jobs of one group each, which run alone.
    suspects: VecDeque<(Batch, GroupId)>,
    /// True while a suspect runs.
    alone: bool,
}

impl JobQueue {
    pub(super) fn new(strikes: Strikes) -> Self {
        Self {
            strikes,
            working: HashMap::new(),
            free: VecDeque::new(),
            suspects: VecDeque::new(),
            alone: false,
        }
    }

    /// Returns true if the group crashed the process too often to run again.
    pub(super) fn is_out(&self, group: &GroupId) -> bool {
        self.strikes.isolation(group) == Isolation::Out
    }

    /// Adds jobs in their order.
    pub(super) fn take(&mut self, jobs: Vec<(GroupId, GenerationJob)>, wave: bool) {
        let (mut free, mut groups) = (Vec::new(), Vec::new());
        let mut suspects: BTreeMap<GroupId, Vec<GenerationJob>> = BTreeMap::new();
        for (group, job) in jobs {
            if self.strikes.isolation(&group) == Isolation::Alone {
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

    /// Returns how many jobs the engine has, and how many wait for it.
    pub(super) fn load(&self) -> (usize, usize) {
        let free = self.free.iter().map(|((jobs, _), _)| jobs.len());
        let suspects = self.suspects.iter().map(|((jobs, _), _)| jobs.len());
        (self.working.values().sum(), free.chain(suspects).sum())
    }

    /// Returns the jobs to hand to the engine now.
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

    /// Records that one job of each of these groups has ended, well or not. Groups that end
    /// together are marked in one write. A crash between two writes would blame the last group
    /// alone, and have its part of a wave computed by itself, with other bits.
    pub(super) fn finished(&mut self, groups: impl IntoIterator<Item = GroupId>) {
        let done = self.done(groups);
        self.strikes.end(done);
        self.alone &= !self.working.is_empty();
    }

    /// Returns the groups of which these were the last jobs.
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

    /// Drops every waiting job and clears the marks of running ones: they are not to blame for the
    /// coming end.
    pub(super) fn clear(&mut self) {
        self.free.clear();
        self.suspects.clear();
        self.strikes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::RunFolder;
    use crate::run_folder::crash_marks::OUT;
    use crate::run_folder::tests::config_in;
    use crate::testing;
    use std::collections::BTreeSet;

    fn job(group: u8) -> (GroupId, GenerationJob) {
        (GroupId([group; 16]), testing::job(group, &[u32::from(group)], 1))
    }

    fn of(job: &GenerationJob) -> u8 {
        job.request.0[0]
    }

    fn queue(folder: &RunFolder) -> JobQueue {
        JobQueue::new(Strikes::open(folder, "a").unwrap())
    }

    /// One life of a process that dies when it works on `poison`: returns the finished groups and
    /// whether it died.
    fn live(folder: &RunFolder, groups: &BTreeSet<u8>, poison: u8) -> (Vec<u8>, bool) {
        let mut queue = queue(folder);
        let (mut done, mut jobs) = (Vec::new(), Vec::new());
        for group in groups {
            match queue.is_out(&GroupId([*group; 16])) {
                true => done.push(*group),
                false => jobs.push(job(*group)),
            }
        }
        queue.take(jobs, false);
        while let Some((batch, _)) = queue.next() {
            if batch.iter().any(|job| of(job) == poison) {
                return (done, true);
            }
            for job in &batch {
                done.push(of(job));
                queue.finished([GroupId([of(job); 16])]);
            }
        }
        (done, false)
    }

    #[test]
    fn a_cleared_queue_starts_no_waiting_job() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        for _ in 0..2 {
            // A crash with one group in the engine.
            let mut queue = queue(&folder);
            queue.take(vec![job(1)], false);
            assert!(queue.next().is_some());
        }
        let mut queue = queue(&folder);
        queue.take(vec![job(1), job(2)], false);
        assert_eq!(queue.next().map(|(jobs, _)| jobs.len()), Some(1), "alone");
        queue.clear();
        queue.finished([GroupId([1; 16])]);
        assert!(queue.next().is_none());
    }

    /// Every group comes again after each crash, because its delivery does.
    #[test]
    fn only_the_group_that_crashes_the_process_is_put_out() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let (poison, mut left) = (17, (0..64).collect::<BTreeSet<u8>>());
        let mut deaths = 0;
        loop {
            let (done, died) = live(&folder, &left, poison);
            assert!(died || done.contains(&poison), "the loop ends once the poison is out");
            left.retain(|group| !done.contains(group));
            if !died {
                break;
            }
            deaths += 1;
            assert!(deaths < 10, "left: {left:?}");
        }
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(deaths, 2 + OUT, "twice with other groups, then alone");
        let strikes = Strikes::open(&folder, "a").unwrap();
        for group in 0..64 {
            let out = strikes.isolation(&GroupId([group; 16])) == Isolation::Out;
            assert_eq!(out, group == poison, "group {group}");
        }
    }

    #[test]
    fn groups_that_end_together_are_marked_together() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let mut queue = queue(&folder);
        let wave = || [1, 2, 1, 3].map(|group| GroupId([group; 16]));
        queue.take([1, 2, 1, 3].map(job).into(), true);
        queue.next().unwrap();
        let done = queue.done(wave());
        assert_eq!(done, [2, 1, 3].map(|group| GroupId([group; 16])));
        assert!(queue.done(wave()).is_empty(), "once");
    }

    #[test]
    fn a_suspect_runs_alone_and_other_groups_follow() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        for _ in 0..2 {
            let mut queue = queue(&folder);
            queue.take(vec![job(1), job(2)], false);
            assert_eq!(queue.next().unwrap().0.len(), 2, "and crashes with both");
        }
        let mut queue = queue(&folder);
        queue.take(vec![job(3)], false);
        assert_eq!(of(&queue.next().unwrap().0[0]), 3);
        queue.take(vec![job(1), job(4), job(2)], true);
        assert!(queue.next().is_none(), "3 is still being worked on");
        queue.finished([GroupId([3; 16])]);
        for suspect in [1, 2] {
            let (batch, wave) = queue.next().unwrap();
            assert_eq!((batch.len(), of(&batch[0]), wave), (1, suspect, true));
            assert!(queue.next().is_none(), "{suspect} is alone");
            queue.finished([GroupId([suspect; 16])]);
        }
        assert_eq!(of(&queue.next().unwrap().0[0]), 4);
    }
}

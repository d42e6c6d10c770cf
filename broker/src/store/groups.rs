//! The state of a store and its transitions, without a lock and without waiting.
//!
//! [`super::memory`] puts a lock around them. They can be copied and compared, so that the
//! exhaustive model of the group's state machine in `agents` runs this very code.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::{Claim, Claimed, Committed, Lease, Record, StoreError};
use crate::ids::{Attempt, GroupId};

/// The largest number of finished groups kept.
pub(super) const FINISHED_GROUPS: usize = 1024;
/// The largest number of bytes kept of their records and outcomes.
pub(super) const FINISHED_BYTES: usize = 64 << 20;

/// The groups of a run. Each method is one call of [`super::Store`], with its contract.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Groups {
    groups: BTreeMap<GroupId, Group>,
    /// Finished groups, oldest first: the group, its serial at that time, and its bytes.
    finished: VecDeque<(GroupId, u64, usize)>,
    pub(super) finished_bytes: usize,
    serial: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Group {
    attempt: Attempt,
    fence: u64,
    beat: u64,
    /// `None` if released: any owner may take it.
    owner: Option<String>,
    /// The serial of its end. A finished group that is claimed again is open again.
    finished: Option<u64>,
    records: Vec<Record>,
    index: BTreeMap<String, usize>,
    decided: Option<Bytes>,
}

impl Group {
    fn new(owner: &str, attempt: Attempt) -> Self {
        Self {
            attempt,
            fence: 1,
            beat: 0,
            owner: Some(owner.to_owned()),
            finished: None,
            records: Vec::new(),
            index: BTreeMap::new(),
            decided: None,
        }
    }

    fn is_of(&self, lease: Lease) -> bool {
        self.attempt == lease.attempt && self.fence == lease.fence
    }

    fn is_open(&self) -> bool {
        self.owner.is_some() && self.finished.is_none()
    }

    fn claim(&mut self, group: GroupId, owner: &str, silent: Option<(u64, u64)>) -> Result<Claimed, Claim> {
        match &self.owner {
            Some(current) if current == owner && self.finished.is_none() => {}
            Some(current) if self.finished.is_none() && silent != Some((self.beat, self.fence)) => {
                return Err(Claim::Theirs {
                    owner: current.clone(),
                    beat: self.beat,
                    fence: self.fence,
                });
            }
            _ => {
                self.fence += 1;
                self.owner = Some(owner.to_owned());
                self.finished = None;
            }
        }
        self.beat += 1;
        Ok(Claimed {
            lease: Lease {
                group,
                attempt: self.attempt,
                fence: self.fence,
            },
            records: self.records.clone(),
            decided: self.decided.clone(),
        })
    }

    fn commit(&mut self, record: &Record) -> Committed {
        match self.index.get(&record.key).map(|&at| &self.records[at]) {
            Some(first) if first.payload == record.payload => Committed::Duplicate,
            Some(_) => Committed::Conflict,
            None => {
                self.index.insert(record.key.clone(), self.records.len());
                self.records.push(record.clone());
                Committed::New
            }
        }
    }

    fn bytes(&self) -> usize {
        let records: usize = self.records.iter().map(|r| r.payload.len() + 2 * r.key.len()).sum();
        records + self.decided.as_ref().map_or(0, Bytes::len)
    }
}

impl Groups {
    /// Returns the number of groups, including the finished ones that are still kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the group, if this lease holds it.
    fn held(&mut self, lease: Lease) -> Result<&mut Group, StoreError> {
        self.groups
            .get_mut(&lease.group)
            .filter(|group| group.is_of(lease) && group.is_open())
            .ok_or(StoreError::Stale)
    }

    pub fn claim(&mut self, group: GroupId, owner: &str, fresh: Attempt, silent: Option<(u64, u64)>) -> Claim {
        let entry = self.groups.entry(group).or_insert_with(|| Group::new(owner, fresh));
        entry
            .claim(group, owner, silent)
            .map_or_else(|theirs| theirs, Claim::Ours)
    }

    /// Returns the lease under which a group can be written now, and its beat.
    #[must_use]
    pub fn standing(&self, group: GroupId) -> Option<(Lease, u64)> {
        let found = self.groups.get(&group).filter(|found| found.is_open())?;
        let lease = Lease {
            group,
            attempt: found.attempt,
            fence: found.fence,
        };
        Some((lease, found.beat))
    }

    /// Moves the beat. Returns true if the lease stands.
    pub fn beat(&mut self, lease: Lease) -> bool {
        self.held(lease).map(|group| group.beat += 1).is_ok()
    }

    pub fn commit(&mut self, lease: Lease, records: &[Record]) -> Result<Vec<Committed>, StoreError> {
        let group = self.held(lease)?;
        Ok(records.iter().map(|record| group.commit(record)).collect())
    }

    pub fn decide(&mut self, lease: Lease, outcome: Bytes) -> Result<Bytes, StoreError> {
        Ok(self.held(lease)?.decided.get_or_insert(outcome).clone())
    }

    pub fn finish(&mut self, lease: Lease) -> Result<(), StoreError> {
        let group = self
            .groups
            .get_mut(&lease.group)
            .filter(|g| g.is_of(lease) && g.owner.is_some());
        let group = group.ok_or(StoreError::Stale)?;
        if group.finished.is_none() {
            self.serial += 1;
            group.finished = Some(self.serial);
            let bytes = group.bytes();
            self.finished.push_back((lease.group, self.serial, bytes));
            self.finished_bytes += bytes;
            self.forget();
        }
        Ok(())
    }

    pub fn release(&mut self, lease: Lease) -> Result<(), StoreError> {
        let group = self
            .groups
            .get_mut(&lease.group)
            .filter(|g| g.is_of(lease) && g.finished.is_none());
        group.ok_or(StoreError::Stale)?.owner = None;
        Ok(())
    }

    pub fn void(&mut self, lease: Lease) -> Result<(), StoreError> {
        if self.groups.contains_key(&lease.group) {
            self.held(lease)?;
            self.groups.remove(&lease.group);
        }
        Ok(())
    }

    /// Forgets the oldest finished groups beyond the bounds.
    fn forget(&mut self) {
        while self.finished.len() > FINISHED_GROUPS || self.finished_bytes > FINISHED_BYTES {
            let Some((id, serial, bytes)) = self.finished.pop_front() else {
                return;
            };
            self.finished_bytes -= bytes;
            if self.groups.get(&id).is_some_and(|group| group.finished == Some(serial)) {
                self.groups.remove(&id);
            }
        }
    }
}

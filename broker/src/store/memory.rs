//! The store in memory: for one process, and for tests.
//!
//! It keeps the contract of the one in Redis to the letter, so that a run in one process takes the same path. Finished
//! groups are kept for a while as Redis keeps them, bounded here by their number and bytes instead of by time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use super::{Claim, Claimed, Committed, Lease, Record, Store, StoreError};
use crate::ids::{Attempt, GroupId};

/// Finished groups remembered at most.
const FINISHED_GROUPS: usize = 1024;
/// Bytes of their records and outcomes remembered at most.
const FINISHED_BYTES: usize = 64 << 20;

/// The store in memory. A short lock around each transition; nothing waits.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

impl MemoryStore {
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Groups held, the finished ones that are not yet forgotten included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().groups.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No transition can panic half-way, so a poisoned lock still guards a whole state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct State {
    groups: HashMap<GroupId, Group>,
    /// Oldest first: which group was finished, its serial at that time, and its bytes.
    finished: VecDeque<(GroupId, u64, usize)>,
    finished_bytes: usize,
    serial: u64,
}

#[derive(Debug)]
struct Group {
    attempt: Attempt,
    fence: u64,
    beat: u64,
    /// `None`: released, anyone may take it.
    owner: Option<String>,
    /// The serial of its end; a finished group that is claimed again is open again.
    finished: Option<u64>,
    records: Vec<Record>,
    index: HashMap<String, usize>,
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
            index: HashMap::new(),
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

impl State {
    /// The group, if this lease holds it.
    fn held(&mut self, lease: Lease) -> Result<&mut Group, StoreError> {
        self.groups
            .get_mut(&lease.group)
            .filter(|group| group.is_of(lease) && group.is_open())
            .ok_or(StoreError::Stale)
    }

    fn finish(&mut self, lease: Lease) -> Result<(), StoreError> {
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

#[async_trait]
impl Store for MemoryStore {
    async fn claim(
        &self,
        group: GroupId,
        owner: &str,
        fresh: Attempt,
        silent: Option<(u64, u64)>,
    ) -> Result<Claim, StoreError> {
        let mut state = self.lock();
        let entry = state.groups.entry(group).or_insert_with(|| Group::new(owner, fresh));
        Ok(entry
            .claim(group, owner, silent)
            .map_or_else(|theirs| theirs, Claim::Ours))
    }

    async fn beat(&self, leases: &[Lease]) -> Result<Vec<bool>, StoreError> {
        let mut state = self.lock();
        let mut beat = |lease: &Lease| state.held(*lease).map(|group| group.beat += 1).is_ok();
        Ok(leases.iter().map(&mut beat).collect())
    }

    async fn commit(&self, lease: Lease, records: &[Record]) -> Result<Vec<Committed>, StoreError> {
        let mut state = self.lock();
        let group = state.held(lease)?;
        Ok(records.iter().map(|record| group.commit(record)).collect())
    }

    async fn decide(&self, lease: Lease, outcome: Bytes) -> Result<Bytes, StoreError> {
        let mut state = self.lock();
        Ok(state.held(lease)?.decided.get_or_insert(outcome).clone())
    }

    async fn finish(&self, lease: Lease) -> Result<(), StoreError> {
        self.lock().finish(lease)
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        let mut state = self.lock();
        let group = state
            .groups
            .get_mut(&lease.group)
            .filter(|g| g.is_of(lease) && g.finished.is_none());
        group.ok_or(StoreError::Stale)?.owner = None;
        Ok(())
    }

    async fn void(&self, lease: Lease) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.groups.contains_key(&lease.group) {
            state.held(lease)?;
            state.groups.remove(&lease.group);
        }
        Ok(())
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(store: &MemoryStore, n: u32, payload: usize) -> Lease {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_le_bytes());
        let mut state = store.lock();
        let group = GroupId(id);
        let mut new = Group::new("owner", Attempt(id));
        new.decided = Some(Bytes::from(vec![0; payload]));
        state.groups.insert(group, new);
        let lease = Lease {
            group,
            attempt: Attempt(id),
            fence: 1,
        };
        state.finish(lease).unwrap();
        lease
    }

    #[test]
    fn finished_groups_are_bounded_in_number_and_bytes() {
        let store = MemoryStore::new();
        for n in 0..5000 {
            finished(&store, n, 1);
        }
        assert_eq!(store.len(), FINISHED_GROUPS);
        for n in 0..40 {
            finished(&store, 10_000 + n, 4 << 20);
        }
        assert!(store.lock().finished_bytes <= FINISHED_BYTES);
        assert_eq!(store.len(), 16);
    }

    #[tokio::test]
    async fn a_group_opened_again_is_not_forgotten_by_its_earlier_end() {
        let store = MemoryStore::new();
        let first = finished(&store, 0, 1);
        let again = store.claim(first.group, "other", Attempt([9; 16]), None);
        let Claim::Ours(claimed) = again.await.unwrap() else {
            panic!("a finished group is free")
        };
        assert_eq!((claimed.lease.attempt, claimed.lease.fence), (first.attempt, 2));
        for n in 1..=5000 {
            finished(&store, n, 1);
        }
        assert_eq!(store.beat(&[first, claimed.lease]).await.unwrap(), [false, true]);
    }
}

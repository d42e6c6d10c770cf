//! The store in memory: for one process, and for tests.
//!
//! It keeps the same contract as the store in Redis, so that a run in one process takes the same
//! path. Redis keeps finished groups for some time; this store bounds them by number and bytes
//! instead.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use super::groups::Groups;
use super::{Claim, Committed, Lease, Record, Store, StoreError};
use crate::ids::{Attempt, GroupId};

/// The store in memory, with a short lock around each transition and no waiting.
#[derive(Debug, Default)]
pub struct MemoryStore {
    groups: Mutex<Groups>,
}

impl MemoryStore {
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Returns the number of groups, including the finished ones that are still kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        // No transition can panic half-way, so a poisoned lock still guards a whole state.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
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
        Ok(self.lock().claim(group, owner, fresh, silent))
    }

    async fn beat(&self, leases: &[Lease]) -> Result<Vec<bool>, StoreError> {
        let mut groups = self.lock();
        Ok(leases.iter().map(|lease| groups.beat(*lease)).collect())
    }

    async fn commit(&self, lease: Lease, records: &[Record]) -> Result<Vec<Committed>, StoreError> {
        self.lock().commit(lease, records)
    }

    async fn decide(&self, lease: Lease, outcome: Bytes) -> Result<Bytes, StoreError> {
        self.lock().decide(lease, outcome)
    }

    async fn finish(&self, lease: Lease) -> Result<(), StoreError> {
        self.lock().finish(lease)
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.lock().release(lease)
    }

    async fn void(&self, lease: Lease) -> Result<(), StoreError> {
        self.lock().void(lease)
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::super::groups::{FINISHED_BYTES, FINISHED_GROUPS};
    use super::*;

    fn finished(store: &MemoryStore, n: u32, payload: usize) -> Lease {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_le_bytes());
        let mut groups = store.lock();
        let Claim::Ours(claimed) = groups.claim(GroupId(id), "owner", Attempt(id), None) else {
            panic!("a new group is free")
        };
        groups.decide(claimed.lease, vec![0; payload].into()).unwrap();
        groups.finish(claimed.lease).unwrap();
        claimed.lease
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

//! The contract of a conversation store, which every implementation keeps.

use crate::harness::*;
use broker::store::Committed::{Conflict, Duplicate, New};
use broker::store::memory::MemoryStore;
use broker::store::{Claim, Lease, Record, Store, StoreError};
use bytes::Bytes;

macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&*super::MemoryStore::new()).await;
            })*
        }
        mod redis {
            $(#[tokio::test]
            async fn $name() {
                let fixture = super::RedisFixture::start().await;
                super::$name(&*fixture.store).await;
            })*
        }
    };
}

contract!(
    a_new_group_is_ours_with_the_fresh_attempt,
    a_claim_repeated_by_its_owner_is_the_same_lease,
    a_live_owner_keeps_its_group,
    a_silent_owner_is_taken_over_once,
    a_zombie_cannot_write,
    an_attempt_or_fence_that_is_not_the_stored_one_is_stale,
    a_record_is_committed_once,
    records_keep_their_order_and_bytes,
    a_large_wave_is_one_commit,
    a_stale_commit_changes_nothing,
    an_outcome_is_decided_once_and_outlives_takeovers,
    a_finished_group_refuses_writers_and_can_be_sent_again,
    a_released_group_is_free_at_once,
    a_void_group_begins_a_new_attempt,
    beats_answer_for_each_lease,
    steps_may_be_repeated,
    healthy_stores_have_no_warnings,
);

async fn a_new_group_is_ours_with_the_fresh_attempt(store: &dyn Store) {
    let claimed = take(store, 1, "x", 7).await;
    assert_eq!(
        (claimed.lease.group, claimed.lease.attempt, claimed.lease.fence),
        (group(1), attempt(7), 1)
    );
    assert_eq!((claimed.records.len(), claimed.decided), (0, None));
}

async fn a_claim_repeated_by_its_owner_is_the_same_lease(store: &dyn Store) {
    let first = take(store, 1, "x", 7).await;
    store.commit(first.lease, &[record("0/a/0/0", "hello")]).await.unwrap();
    let again = take(store, 1, "x", 8).await;
    assert_eq!(again.lease, first.lease);
    assert_eq!(again.records, [record("0/a/0/0", "hello")]);
}

async fn a_live_owner_keeps_its_group(store: &dyn Store) {
    let lease = take(store, 1, "x", 7).await.lease;
    let silent = watch(store, 1, "y").await;
    store.beat(&[lease]).await.unwrap();
    let late = store.claim(group(1), "y", attempt(8), Some(silent)).await.unwrap();
    let Claim::Theirs { owner, beat, fence } = late else {
        panic!("the owner has given a sign of life")
    };
    assert_eq!((owner.as_str(), fence), ("x", 1));
    assert!(beat > silent.0);
    store.commit(lease, &[record("k", "v")]).await.unwrap();
}

async fn a_silent_owner_is_taken_over_once(store: &dyn Store) {
    let first = take(store, 1, "x", 7).await;
    store.commit(first.lease, &[record("k", "v")]).await.unwrap();
    let silent = watch(store, 1, "y").await;
    let Claim::Ours(taken) = store.claim(group(1), "y", attempt(8), Some(silent)).await.unwrap() else {
        panic!("the owner is silent")
    };
    assert_eq!((taken.lease.attempt, taken.lease.fence), (attempt(7), 2));
    assert_eq!(taken.records, [record("k", "v")]);
    let second = store.claim(group(1), "z", attempt(9), Some(silent)).await.unwrap();
    assert!(matches!(second, Claim::Theirs { owner, fence: 2, .. } if owner == "y"));
}

async fn a_zombie_cannot_write(store: &dyn Store) {
    let zombie = take(store, 1, "x", 7).await.lease;
    let owner = take_over(store, 1, "y").await.lease;
    assert_eq!(
        store.commit(zombie, &[record("k", "zombie")]).await,
        Err(StoreError::Stale)
    );
    assert_eq!(store.decide(zombie, "zombie".into()).await, Err(StoreError::Stale));
    assert_eq!(store.finish(zombie).await, Err(StoreError::Stale));
    assert_eq!(store.release(zombie).await, Err(StoreError::Stale));
    assert_eq!(store.void(zombie).await, Err(StoreError::Stale));
    assert_eq!(store.beat(&[zombie, owner]).await, Ok(vec![false, true]));
    let claimed = take(store, 1, "y", 9).await;
    assert_eq!((claimed.lease, claimed.records, claimed.decided), (owner, vec![], None));
}

async fn an_attempt_or_fence_that_is_not_the_stored_one_is_stale(store: &dyn Store) {
    let lease = take(store, 1, "x", 7).await.lease;
    let other = |change: fn(&mut Lease)| {
        let mut other = lease;
        change(&mut other);
        other
    };
    for wrong in [
        other(|l| l.attempt = attempt(6)),
        other(|l| l.fence = 0),
        other(|l| l.fence = 2),
        other(|l| l.fence = u64::MAX),
        other(|l| l.group = group(2)),
    ] {
        assert_eq!(
            store.commit(wrong, &[record("k", "v")]).await,
            Err(StoreError::Stale),
            "{wrong:?}"
        );
        assert_eq!(store.beat(&[wrong]).await, Ok(vec![false]), "{wrong:?}");
    }
}

async fn a_record_is_committed_once(store: &dyn Store) {
    let lease = take(store, 1, "x", 7).await.lease;
    assert_eq!(store.commit(lease, &[record("k", "first")]).await, Ok(vec![New]));
    assert_eq!(store.commit(lease, &[record("k", "first")]).await, Ok(vec![Duplicate]));
    assert_eq!(store.commit(lease, &[record("k", "other")]).await, Ok(vec![Conflict]));
    let mixed = [
        record("l", "1"),
        record("k", "first"),
        record("l", "1"),
        record("l", "2"),
        record("", ""),
    ];
    assert_eq!(
        store.commit(lease, &mixed).await,
        Ok(vec![New, Duplicate, Duplicate, Conflict, New])
    );
    assert_eq!(store.commit(lease, &[]).await, Ok(vec![]));
    let claimed = take(store, 1, "x", 7).await;
    assert_eq!(
        claimed.records,
        [record("k", "first"), record("l", "1"), record("", "")]
    );
}

async fn records_keep_their_order_and_bytes(store: &dyn Store) {
    let lease = take(store, 1, "x", 7).await.lease;
    let every_byte: Vec<u8> = (0..=255).collect();
    let records: Vec<Record> = (0..300u32)
        .rev()
        .map(|n| {
            record(
                &format!("{n}/röle:{n}"),
                [&n.to_le_bytes()[..], b":0:", &every_byte].concat(),
            )
        })
        .chain([
            record("attempt", "not the group's"),
            record("n", ""),
            record("r:x", "\0"),
        ])
        .collect();
    for some in records.chunks(7) {
        assert!(store.commit(lease, some).await.unwrap().iter().all(|c| *c == New));
    }
    assert_eq!(take(store, 1, "x", 7).await.records, records);
}

async fn a_large_wave_is_one_commit(store: &dyn Store) {
    let lease = take(store, 1, "x", 7).await.lease;
    let records: Vec<Record> = (0..10_000)
        .map(|n| record(&n.to_string(), format!("answer {n}")))
        .collect();
    assert_eq!(store.commit(lease, &records).await, Ok(vec![New; 10_000]));
    assert_eq!(store.commit(lease, &records).await, Ok(vec![Duplicate; 10_000]));
    assert_eq!(take(store, 1, "x", 7).await.records, records);
}

async fn a_stale_commit_changes_nothing(store: &dyn Store) {
    let zombie = take(store, 1, "x", 7).await.lease;
    store.commit(zombie, &[record("old", "1")]).await.unwrap();
    take_over(store, 1, "y").await;
    let wave = [record("old", "1"), record("new", "2")];
    assert_eq!(store.commit(zombie, &wave).await, Err(StoreError::Stale));
    assert_eq!(take(store, 1, "y", 7).await.records, [record("old", "1")]);
}

async fn an_outcome_is_decided_once_and_outlives_takeovers(store: &dyn Store) {
    let lease = take(store, 1, "x", 7).await.lease;
    let outcome = Bytes::from_static(b"\0first\xff");
    assert_eq!(store.decide(lease, outcome.clone()).await, Ok(outcome.clone()));
    assert_eq!(store.decide(lease, "second".into()).await, Ok(outcome.clone()));
    let taken = take_over(store, 1, "y").await;
    assert_eq!(taken.decided.as_ref(), Some(&outcome));
    assert_eq!(store.decide(taken.lease, "third".into()).await, Ok(outcome));
    let empty = take(store, 2, "x", 8).await.lease;
    assert_eq!(store.decide(empty, Bytes::new()).await, Ok(Bytes::new()));
    assert_eq!(store.decide(empty, "late".into()).await, Ok(Bytes::new()));
}

async fn a_finished_group_refuses_writers_and_can_be_sent_again(store: &dyn Store) {
    let lease = take(store, 1, "x", 7).await.lease;
    store.commit(lease, &[record("k", "v")]).await.unwrap();
    store.decide(lease, "outcome".into()).await.unwrap();
    store.finish(lease).await.unwrap();
    store.finish(lease).await.unwrap();
    assert_eq!(
        store.commit(lease, &[record("late", "v")]).await,
        Err(StoreError::Stale)
    );
    assert_eq!(store.decide(lease, "late".into()).await, Err(StoreError::Stale));
    assert_eq!(store.beat(&[lease]).await, Ok(vec![false]));
    assert_eq!(store.void(lease).await, Err(StoreError::Stale));
    let again = take(store, 1, "x", 8).await;
    assert_eq!((again.lease.attempt, again.lease.fence), (attempt(7), 2));
    assert_eq!(
        (again.records, again.decided),
        (vec![record("k", "v")], Some("outcome".into()))
    );
    assert_eq!(store.finish(lease).await, Err(StoreError::Stale));
    assert_eq!(store.beat(&[again.lease]).await, Ok(vec![true]));
    store.finish(again.lease).await.unwrap();
}

async fn a_released_group_is_free_at_once(store: &dyn Store) {
    let lease = take(store, 1, "x", 7).await.lease;
    store.commit(lease, &[record("k", "v")]).await.unwrap();
    store.release(lease).await.unwrap();
    store.release(lease).await.unwrap();
    assert_eq!(store.commit(lease, &[record("l", "v")]).await, Err(StoreError::Stale));
    let next = take(store, 1, "y", 8).await;
    assert_eq!((next.lease.attempt, next.lease.fence), (attempt(7), 2));
    assert_eq!(next.records, [record("k", "v")]);
    assert_eq!(store.release(lease).await, Err(StoreError::Stale));
    store.release(next.lease).await.unwrap();
    assert_eq!(take(store, 1, "y", 9).await.lease.fence, 3);
}

async fn a_void_group_begins_a_new_attempt(store: &dyn Store) {
    let lease = take(store, 1, "x", 7).await.lease;
    store.commit(lease, &[record("k", "v")]).await.unwrap();
    store.decide(lease, "outcome".into()).await.unwrap();
    store.void(lease).await.unwrap();
    store.void(lease).await.unwrap();
    assert_eq!(store.commit(lease, &[record("k", "v")]).await, Err(StoreError::Stale));
    let fresh = take(store, 1, "x", 8).await;
    assert_eq!((fresh.lease.attempt, fresh.lease.fence), (attempt(8), 1));
    assert_eq!((fresh.records, fresh.decided), (vec![], None));
    assert_eq!(store.void(lease).await, Err(StoreError::Stale));
    assert_eq!(store.commit(lease, &[record("k", "v")]).await, Err(StoreError::Stale));
}

async fn beats_answer_for_each_lease(store: &dyn Store) {
    let mut leases = Vec::new();
    for n in 0..200 {
        leases.push(take(store, n, "x", n).await.lease);
    }
    let mut expected = vec![true; 200];
    for n in (0..200).step_by(3) {
        store.void(leases[n]).await.unwrap();
        expected[n] = false;
    }
    let before = watch(store, 1, "y").await;
    assert_eq!(store.beat(&leases).await, Ok(expected));
    assert_eq!(watch(store, 1, "y").await, (before.0 + 1, before.1));
    assert_eq!(store.beat(&[]).await, Ok(vec![]));
    let many: Vec<Lease> = leases.iter().cycle().take(5000).copied().collect();
    assert_eq!(store.beat(&many).await.unwrap().len(), 5000);
}

async fn steps_may_be_repeated(store: &dyn Store) {
    let lease = take(store, 1, "x", 7).await.lease;
    let silent = watch(store, 1, "y").await;
    for _ in 0..2 {
        let Claim::Ours(claimed) = store.claim(group(1), "y", attempt(8), Some(silent)).await.unwrap() else {
            panic!("a repeated takeover is answered as the first")
        };
        assert_eq!((claimed.lease.attempt, claimed.lease.fence), (attempt(7), 2));
    }
    assert_eq!(store.release(lease).await, Err(StoreError::Stale));
}

async fn healthy_stores_have_no_warnings(store: &dyn Store) {
    assert_eq!(store.check().await, Ok(vec![]));
}

//! Effects of a Redis that fails, forgets, refuses or stalls: a repeat or a new attempt heals each
//! of them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use broker::local::redis::{PrivateRedis, RedisServerOptions};
use broker::store::Committed::{Conflict, Duplicate, New};
use broker::store::redis::{RedisOptions, RedisStore};
use broker::store::{Claim, Store, StoreError};

use crate::harness::*;

/// Repeats a step until it is answered, like the store's users.
async fn until_known<T, F: Future<Output = Result<T, StoreError>>>(
    mut step: impl FnMut() -> F,
) -> Result<T, StoreError> {
    for _ in 0..3000 {
        match step().await {
            Err(StoreError::Unknown(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
            known => return known,
        }
    }
    panic!("the store never answered")
}

#[tokio::test]
async fn a_flushed_redis_costs_an_attempt_and_nothing_else() {
    let redis = RedisFixture::start().await;
    let store = &*redis.store;
    let lease = take(store, 1, "x", 7).await.lease;
    store.commit(lease, &[record("k", "v")]).await.unwrap();
    let () = redis.raw_command(&["FLUSHALL"]).await;
    assert_eq!(store.commit(lease, &[record("l", "v")]).await, Err(StoreError::Stale));
    assert_eq!(store.decide(lease, "outcome".into()).await, Err(StoreError::Stale));
    assert_eq!(store.beat(&[lease]).await, Ok(vec![false]));
    assert_eq!(store.finish(lease).await, Err(StoreError::Stale));
    assert_eq!(store.void(lease).await, Ok(()));
    let fresh = take(store, 1, "x", 8).await;
    assert_eq!((fresh.lease.attempt, fresh.lease.fence), (attempt(8), 1));
    assert_eq!(store.commit(lease, &[record("k", "v")]).await, Err(StoreError::Stale));
}

#[tokio::test]
async fn a_redis_that_went_back_in_time_refuses_the_newer_owner() {
    let redis = RedisFixture::start().await;
    let store = &*redis.store;
    let first = take(store, 1, "x", 7).await.lease;
    let key = redis.key(group(1));
    let mut raw = redis.raw().await;
    let earlier: Vec<u8> = redis::cmd("DUMP").arg(&key).query_async(&mut raw).await.unwrap();
    let second = take_over(store, 1, "y").await.lease;
    store.commit(second, &[record("k", "lost")]).await.unwrap();
    let mut restore = redis::cmd("RESTORE");
    let restore = restore.arg(&key).arg(0).arg(earlier).arg("REPLACE");
    let () = restore.query_async(&mut raw).await.unwrap();
    assert_eq!(store.commit(second, &[record("l", "v")]).await, Err(StoreError::Stale));
    assert_eq!(store.commit(first, &[record("k", "v")]).await, Ok(vec![New]));
}

#[tokio::test]
async fn a_commit_survives_a_kill_of_redis() {
    let mut redis = RedisFixture::start().await;
    let store = redis.store.clone();
    let lease = take(&*store, 1, "x", 7).await.lease;
    let records: Vec<_> = (0..50).map(|n| record(&n.to_string(), vec![n; 1000])).collect();
    store.commit(lease, &records).await.unwrap();
    store.decide(lease, "outcome".into()).await.unwrap();
    let first_pid = redis.server.pid().unwrap();
    redis.server.kill9();
    assert!(redis.server.pid().is_none());
    let lost = store.commit(lease, &[record("late", "v")]).await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
    redis.server.restart(true).await.unwrap();
    assert_ne!(redis.server.pid().unwrap(), first_pid);
    let late = [record("late", "v")];
    let late = until_known(|| store.commit(lease, &late)).await;
    assert_eq!(late, Ok(vec![New]));
    let claimed = take(&*store, 1, "x", 8).await;
    assert_eq!((claimed.lease, claimed.decided), (lease, Some("outcome".into())));
    assert_eq!(claimed.records[..50], records);
}

#[tokio::test]
async fn a_redis_restarted_empty_is_a_new_attempt() {
    let mut redis = RedisFixture::start().await;
    let store = redis.store.clone();
    let lease = take(&*store, 1, "x", 7).await.lease;
    redis.server.restart(false).await.unwrap();
    assert_eq!(
        until_known(|| store.beat(std::slice::from_ref(&lease))).await,
        Ok(vec![false])
    );
    assert_eq!(take(&*store, 1, "x", 8).await.lease.attempt, attempt(8));
}

/// A script runs without end, so Redis answers BUSY until an operator kills it.
#[tokio::test]
async fn a_redis_busy_with_a_script_is_waited_for_until_it_is_killed() {
    let redis = RedisFixture::start().await;
    let store = &*redis.store;
    let lease = take(store, 1, "x", 7).await.lease;
    let () = redis.raw_command(&["CONFIG", "SET", "lua-time-limit", "50"]).await;
    let (mut other, mut person) = (redis.raw().await, redis.raw().await);
    let endless = tokio::spawn(async move {
        let mut script = redis::cmd("EVAL");
        let ended: redis::RedisResult<()> = script.arg("while true do end").arg(0).query_async(&mut other).await;
        ended
    });
    let busy = async {
        loop {
            if let Err(error) = store.commit(lease, &[record("k", "v")]).await {
                break error;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(matches!(busy.await, StoreError::Unknown(_)), "it may be repeated");
    let () = redis::cmd("SCRIPT").arg("KILL").query_async(&mut person).await.unwrap();
    assert!(endless.await.unwrap().is_err(), "the script was killed");
    let late = [record("l", "v")];
    assert_eq!(until_known(|| store.commit(lease, &late)).await, Ok(vec![New]));
}

#[tokio::test]
async fn a_step_that_timed_out_is_unknown_and_may_be_repeated() {
    let redis = RedisFixture::with(RedisOptions {
        response_timeout: Duration::from_millis(200),
        ..options()
    })
    .await;
    let store = &*redis.store;
    // Redis delays each step until after its timeout, and then still runs it.
    macro_rules! stalled {
        ($step:expr) => {{
            let () = redis.raw_command(&["CLIENT", "PAUSE", "1200", "ALL"]).await;
            let first = $step.await;
            assert!(matches!(first, Err(StoreError::Unknown(_))), "{first:?}");
            until_known(|| $step).await
        }};
    }
    let claim = stalled!(store.claim(group(1), "x", attempt(7), None)).unwrap();
    let Claim::Ours(claimed) = claim else {
        panic!("there is no other owner: {claim:?}")
    };
    let lease = claimed.lease;
    assert_eq!((lease.attempt, lease.fence), (attempt(7), 1));
    let wave = [record("a", "1"), record("b", "2")];
    let committed = stalled!(store.commit(lease, &wave)).unwrap();
    assert!(committed.iter().all(|c| *c != Conflict), "{committed:?}");
    assert_eq!(take(store, 1, "x", 8).await.records, wave);
    assert_eq!(stalled!(store.decide(lease, "outcome".into())), Ok("outcome".into()));
    assert_eq!(stalled!(store.beat(std::slice::from_ref(&lease))), Ok(vec![true]));
    assert_eq!(stalled!(store.finish(lease)), Ok(()));
    let again = take(store, 1, "x", 8).await.lease;
    assert_eq!(stalled!(store.release(again)), Ok(()));
    let last = take(store, 1, "x", 8).await;
    assert_eq!((last.lease.fence, last.decided), (3, Some("outcome".into())));
    assert_eq!(stalled!(store.void(last.lease)), Ok(()));
    assert_eq!(take(store, 1, "x", 9).await.lease.attempt, attempt(9));
}

#[tokio::test]
async fn forgotten_scripts_are_loaded_again() {
    let redis = RedisFixture::start().await;
    let store = &*redis.store;
    let lease = take(store, 1, "x", 7).await.lease;
    for round in ["a", "b"] {
        let () = redis.raw_command(&["SCRIPT", "FLUSH"]).await;
        assert_eq!(store.commit(lease, &[record(round, "v")]).await, Ok(vec![New]));
        assert_eq!(store.beat(&[lease]).await, Ok(vec![true]));
    }
    assert_eq!(store.commit(lease, &[record("a", "v")]).await, Ok(vec![Duplicate]));
}

#[tokio::test]
async fn a_key_of_another_program_is_named() {
    let redis = RedisFixture::start().await;
    let store = &*redis.store;
    let () = redis.raw_command(&["SET", &redis.key(group(1)), "mine"]).await;
    let text = unusable(store.claim(group(1), "x", attempt(7), None).await);
    assert!(text.contains("WRONGTYPE") && text.contains("delete that key"), "{text}");
    let kept: String = redis.raw_command(&["GET", &redis.key(group(1))]).await;
    assert_eq!(kept, "mine");
    let () = redis
        .raw_command(&["HSET", &redis.key(group(2)), "colour", "red"])
        .await;
    assert_eq!(take(store, 2, "x", 7).await.lease.fence, 1);
    let lease = take(store, 3, "x", 7).await.lease;
    store.commit(lease, &[record("k", "v")]).await.unwrap();
    let () = redis
        .raw_command(&["HSET", &redis.key(group(3)), "r:k", "no order"])
        .await;
    let text = unusable(store.claim(group(3), "x", attempt(7), None).await);
    assert!(text.contains("another program writes"), "{text}");
}

#[tokio::test]
async fn a_full_redis_changes_nothing_and_can_still_be_emptied() {
    let redis = RedisFixture::start().await;
    let store = &*redis.store;
    let kept = take(store, 1, "x", 7).await.lease;
    let mut leases = Vec::new();
    for n in 2..5 {
        leases.push(take(store, n, "x", 7).await.lease);
    }
    let () = redis.raw_command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let wave: Vec<_> = (0..3000).map(|n| record(&n.to_string(), "v")).collect();
    for text in [
        unusable(store.commit(kept, &wave).await),
        unusable(store.decide(kept, "outcome".into()).await),
        unusable(store.beat(&[kept]).await),
        unusable(store.claim(group(9), "x", attempt(7), None).await),
    ] {
        assert!(text.contains("raise its maxmemory"), "{text}");
    }
    store.finish(leases[0]).await.unwrap();
    store.release(leases[1]).await.unwrap();
    store.void(leases[2]).await.unwrap();
    let () = redis.raw_command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let claimed = take(store, 1, "x", 8).await;
    assert_eq!((claimed.lease, claimed.records, claimed.decided), (kept, vec![], None));
    assert_eq!(store.commit(kept, &wave).await, Ok(vec![New; 3000]));
}

#[tokio::test]
async fn a_url_that_leads_nowhere_is_explained() {
    // Bound without listening: no server answers, and no other process can take the port.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let free = held.local_addr().unwrap().port();
    let unused = format!("redis://:s3cret@127.0.0.1:{free}/0");
    let refused = RedisStore::connect(&unused, &run(), options()).await;
    assert!(
        matches!(&refused, Err(StoreError::Unknown(text)) if !text.contains("s3cret")),
        "{refused:?}"
    );
    for url in [
        "http://:s3cret@localhost",
        "localhost:6379",
        "redis://:s3cret@h:notaport/0",
        "memory:",
    ] {
        let text = unusable(RedisStore::connect(url, &run(), options()).await);
        assert!(text.contains("redis[s]://") && !text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn dangerous_settings_are_warned_of() {
    let redis = RedisFixture::start().await;
    let () = redis
        .raw_command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
        .await;
    let () = redis.raw_command(&["CONFIG", "SET", "appendfsync", "no"]).await;
    let () = redis.raw_command(&["CONFIG", "SET", "appendonly", "no"]).await;
    let warnings = redis.store.check().await.unwrap();
    for expected in ["maxmemory-policy noeviction", "appendfsync everysec", "appendonly yes"] {
        assert!(
            warnings.iter().any(|w| w.contains(expected)),
            "{expected}: {warnings:?}"
        );
    }
    let shown = redis.store.settings().await.unwrap().to_string();
    assert!(
        shown.contains("appendonly no, appendfsync no, maxmemory-policy allkeys-lru"),
        "{shown}"
    );
}

#[tokio::test]
async fn only_open_groups_have_no_end() {
    let redis = RedisFixture::with(RedisOptions {
        keep_finished: Duration::from_millis(1),
        ..options()
    })
    .await;
    let kept = RedisStore::connect(&redis.server.url(), &run(), options())
        .await
        .unwrap();
    let open = take(&*redis.store, 1, "x", 7).await.lease;
    redis.store.commit(open, &[record("k", "v")]).await.unwrap();
    let finished = take(&*kept, 2, "x", 7).await.lease;
    kept.finish(finished).await.unwrap();
    let released = take(&*kept, 3, "x", 7).await.lease;
    kept.release(released).await.unwrap();
    let forgotten = take(&*redis.store, 4, "x", 7).await.lease;
    redis.store.finish(forgotten).await.unwrap();
    while redis.raw_command::<bool>(&["EXISTS", &redis.key(group(4))]).await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let keys: BTreeSet<String> = redis.raw_command(&["KEYS", "*"]).await;
    assert_eq!(keys, [1, 2, 3].map(|n| redis.key(group(n))).into());
    let ttl = async |n| redis.raw_command::<i64>(&["TTL", &redis.key(group(n))]).await;
    assert_eq!((ttl(1).await, ttl(3).await), (-1, -1));
    assert!((1..=600).contains(&ttl(2).await));
    // Opened again, it has no expiry again.
    take(&*kept, 2, "x", 8).await;
    assert_eq!(ttl(2).await, -1);
}

/// Runs for the test below in a process that is killed: prints the server's pid and waits for its
/// end.
#[tokio::test]
#[ignore = "the owner that is killed by the test below"]
async fn owner_to_be_killed() {
    let Some(folder) = std::env::var_os("DYAD_TEST_OWNED_REDIS") else {
        return;
    };
    let server = PrivateRedis::start(folder.as_ref(), RedisServerOptions::default())
        .await
        .unwrap();
    println!("\npid {}", server.pid().unwrap());
    tokio::time::sleep(Duration::from_secs(600)).await;
}

#[tokio::test]
async fn a_private_redis_ends_with_an_owner_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "faults::owner_to_be_killed", "--nocapture"])
        .env("DYAD_TEST_OWNED_REDIS", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let pid = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("pid ")?.parse::<u32>().ok());
    let pid = pid.expect("the owner starts a server");
    owner.kill().unwrap();
    owner.wait().unwrap();
    // The folder stays locked while that server lives, so the next one starts only after its end.
    let mut next = PrivateRedis::start(folder.path(), RedisServerOptions::default())
        .await
        .unwrap();
    assert!(next.is_running());
    assert_ne!(next.pid(), Some(pid));
    let gone = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| {
        stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z')
    });
    assert!(gone, "server {pid} outlived its owner");
    next.stop();
}

//! Measures commits per second into the conversation store: in memory, and in a private Redis with
//! both fsync settings.
//!
//! `cargo run -p broker --example store_bench [SECONDS]` prints the median of three runs of SECONDS
//! (2) each. Records have 1 KiB, with one record per commit and 1 or 64 commits in flight; then one
//! commit of a whole wave of 64.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use broker::ids::{Attempt, GroupId, RunId};
use broker::local::redis::{Fsync, PrivateRedis, RedisServerOptions};
use broker::store::memory::MemoryStore;
use broker::store::redis::{RedisOptions, RedisStore};
use broker::store::{Claim, Lease, Record, Store, StoreError};

const PAYLOAD: usize = 1024;
/// The number of records after which a new group begins, like the groups of a run.
const RECORDS_PER_GROUP: usize = 256;

type Failure = Box<dyn Error + Send + Sync>;

async fn claim(store: &dyn Store, worker: u8) -> Result<Lease, StoreError> {
    match store
        .claim(GroupId([worker; 16]), "bench", Attempt([worker; 16]), None)
        .await?
    {
        Claim::Ours(claimed) => Ok(claimed.lease),
        Claim::Theirs { owner, .. } => Err(StoreError::Unusable(format!("{owner} has the group"))),
    }
}

/// Commits `wave` records at a time until `until`. Returns their number.
async fn work(
    store: Arc<dyn Store>,
    worker: u8,
    wave: usize,
    until: Instant,
    count: Arc<AtomicU64>,
) -> Result<(), Failure> {
    while Instant::now() < until {
        let lease = claim(&*store, worker).await?;
        for first in (0..RECORDS_PER_GROUP).step_by(wave) {
            let records: Vec<Record> = (first..first + wave)
                .map(|n| Record {
                    key: format!("{n}/solver/0/0"),
                    payload: vec![worker; PAYLOAD].into(),
                })
                .collect();
            store.commit(lease, &records).await?;
            count.fetch_add(1, Ordering::Relaxed);
            if Instant::now() >= until {
                break;
            }
        }
        store.void(lease).await?;
    }
    Ok(())
}

async fn rate(store: &Arc<dyn Store>, in_flight: u8, wave: usize, length: Duration) -> Result<f64, Failure> {
    let mut rates = Vec::new();
    for _ in 0..3 {
        let count = Arc::new(AtomicU64::new(0));
        let begun = Instant::now();
        let workers: Vec<_> = (0..in_flight)
            .map(|worker| tokio::spawn(work(store.clone(), worker, wave, begun + length, count.clone())))
            .collect();
        for worker in workers {
            worker.await??;
        }
        rates.push(count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[1])
}

async fn report(name: &str, store: Arc<dyn Store>, length: Duration) -> Result<(), Failure> {
    for (in_flight, wave) in [(1, 1), (64, 1), (1, 64)] {
        let rate = rate(&store, in_flight, wave, length).await?;
        println!(
            "{name:<16} {in_flight:>2} in flight, {wave:>2} records: {rate:>9.0} commits/s, {:>7.3} ms each",
            f64::from(in_flight) * 1e3 / rate
        );
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(2.0), |text| text.parse())?;
    let length = Duration::from_secs_f64(seconds);
    report("memory", MemoryStore::new(), length).await?;
    let run = RunId::new("bench").ok_or("a run's name")?;
    for (name, fsync) in [("redis everysec", Fsync::EverySec), ("redis always", Fsync::Always)] {
        let folder = tempfile::tempdir()?;
        let options = RedisServerOptions {
            fsync,
            ..RedisServerOptions::default()
        };
        let server = PrivateRedis::start(folder.path(), options).await?;
        let store = RedisStore::connect(&server.url(), &run, RedisOptions::default()).await?;
        report(name, store, length).await?;
    }
    Ok(())
}

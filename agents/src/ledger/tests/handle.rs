//! Tests of the handle: durable answers, one commit for many calls, rejections per caller.

use std::time::Instant;

use super::*;
use crate::ledger::{LedgerHandle, Staged};

fn handle(folder: &tempfile::TempDir) -> LedgerHandle {
    LedgerHandle::open(&folder.path().join("a.sqlite"), &run(), &agent()).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn answers_are_durable_and_close_waits_for_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let ledger = handle(&folder);
        let clone = ledger.clone();
        clone.reserve(vec![reserve(0)], 9).await.unwrap();
        let lineage = ledger.begin_lineage(None).await.unwrap();
        let (bad, good) = tokio::join!(
            ledger.record_batch(lineage, 1, trained(5, 1)),
            clone.stage(vec![part(0, 1, 1, 0, 1)])
        );
        assert_eq!(bad.unwrap_err().label(), "unknown_group");
        assert_eq!(good.unwrap(), [Staged::Closed]);
        ledger.record_batch(lineage, 1, trained(0, 1)).await.unwrap();
        drop(clone);
        ledger.close().await;
        let again = handle(&folder);
        assert_eq!(again.counts().await.unwrap().trained, 1);
        again.close().await;
    });
}

/// Closes 1,600 groups of 16 samples in calls of one group each, like deliveries, and prints the
/// rate.
#[test]
fn many_callers_share_commits() {
    let folder = tempfile::tempdir().unwrap();
    let groups = 1600u64;
    let seconds = runtime().block_on(async {
        let ledger = handle(&folder);
        let begin = Instant::now();
        let workers = (0..64u64).map(|worker| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                for index in (worker..groups).step_by(64) {
                    ledger.reserve(vec![reserve(index)], groups).await.unwrap();
                    let whole = Bundle {
                        content: BundleContent::Samples((0..16).map(sample).collect()),
                        ..part(index, 1, 1, 0, 1)
                    };
                    assert_eq!(ledger.stage(vec![whole]).await.unwrap(), [Staged::Closed]);
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.unwrap();
        }
        let seconds = begin.elapsed().as_secs_f64();
        assert_eq!(ledger.counts().await.unwrap().ready, groups);
        ledger.close().await;
        seconds
    });
    println!(
        "reserve + close at synchronous=FULL, 64 callers: {:.0} groups/s",
        groups as f64 / seconds
    );
}

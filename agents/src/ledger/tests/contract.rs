//! Tests of each call's promises.

use std::time::Duration;

use broker::ids::{Attempt, Digest};
use broker::protocol::control::{RunPhase, RunState};
use broker::protocol::reserve::ReserveVerdict;
use tokio::time::Instant;

use super::*;
use crate::ledger::{LedgerError, Staged};

#[test]
fn reservations_are_idempotent_and_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    let all: Vec<_> = (0..3).map(reserve).collect();
    let granted = ReserveVerdict::Granted;
    assert_eq!(
        ledger.reserve(&all, 2).unwrap(),
        [granted.clone(), granted.clone(), ReserveVerdict::Later]
    );
    assert_eq!(
        ledger.reserve(&all[..2], 0).unwrap(),
        [granted.clone(), granted.clone()],
        "held rows need no room"
    );
    ledger
        .stage(&[part(0, 1, 1, 0, 1), dead(1, 1, "dead: three crashes")])
        .unwrap();
    assert_eq!(
        ledger.reserve(&all, 2).unwrap(),
        [
            ReserveVerdict::Closed {
                attempt: Attempt([1; 16]),
                digest: Digest([1; 16])
            },
            ReserveVerdict::Dead {
                reason: "dead: three crashes".into()
            },
            granted,
        ]
    );
    let counts = ledger.counts();
    assert_eq!(
        (counts.ready, counts.reserved, counts.closed, counts.dead),
        (1, 1, 1, 1)
    );
}

/// Happens when a new key of the coordinators has replaced an old one.
#[test]
fn a_repeated_reservation_stores_the_newest_seal_of_the_task() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    let sealed = |seal: Option<[u8; 32]>| Reserve {
        seal: seal.map(Seal),
        ..reserve(0)
    };
    let mut stored = |request: Reserve| {
        ledger.reserve(&[request], 9).unwrap();
        ledger.overdue(Instant::now(), Duration::ZERO).unwrap()[0].seal
    };
    assert_eq!(stored(sealed(None)), None);
    assert_eq!(stored(sealed(Some([1; 32]))), Some(Seal([1; 32])));
    assert_eq!(stored(sealed(Some([2; 32]))), Some(Seal([2; 32])));
    assert_eq!(
        stored(sealed(None)),
        Some(Seal([2; 32])),
        "a reservation without a key keeps the seal"
    );
    let elsewhere = Reserve {
        order: 7,
        ..sealed(Some([3; 32]))
    };
    assert_eq!(
        stored(elsewhere),
        Some(Seal([2; 32])),
        "the seal belongs to another place"
    );
}

#[test]
fn a_group_closes_once_when_all_its_parts_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    ledger.reserve(&[reserve(0)], 9).unwrap();
    let bundles = [
        part(0, 1, 1, 2, 3),
        part(0, 2, 7, 0, 2),
        part(0, 1, 1, 2, 3),
        part(0, 1, 1, 0, 3),
        part(0, 1, 1, 1, 3),
        part(0, 2, 7, 1, 2),
        part(0, 1, 1, 1, 3),
        part(0, 1, 2, 0, 1),
        empty(0, 3, "void"),
        part(5, 1, 1, 0, 1),
    ];
    use Staged::{Closed, Duplicate, NoRow, OtherAttempt};
    let expected = [
        Staged::Staged,
        Staged::Staged,
        Duplicate,
        Staged::Staged,
        Closed,
        OtherAttempt,
        Duplicate,
        OtherAttempt,
        OtherAttempt,
        NoRow,
    ];
    assert_eq!(ledger.stage(&bundles).unwrap(), expected);
    let ready = ledger.ready(9).unwrap();
    let BundleContent::Samples(samples) = &ready[0].content else {
        panic!("no samples")
    };
    assert_eq!(
        samples.iter().map(|s| s.member).collect::<Vec<_>>(),
        [0, 1, 2],
        "joined in the order of parts"
    );
    assert_eq!((ready[0].part, ready[0].parts), (0, 1));
    let counts = ledger.counts();
    assert_eq!((counts.duplicates, counts.other_attempt), (2, 3));
    let audit = ledger.audit().unwrap();
    assert_eq!((audit.staged_parts, audit.samples), (0, 3), "the loser's stage is gone");
    drop(ledger);
    assert_eq!(open(&folder).counts(), counts, "counts are the same after a restart");
}

#[test]
fn contradicting_parts_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    ledger.reserve(&[reserve(0)], 9).unwrap();
    let twice = Bundle {
        content: BundleContent::Samples(vec![sample(0), sample(0)]),
        ..part(0, 1, 1, 0, 1)
    };
    let answers = ledger
        .stage(&[twice, part(0, 1, 1, 3, 3), part(0, 1, 1, 0, 3), part(0, 1, 1, 1, 4)])
        .unwrap();
    assert!(matches!(answers[0], Staged::Malformed(_)), "{answers:?}");
    assert!(matches!(answers[1], Staged::Malformed(_)), "{answers:?}");
    assert_eq!(answers[2], Staged::Staged);
    assert!(matches!(answers[3], Staged::Malformed(_)), "{answers:?}");
    assert_eq!(ledger.counts().reserved, 1);
}

#[test]
fn ready_groups_come_in_the_order_of_admission() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    ledger.reserve(&[2, 0, 3, 1].map(reserve), 9).unwrap();
    ledger.stage(&[3, 1, 2].map(|i| part(i, 1, 1, 0, 1))).unwrap();
    ledger.stage(&[empty(0, 1, "too few valid conversations")]).unwrap();
    let orders = |ledger: &Ledger| ledger.ready(2).unwrap().iter().map(|b| b.order).collect::<Vec<_>>();
    assert_eq!(orders(&ledger), [1, 2]);
    assert_eq!(ledger.counts().empty["too few valid conversations"], 1);
    drop(ledger);
    assert_eq!(orders(&open(&folder)), [1, 2]);
}

#[test]
fn overdue_reservations_are_reported_with_a_doubling_bound() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    ledger.reserve(&[reserve(1), reserve(0)], 9).unwrap();
    let (start, bound) = (Instant::now(), Duration::from_secs(300));
    let mut at = |seconds: u64| -> Vec<u64> {
        let now = start + Duration::from_secs(seconds);
        ledger
            .overdue(now, bound)
            .unwrap()
            .iter()
            .map(|row| row.order)
            .collect()
    };
    assert_eq!(at(299), [0u64; 0]);
    assert_eq!(at(301), [0, 1]);
    assert_eq!(at(302 + 300), [0u64; 0], "the second wait is 600 s");
    assert_eq!(at(302 + 600), [0, 1]);
    assert_eq!(at(302 + 1200), [0u64; 0]);
    ledger.stage(&[part(0, 1, 1, 0, 1)]).unwrap();
    let rows = ledger.overdue(start + Duration::from_secs(1_000_000), bound).unwrap();
    assert_eq!(rows.len(), 1, "a closed group waits no more");
    assert_eq!(
        (rows[0].body.as_slice(), rows[0].reported),
        (reserve(1).body.as_slice(), 2)
    );
}

/// New coordinators receive every row at once; the bound for the others stays the same after it.
#[test]
fn a_report_to_a_new_coordinator_does_not_delay_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    ledger.reserve(&[reserve(0)], 9).unwrap();
    let (start, bound) = (Instant::now(), Duration::from_secs(300));
    for second in 1..=40 {
        let reported = ledger
            .overdue(start + Duration::from_secs(second), Duration::ZERO)
            .unwrap();
        assert_eq!(reported.len(), 1);
    }
    let after = |ledger: &mut Ledger, seconds| ledger.overdue(start + Duration::from_secs(seconds), bound).unwrap();
    assert_eq!(after(&mut ledger, 340).len(), 0);
    assert_eq!(after(&mut ledger, 341).len(), 1, "300 s after its last report");
}

#[test]
fn only_the_owner_opens_a_ledger_for_its_run_and_agent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sqlite");
    let ledger = open(&folder);
    let error = Ledger::open(&path, &run(), &agent()).unwrap_err();
    assert!(
        matches!(&error, LedgerError::InUse { holder, .. } if *holder == std::process::id().to_string()),
        "{error}"
    );
    drop(ledger);
    let other = AgentName::new("b").unwrap();
    let error = Ledger::open(&path, &run(), &other).unwrap_err();
    assert!(matches!(error, LedgerError::Foreign { .. }), "{error}");
    open(&folder);
}

#[test]
fn a_fenced_owner_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sqlite");
    let mut zombie = open(&folder);
    // A file system without locks behaves like this.
    std::fs::remove_file(folder.path().join("a.sqlite.lock")).unwrap();
    let mut owner = Ledger::open(&path, &run(), &agent()).unwrap();
    let error = zombie.reserve(&[reserve(0)], 9).unwrap_err();
    assert!(matches!(error, LedgerError::Fenced { ours: 1, newest: 2 }), "{error}");
    assert_eq!(owner.reserve(&[reserve(0)], 9).unwrap(), [ReserveVerdict::Granted]);
}

#[test]
fn a_damaged_file_is_rejected_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sqlite");
    let mut ledger = open(&folder);
    let many: Vec<_> = (0..500).map(reserve).collect();
    ledger.reserve(&many, 1000).unwrap();
    drop(ledger);
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end / 2..].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let error = Ledger::open(&path, &run(), &agent()).unwrap_err();
    assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
    std::fs::write(&path, b"this is not a database, whatever its name says").unwrap();
    let error = Ledger::open(&path, &run(), &agent()).unwrap_err();
    assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
}

#[test]
fn file_without_a_table_is_no_ledger_yet() {
    use crate::ledger::Inspector;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sqlite");
    assert!(Inspector::find(&path).unwrap().is_none());
    // The disk was full before the tables were written: SQLite has made the file only.
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.pragma_update(None, "journal_mode", "WAL").unwrap();
    drop(raw);
    assert!(path.metadata().unwrap().len() > 0);
    assert!(Inspector::find(&path).unwrap().is_none());
    drop(open(&folder));
    assert_eq!(Inspector::find(&path).unwrap().unwrap().closed().unwrap(), 0);
}

#[test]
fn the_runs_state_and_notes_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    let state = |seq, phase| RunState { seq, phase };
    assert_eq!(ledger.state().unwrap(), RunState::default());
    ledger.adopt(state(1, RunPhase::Running)).unwrap();
    let newest = state(3, RunPhase::Draining);
    assert_eq!(ledger.adopt(newest).unwrap(), newest);
    for older in [state(2, RunPhase::Closed), state(3, RunPhase::Paused)] {
        assert_eq!(ledger.adopt(older).unwrap(), newest, "the newest state is kept");
    }
    ledger.set_note("cursor", "task/7").unwrap();
    drop(ledger);
    let ledger = open(&folder);
    assert_eq!(ledger.state().unwrap(), newest);
    assert_eq!(ledger.note("cursor").unwrap().as_deref(), Some("task/7"));
    assert_eq!(
        ledger.note("run").unwrap(),
        None,
        "notes do not collide with the ledger's own keys"
    );
}

/// Rows of earlier releases are kept, read and returned; fields they did not have are unknown.
#[test]
fn ledgers_of_earlier_releases_are_upgraded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sqlite");
    for (version, missing) in [(1, ["seal", "conversations"].as_slice()), (2, &["seal"])] {
        let mut ledger = Ledger::open(&path, &run(), &agent()).unwrap();
        ledger.reserve(&[reserve(version)], 99).unwrap();
        drop(ledger);
        let raw = rusqlite::Connection::open(&path).unwrap();
        for column in missing {
            raw.execute(&format!("ALTER TABLE groups DROP COLUMN {column}"), [])
                .unwrap();
        }
        raw.pragma_update(None, "user_version", version as i64).unwrap();
        drop(raw);
        let inspector = crate::ledger::Inspector::open(&path).unwrap();
        assert_eq!(inspector.groups().unwrap().len() as u64, version, "read as it is");
        assert_eq!(inspector.custody().unwrap()[0].seal, None);
        drop(inspector);
        let mut ledger = Ledger::open(&path, &run(), &agent()).unwrap();
        let overdue = ledger.overdue(Instant::now(), Duration::ZERO).unwrap();
        assert!(overdue.iter().all(|row| row.seal.is_none()), "version {version}");
    }
    let mut ledger = Ledger::open(&path, &run(), &agent()).unwrap();
    ledger.reserve(&[reserve(3)], 99).unwrap();
    let overdue = ledger.overdue(Instant::now(), Duration::ZERO).unwrap();
    assert_eq!(overdue.last().unwrap().seal, reserve(3).seal);
}

#[test]
fn a_dead_looking_reason_of_an_empty_bundle_kills_no_row() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    ledger.reserve(&[reserve(0)], 99).unwrap();
    ledger.stage(&[empty(0, 1, "dead: it only says so")]).unwrap();
    assert_eq!((ledger.counts().closed, ledger.counts().dead), (1, 0));
}

/// Schema 12 changed no stored bytes.
#[test]
fn samples_of_schema_11_open_and_are_read() {
    for (table, staged) in [("payloads", part(0, 1, 1, 0, 1)), ("stages", part(0, 1, 1, 0, 2))] {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = open(&folder);
        ledger.reserve(&[reserve(0)], 99).unwrap();
        ledger.stage(&[staged]).unwrap();
        drop(ledger);
        let raw = rusqlite::Connection::open(folder.path().join("a.sqlite")).unwrap();
        let stored = format!("SELECT bytes FROM {table}");
        let mut bytes: Vec<u8> = raw.query_row(&stored, [], |row| row.get(0)).unwrap();
        bytes[..2].copy_from_slice(&11u16.to_le_bytes());
        raw.execute(&format!("UPDATE {table} SET bytes = ?1"), [bytes]).unwrap();
        drop(raw);
        let mut ledger = open(&folder);
        ledger.stage(&[part(0, 1, 1, 1, 2)]).unwrap();
        assert_eq!(ledger.ready(9).unwrap().len(), 1, "{table}");
    }
}

/// Samples are not upgraded: a resume of another release's run fails at once.
#[test]
fn samples_of_another_release_are_rejected_at_the_opening() {
    for (table, staged) in [("payloads", part(0, 1, 1, 0, 1)), ("stages", part(0, 1, 1, 0, 2))] {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = open(&folder);
        ledger.reserve(&[reserve(0)], 99).unwrap();
        ledger.stage(&[staged]).unwrap();
        drop(ledger);
        drop(open(&folder));
        let path = folder.path().join("a.sqlite");
        let raw = rusqlite::Connection::open(&path).unwrap();
        let stored = format!("SELECT bytes FROM {table}");
        let mut bytes: Vec<u8> = raw.query_row(&stored, [], |row| row.get(0)).unwrap();
        assert_eq!(bytes[..2], broker::codec::SCHEMA.to_le_bytes(), "{table}");
        bytes[..2].copy_from_slice(&9u16.to_le_bytes());
        raw.execute(&format!("UPDATE {table} SET bytes = ?1"), [bytes]).unwrap();
        drop(raw);
        let refused = Ledger::open(&path, &run(), &agent()).unwrap_err();
        assert!(
            matches!(refused, LedgerError::Release { found: 9, known, .. } if known == broker::codec::SCHEMA),
            "{table}: {refused}"
        );
        assert!(refused.to_string().contains("schema 9"), "{refused}");
    }
}

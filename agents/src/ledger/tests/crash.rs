//! Tests a crash in mid-transaction: answered calls persist, unanswered calls leave no trace.

use std::path::Path;

use super::*;

/// Copies the files as a crash at this moment would leave them.
fn crash_image(from: &Path, to: &Path) {
    for name in ["a.sqlite", "a.sqlite-wal"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

#[test]
fn an_uncommitted_transaction_leaves_no_trace() {
    let (folder, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut ledger = open(&folder);
    ledger.reserve(&[reserve(0), reserve(1)], 9).unwrap();
    ledger.stage(&[part(0, 1, 1, 0, 2)]).unwrap();
    let answered = ledger.counts();

    ledger.begin_group().unwrap();
    ledger.stage(&[part(0, 1, 1, 1, 2), part(1, 1, 1, 0, 1)]).unwrap();
    ledger.reserve(&[reserve(2)], 9).unwrap();
    crash_image(folder.path(), after.path());
    let mut reopened = Ledger::open(&after.path().join("a.sqlite"), &run(), &agent()).unwrap();
    assert_eq!(reopened.counts(), answered);
    assert_eq!(reopened.audit().unwrap().staged_parts, 1);
    let again = reopened.stage(&[part(0, 1, 1, 1, 2)]).unwrap();
    assert_eq!(
        again,
        [crate::ledger::Staged::Closed],
        "the part that was on disk counts"
    );
    drop(reopened);

    ledger.end_group().unwrap();
    let later = tempfile::tempdir().unwrap();
    crash_image(folder.path(), later.path());
    let reopened = Ledger::open(&later.path().join("a.sqlite"), &run(), &agent()).unwrap();
    assert_eq!(
        reopened.counts(),
        ledger.counts(),
        "after the commit everything persists"
    );
    assert_eq!(reopened.counts().ready, 2);
}

#[test]
fn a_storage_error_fails_the_group_and_memory_matches_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder);
    ledger.reserve(&[reserve(0)], 9).unwrap();
    let before = ledger.counts();
    ledger.begin_group().unwrap();
    ledger.reserve(&[reserve(1)], 9).unwrap();
    ledger
        .connection
        .execute_batch("ALTER TABLE payloads RENAME TO hidden")
        .unwrap();
    let error = ledger.stage(&[part(0, 1, 1, 0, 1)]).unwrap_err();
    assert_eq!(error.label(), "storage");
    assert_eq!(
        ledger.reserve(&[reserve(2)], 9).unwrap_err().label(),
        "storage",
        "nothing runs after it"
    );
    ledger.end_group().unwrap_err();
    assert_eq!(ledger.counts(), before);
    assert_eq!(
        ledger.stage(&[part(0, 1, 1, 0, 1)]).unwrap(),
        [crate::ledger::Staged::Closed]
    );
}

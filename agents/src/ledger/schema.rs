//! The ledger's tables.

/// `PRAGMA user_version` of this schema.
pub(super) const VERSION: i64 = 3;

/// The change for each earlier version, oldest first.
pub(super) const UPGRADES: [(i64, &str); 2] = [
    (1, "ALTER TABLE groups ADD COLUMN conversations INTEGER"),
    (2, "ALTER TABLE groups ADD COLUMN seal BLOB"),
];

/// States of a group's row, as stored.
pub(super) const RESERVED: i64 = 0;
pub(super) const CLOSED: i64 = 1;
pub(super) const DEAD: i64 = 2;

/// The tables, created at the first opening. `groups.seq` is the order of reservation. `body` is
/// custody of the task and is removed when the row closes. A closed row without samples has
/// `samples = 0` and the `reason`. `conversations` counts the group's valid conversations. `seal`
/// is the coordinators' mark on the task.
pub(super) const TABLES: &str = "
CREATE TABLE groups (
    seq INTEGER PRIMARY KEY,
    group_id BLOB NOT NULL UNIQUE,
    task TEXT NOT NULL,
    ord INTEGER NOT NULL,
    body BLOB,
    state INTEGER NOT NULL,
    attempt BLOB,
    digest BLOB,
    samples INTEGER NOT NULL DEFAULT 0,
    reason TEXT,
    conversations INTEGER,
    seal BLOB
) STRICT;
CREATE TABLE stages (
    group_id BLOB NOT NULL,
    attempt BLOB NOT NULL,
    digest BLOB NOT NULL,
    part INTEGER NOT NULL,
    parts INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    UNIQUE (group_id, attempt, digest, part)
) STRICT;
CREATE TABLE payloads (
    id INTEGER PRIMARY KEY,
    group_id BLOB NOT NULL UNIQUE,
    bytes BLOB NOT NULL
) STRICT;
CREATE TABLE lineages (
    id INTEGER PRIMARY KEY,
    parent INTEGER,
    fork_step INTEGER NOT NULL
) STRICT;
CREATE TABLE batches (
    seq INTEGER PRIMARY KEY,
    lineage INTEGER NOT NULL,
    step INTEGER NOT NULL,
    digest BLOB NOT NULL,
    trained INTEGER NOT NULL,
    discarded INTEGER NOT NULL,
    UNIQUE (lineage, step)
) STRICT;
CREATE TABLE verdicts (
    lineage INTEGER NOT NULL,
    step INTEGER NOT NULL,
    position INTEGER NOT NULL,
    group_id BLOB NOT NULL,
    member INTEGER NOT NULL,
    role TEXT NOT NULL,
    seat INTEGER NOT NULL,
    reason TEXT,
    PRIMARY KEY (lineage, step, position)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX verdict_of_sample ON verdicts (group_id, member, role, seat, lineage);
CREATE TRIGGER verdicts_are_not_changed BEFORE UPDATE ON verdicts
    BEGIN SELECT RAISE(ABORT, 'verdicts are append-only'); END;
CREATE TRIGGER verdicts_are_not_removed BEFORE DELETE ON verdicts
    BEGIN SELECT RAISE(ABORT, 'verdicts are append-only'); END;
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

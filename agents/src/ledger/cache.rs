//! Frequently read values in memory, recomputed at each opening: counts, ready groups, open
//! reservations.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use broker::ids::{GroupId, WeightVersion};
use rusqlite::{Connection, params};
use serde::Serialize;
use tokio::time::Instant;

use super::error::Doing;
use super::rows::{Id, signed, unsigned};
use super::{LedgerError, Lineage, Lineages, Orders, schema};

/// The ledger in numbers, in groups unless a field says otherwise. `trained` and `discarded` count
/// samples of the surviving lineage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Closed with samples and without a verdict.
    pub ready: u64,
    pub reserved: u64,
    /// All closed groups, with and without samples.
    pub closed: u64,
    pub dead: u64,
    /// Closed without samples, by reason.
    pub empty: BTreeMap<String, u64>,
    /// Bundles received again.
    pub duplicates: u64,
    /// Bundles of an attempt that lost.
    pub other_attempt: u64,
    pub trained: u64,
    pub discarded: BTreeMap<String, u64>,
    /// Batches recorded along the surviving lineage.
    pub batches: u64,
}

/// A reservation that waits for its bundle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// The start of the wait, on this process's monotonic clock.
    pub(super) since: Instant,
    /// The number of overdue reports.
    pub(super) reported: u32,
}

#[derive(Debug, Default)]
pub(super) struct Cache {
    pub(super) counts: Counts,
    /// By order of admission.
    pub(super) ready: BTreeSet<(u64, GroupId)>,
    pub(super) waits: HashMap<GroupId, Wait>,
    pub(super) lineages: Lineages,
    pub(super) orders: Orders,
    counters_changed: bool,
}

/// The counters that are not derived from rows.
const COUNTERS: [&str; 2] = ["duplicates", "other_attempt"];

impl Cache {
    /// Reads everything from the file. Reservations found there wait from `now` on.
    pub(super) fn load(connection: &Connection, now: Instant) -> Result<Self, LedgerError> {
        let mut cache = Self {
            lineages: load_lineages(connection)?,
            ..Self::default()
        };
        set_chain(connection, &cache.lineages.surviving())?;
        cache.load_groups(connection, now)?;
        cache.load_orders(connection)?;
        cache.load_ready(connection)?;
        cache.load_verdicts(connection)?;
        for name in COUNTERS {
            let value = connection
                .query_row(
                    "SELECT coalesce(sum(value), 0) FROM counters WHERE name = ?1",
                    [name],
                    |row| row.get(0),
                )
                .doing("read")?;
            *cache.counter(name) = unsigned(value);
        }
        Ok(cache)
    }

    fn load_groups(&mut self, connection: &Connection, now: Instant) -> Result<(), LedgerError> {
        let mut counts = connection
            .prepare("SELECT state, reason, samples > 0, count(*) FROM groups GROUP BY 1, 2, 3")
            .doing("read")?;
        let mut rows = counts.query([]).doing("read")?;
        while let Some(row) = rows.next().doing("read")? {
            let read = || -> rusqlite::Result<(i64, Option<String>, bool, i64)> {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            };
            let (state, reason, samples, number) = read().doing("read")?;
            let number = unsigned(number);
            match state {
                schema::RESERVED => self.counts.reserved += number,
                schema::DEAD => self.counts.dead += number,
                _ => {
                    self.counts.closed += number;
                    if !samples {
                        *self.counts.empty.entry(reason.unwrap_or_default()).or_default() += number;
                    }
                }
            }
        }
        let mut reserved = connection
            .prepare("SELECT group_id FROM groups WHERE state = ?1")
            .doing("read")?;
        let ids = reserved
            .query_map([schema::RESERVED], |row| row.get::<_, Id>(0))
            .doing("read")?;
        let wait = Wait {
            since: now,
            reported: 0,
        };
        for id in ids {
            self.waits.insert(GroupId(id.doing("read")?.0), wait);
        }
        Ok(())
    }

    fn load_orders(&mut self, connection: &Connection) -> Result<(), LedgerError> {
        let mut statement = connection
            .prepare("SELECT ord FROM groups WHERE ord < ?1")
            .doing("read")?;
        let own = [signed(super::PUBLISHED)];
        let orders = statement.query_map(own, |row| row.get(0).map(unsigned)).doing("read")?;
        for order in orders {
            self.orders.insert(order.doing("read")?);
        }
        Ok(())
    }

    fn load_ready(&mut self, connection: &Connection) -> Result<(), LedgerError> {
        let mut statement = connection
            .prepare(
                "SELECT g.ord, g.group_id FROM payloads p JOIN groups g USING (group_id)
                 WHERE NOT EXISTS (SELECT 1 FROM verdicts v JOIN temp.chain c
                     ON v.lineage = c.lineage AND v.step <= c.step WHERE v.group_id = g.group_id)",
            )
            .doing("read")?;
        let rows = statement
            .query_map([], |row| Ok((unsigned(row.get(0)?), GroupId(row.get::<_, Id>(1)?.0))))
            .doing("read")?;
        self.ready = rows.collect::<Result<_, _>>().doing("read")?;
        self.counts.ready = self.ready.len() as u64;
        Ok(())
    }

    fn load_verdicts(&mut self, connection: &Connection) -> Result<(), LedgerError> {
        let mut statement = connection
            .prepare(
                "SELECT v.reason, count(*) FROM verdicts v JOIN temp.chain c
                 ON v.lineage = c.lineage AND v.step <= c.step GROUP BY 1",
            )
            .doing("read")?;
        let rows = statement
            .query_map([], |row| Ok((row.get::<_, Option<String>>(0)?, unsigned(row.get(1)?))))
            .doing("read")?;
        for row in rows {
            match row.doing("read")? {
                (None, samples) => self.counts.trained = samples,
                (Some(reason), samples) => {
                    self.counts.discarded.insert(reason, samples);
                }
            }
        }
        let batches = connection
            .query_row(
                "SELECT count(*) FROM batches b JOIN temp.chain c ON b.lineage = c.lineage AND b.step <= c.step",
                [],
                |row| row.get(0),
            )
            .doing("read")?;
        self.counts.batches = unsigned(batches);
        Ok(())
    }

    fn counter(&mut self, name: &str) -> &mut u64 {
        match name {
            "duplicates" => &mut self.counts.duplicates,
            _ => &mut self.counts.other_attempt,
        }
    }

    pub(super) fn count_duplicate(&mut self) {
        self.counts.duplicates += 1;
        self.counters_changed = true;
    }

    pub(super) fn count_other_attempt(&mut self) {
        self.counts.other_attempt += 1;
        self.counters_changed = true;
    }

    /// Writes the counters that are not derived from rows, as part of the open transaction.
    pub(super) fn save_counters(&mut self, connection: &Connection) -> Result<(), LedgerError> {
        if !std::mem::take(&mut self.counters_changed) {
            return Ok(());
        }
        for name in COUNTERS {
            let value = signed(*self.counter(name));
            connection
                .prepare_cached("INSERT INTO counters VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2")
                .and_then(|mut statement| statement.execute(params![name, value]))
                .doing("written")?;
        }
        Ok(())
    }

    /// Copies the values that are not in the file yet, after a reload inside a transaction.
    pub(super) fn take_over(&mut self, before: &Self) {
        self.keep_waits_of(before);
        self.counts.duplicates = before.counts.duplicates;
        self.counts.other_attempt = before.counts.other_attempt;
        self.counters_changed = before.counters_changed;
    }

    /// Keeps the start of each wait after a roll-back.
    pub(super) fn keep_waits_of(&mut self, before: &Self) {
        for (group, wait) in &mut self.waits {
            if let Some(earlier) = before.waits.get(group) {
                *wait = *earlier;
            }
        }
    }
}

pub(super) fn load_lineages(connection: &Connection) -> Result<Lineages, LedgerError> {
    let mut statement = connection
        .prepare("SELECT id, parent, fork_step FROM lineages ORDER BY id")
        .doing("read")?;
    let rows = statement
        .query_map([], |row| {
            let step = unsigned(row.get(2)?);
            Ok(Lineage {
                id: row.get(0)?,
                parent: row
                    .get::<_, Option<u32>>(1)?
                    .map(|lineage| WeightVersion { lineage, step }),
            })
        })
        .doing("read")?;
    let mut lineages = Lineages::default();
    for row in rows {
        lineages.push(row.doing("read")?).map_err(|e| LedgerError::Content {
            what: "a lineage".into(),
            reason: e.to_string(),
        })?;
    }
    Ok(lineages)
}

/// Stores a chain in a table that queries can join: (lineage, last step that counts).
pub(super) fn set_chain(connection: &Connection, chain: &[WeightVersion]) -> Result<(), LedgerError> {
    connection
        .execute_batch(
            "CREATE TEMP TABLE IF NOT EXISTS chain (lineage INTEGER PRIMARY KEY, step INTEGER NOT NULL);
             DELETE FROM temp.chain;",
        )
        .doing("read")?;
    for version in chain {
        connection
            .execute(
                "INSERT INTO temp.chain VALUES (?1, ?2)",
                params![version.lineage, signed(version.step)],
            )
            .doing("read")?;
    }
    Ok(())
}

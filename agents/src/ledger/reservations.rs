//! Reservations of groups: granted rows, newer seals, and rows that wait too long for a bundle.

use std::time::Duration;

use broker::ids::GroupId;
use broker::protocol::reserve::{Reserve, ReserveVerdict};
use broker::seal::Seal;
use rusqlite::params;
use tokio::time::Instant;

use super::cache::Wait;
use super::error::Doing;
use super::rows::{Id, signed, unsigned};
use super::{Counts, Ledger, LedgerError, schema};

/// A reservation that has waited for its bundle longer than its bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    pub group: GroupId,
    pub task: String,
    pub order: u64,
    /// The task as it was published, for the `reclaim` queue.
    pub body: Vec<u8>,
    pub seal: Option<Seal>,
    /// The number of earlier reports; each report doubles the bound.
    pub reported: u32,
}

impl Ledger {
    /// Takes custody of groups, one transaction for all. Idempotent. A reserved row is granted
    /// again even without room, and a closed or dead row reports its state. New rows are granted
    /// while reserved + ready < `limit`.
    pub fn reserve(&mut self, requests: &[Reserve], limit: u64) -> Result<Vec<ReserveVerdict>, LedgerError> {
        self.write(|ledger| {
            requests
                .iter()
                .map(|request| ledger.reserve_one(request, limit))
                .collect()
        })
    }

    fn reserve_one(&mut self, request: &Reserve, limit: u64) -> Result<ReserveVerdict, LedgerError> {
        if let Some(row) = self.row(request.group)? {
            if row.state == schema::RESERVED {
                self.seal_again(request)?;
            }
            return Ok(row.verdict());
        }
        let counts = &self.cache.counts;
        if counts.reserved + counts.ready >= limit {
            return Ok(ReserveVerdict::Later);
        }
        self.connection
            .prepare_cached(
                "INSERT INTO groups (group_id, task, ord, body, state, seal) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .and_then(|mut statement| {
                statement.execute(params![
                    Id::from(request.group),
                    request.task,
                    signed(request.order),
                    request.body,
                    schema::RESERVED,
                    request.seal.map(|seal| seal.0)
                ])
            })
            .doing("written")?;
        self.cache.counts.reserved += 1;
        self.cache.orders.insert(request.order);
        let since = Instant::now();
        self.cache.waits.insert(request.group, Wait { since, reported: 0 });
        Ok(ReserveVerdict::Granted)
    }

    /// Stores a newer seal: the same task in the same place may be sealed with a newer key.
    fn seal_again(&mut self, request: &Reserve) -> Result<(), LedgerError> {
        let Some(seal) = request.seal else { return Ok(()) };
        self.connection
            .prepare_cached(
                "UPDATE groups SET seal = ?2 WHERE group_id = ?1 AND ord = ?3 AND body = ?4 AND seal IS NOT ?2",
            )
            .and_then(|mut statement| {
                let group = Id::from(request.group);
                statement.execute(params![group, seal.0, signed(request.order), request.body])
            })
            .doing("written")?;
        Ok(())
    }

    /// Returns reservations that at `now` have waited longer than `bound`. Each earlier report
    /// doubles the bound. A bound of zero returns all reservations at any time, and their next
    /// report is not delayed. The monotonic clock starts again with the process: rows found at the
    /// opening wait from then on.
    pub fn overdue(&mut self, now: Instant, bound: Duration) -> Result<Vec<Overdue>, LedgerError> {
        let late = |wait: &Wait| {
            let bound = bound.saturating_mul(1u32.checked_shl(wait.reported).unwrap_or(u32::MAX));
            bound.is_zero() || now.saturating_duration_since(wait.since) > bound
        };
        let mut groups: Vec<GroupId> = self
            .cache
            .waits
            .iter()
            .filter(|(_, wait)| late(wait))
            .map(|(group, _)| *group)
            .collect();
        groups.sort_unstable();
        let mut overdue = Vec::with_capacity(groups.len());
        for group in groups {
            let Some(wait) = self.cache.waits.get_mut(&group) else {
                continue;
            };
            let reported = wait.reported;
            // A bound of zero means a new coordinator has asked; that must not lengthen the next
            // wait.
            let again = u32::from(!bound.is_zero());
            *wait = Wait {
                since: now,
                reported: reported.saturating_add(again).min(31),
            };
            let row = self
                .connection
                .prepare_cached("SELECT task, ord, body, seal FROM groups WHERE group_id = ?1")
                .and_then(|mut statement| {
                    statement.query_row([Id::from(group)], |row| {
                        Ok(Overdue {
                            group,
                            task: row.get(0)?,
                            order: unsigned(row.get(1)?),
                            body: row.get::<_, Option<Vec<u8>>>(2)?.unwrap_or_default(),
                            seal: row.get::<_, Option<[u8; 32]>>(3)?.map(Seal),
                            reported,
                        })
                    })
                })
                .doing("read")?;
            overdue.push(row);
        }
        overdue.sort_by_key(|row| (row.order, row.group));
        Ok(overdue)
    }

    /// Returns the lowest position in the run's own task source without a group here.
    #[must_use]
    pub fn next_order(&self) -> u64 {
        self.cache.orders.next()
    }

    /// Returns the ledger in numbers, from memory.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.cache.counts.clone()
    }
}

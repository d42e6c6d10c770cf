//! Custody of groups: reservations, bundles in parts, the single closing, and overdue reservations.

use std::collections::HashSet;
use std::time::Duration;

use broker::codec;
use broker::ids::{Attempt, Digest, GroupId};
use broker::protocol::bundle::{Bundle, BundleContent, Sample};
use broker::protocol::reserve::{Reserve, ReserveVerdict};
use broker::seal::Seal;
use rusqlite::{OptionalExtension, params};
use tokio::time::Instant;

use super::cache::Wait;
use super::error::Doing;
use super::rows::{Id, signed, unsigned};
use super::{Counts, Ledger, LedgerError, schema};

/// The result of one bundle. All but `Malformed` and `NoRow` are acknowledged; those two mean that
/// a peer or a file is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Staged {
    /// This part is on disk; other parts are missing.
    Staged,
    /// This bundle has closed the group.
    Closed,
    /// This part, or the whole bundle, was received before.
    Duplicate,
    /// Another attempt (or the same attempt with other content) closed the group before.
    OtherAttempt,
    /// The group was never reserved here.
    NoRow,
    /// The parts contradict each other; nothing was changed.
    Malformed(String),
}

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

/// The columns of a group's row that decisions need.
struct Row {
    state: i64,
    attempt: Option<Id>,
    digest: Option<Id>,
    reason: Option<String>,
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

    /// Takes bundles or parts of them, one transaction for all. The first attempt with all parts
    /// here closes its group and removes every other stage. An empty bundle closes it without
    /// samples, and a dead one closes it as dead.
    pub fn stage(&mut self, bundles: &[Bundle]) -> Result<Vec<Staged>, LedgerError> {
        self.write(|ledger| bundles.iter().map(|bundle| ledger.stage_one(bundle)).collect())
    }

    fn stage_one(&mut self, bundle: &Bundle) -> Result<Staged, LedgerError> {
        let Some(row) = self.row(bundle.group)? else {
            return Ok(Staged::NoRow);
        };
        if row.state != schema::RESERVED {
            return Ok(self.count_late(&row, bundle));
        }
        match &bundle.content {
            BundleContent::Empty { reason } | BundleContent::Dead { reason } => self.close(bundle, None, Some(reason)),
            BundleContent::Samples(_) if bundle.parts == 1 && bundle.part == 0 => match check_samples(bundle) {
                Ok(()) => self.close(bundle, Some(bundle), None),
                Err(problem) => Ok(Staged::Malformed(problem)),
            },
            BundleContent::Samples(_) if bundle.part < bundle.parts => self.stage_part(bundle),
            BundleContent::Samples(_) => Ok(Staged::Malformed(format!("part {} of {}", bundle.part, bundle.parts))),
        }
    }

    fn count_late(&mut self, row: &Row, bundle: &Bundle) -> Staged {
        let same = row.attempt.is_some_and(|id| id.0 == bundle.attempt.0)
            && row.digest.is_some_and(|id| id.0 == bundle.digest.0);
        if same {
            self.cache.count_duplicate();
            Staged::Duplicate
        } else {
            self.cache.count_other_attempt();
            Staged::OtherAttempt
        }
    }

    fn stage_part(&mut self, bundle: &Bundle) -> Result<Staged, LedgerError> {
        let mut earlier = self.parts(bundle)?;
        if earlier.iter().any(|part| part.parts != bundle.parts) {
            return Ok(Staged::Malformed("parts of one bundle disagree on their number".into()));
        }
        if earlier.iter().any(|part| part.part == bundle.part) {
            self.cache.count_duplicate();
            return Ok(Staged::Duplicate);
        }
        if earlier.len() + 1 < usize::from(bundle.parts) {
            self.insert_part(bundle)?;
            return Ok(Staged::Staged);
        }
        earlier.push(bundle.clone());
        earlier.sort_by_key(|part| part.part);
        let whole = join(earlier);
        match check_samples(&whole) {
            Ok(()) => self.close(bundle, Some(&whole), None),
            Err(problem) => Ok(Staged::Malformed(problem)),
        }
    }

    /// Returns the parts of this bundle's attempt and digest that are on disk.
    fn parts(&self, bundle: &Bundle) -> Result<Vec<Bundle>, LedgerError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT bytes FROM stages WHERE group_id = ?1 AND attempt = ?2 AND digest = ?3")
            .doing("read")?;
        let key = params![
            Id::from(bundle.group),
            Id::from(bundle.attempt),
            Id::from(bundle.digest)
        ];
        let rows = statement.query_map(key, |row| row.get::<_, Vec<u8>>(0)).doing("read")?;
        rows.map(|bytes| decode(&bytes.doing("read")?)).collect()
    }

    fn insert_part(&mut self, bundle: &Bundle) -> Result<(), LedgerError> {
        self.connection
            .prepare_cached("INSERT INTO stages VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
            .and_then(|mut statement| {
                statement.execute(params![
                    Id::from(bundle.group),
                    Id::from(bundle.attempt),
                    Id::from(bundle.digest),
                    bundle.part,
                    bundle.parts,
                    codec::encode(bundle)
                ])
            })
            .doing("written")?;
        Ok(())
    }

    /// Closes a reserved row by `winner`'s attempt, with the samples of `whole` or for `reason`.
    fn close(&mut self, winner: &Bundle, whole: Option<&Bundle>, reason: Option<&str>) -> Result<Staged, LedgerError> {
        let group = Id::from(winner.group);
        let samples = whole.map_or(0, |bundle| samples(bundle).len());
        // A bundle without samples trains nothing: it closes like an empty bundle.
        let reason = reason.or((samples == 0).then_some("no samples"));
        let dead = matches!(winner.content, BundleContent::Dead { .. });
        let state = if dead { schema::DEAD } else { schema::CLOSED };
        let attempt = (Id::from(winner.attempt), Id::from(winner.digest));
        let ord: i64 = self
            .connection
            .prepare_cached(
                "UPDATE groups SET state = ?2, attempt = ?3, digest = ?4, samples = ?5, reason = ?6, body = NULL, conversations = ?7
                 WHERE group_id = ?1 RETURNING ord",
            )
            .and_then(|mut statement| {
                statement.query_row(
                    params![
                        group,
                        state,
                        attempt.0,
                        attempt.1,
                        samples as i64,
                        reason,
                        winner.conversations
                    ],
                    |row| row.get(0),
                )
            })
            .doing("written")?;
        if winner.parts > 1 || reason.is_some() || self.has_stages(group)? {
            self.connection
                .prepare_cached("DELETE FROM stages WHERE group_id = ?1")
                .and_then(|mut statement| statement.execute([group]))
                .doing("written")?;
        }
        if let Some(bundle) = whole.filter(|_| samples > 0) {
            self.connection
                .prepare_cached("INSERT INTO payloads (group_id, bytes) VALUES (?1, ?2)")
                .and_then(|mut statement| statement.execute(params![group, codec::encode(bundle)]))
                .doing("written")?;
            self.cache.ready.insert((unsigned(ord), winner.group));
        }
        self.cache.waits.remove(&winner.group);
        count_closed(&mut self.cache.counts, dead, reason);
        self.cache.counts.ready = self.cache.ready.len() as u64;
        Ok(Staged::Closed)
    }

    fn has_stages(&self, group: Id) -> Result<bool, LedgerError> {
        self.connection
            .prepare_cached("SELECT 1 FROM stages WHERE group_id = ?1 LIMIT 1")
            .and_then(|mut statement| statement.exists([group]))
            .doing("read")
    }

    fn row(&self, group: GroupId) -> Result<Option<Row>, LedgerError> {
        self.connection
            .prepare_cached("SELECT state, attempt, digest, reason FROM groups WHERE group_id = ?1")
            .and_then(|mut statement| {
                statement
                    .query_row([Id::from(group)], |row| {
                        Ok(Row {
                            state: row.get(0)?,
                            attempt: row.get(1)?,
                            digest: row.get(2)?,
                            reason: row.get(3)?,
                        })
                    })
                    .optional()
            })
            .doing("read")
    }

    /// Returns the first `limit` groups that are closed with samples and have no verdict along the
    /// surviving lineage, oldest admitted first (ties by group id).
    pub fn ready(&self, limit: usize) -> Result<Vec<Bundle>, LedgerError> {
        let groups: Vec<GroupId> = self.cache.ready.iter().take(limit).map(|(_, group)| *group).collect();
        self.payloads(&groups)
    }

    /// Returns the groups of [`Ledger::ready`] with their orders, without their samples.
    #[must_use]
    pub fn ready_groups(&self) -> Vec<(u64, GroupId)> {
        self.cache.ready.iter().copied().collect()
    }

    /// Returns the samples of closed groups, for a replay.
    ///
    /// # Errors
    /// [`LedgerError::NoPayload`] for a group without samples, or after they were pruned.
    pub fn payloads(&self, groups: &[GroupId]) -> Result<Vec<Bundle>, LedgerError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT bytes FROM payloads WHERE group_id = ?1")
            .doing("read")?;
        groups
            .iter()
            .map(|group| {
                let bytes: Option<Vec<u8>> = statement
                    .query_row([Id::from(*group)], |row| row.get(0))
                    .optional()
                    .doing("read")?;
                decode(&bytes.ok_or(LedgerError::NoPayload(*group))?)
            })
            .collect()
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

impl Row {
    fn verdict(self) -> ReserveVerdict {
        match self.state {
            schema::RESERVED => ReserveVerdict::Granted,
            schema::DEAD => ReserveVerdict::Dead {
                reason: self.reason.unwrap_or_default(),
            },
            _ => ReserveVerdict::Closed {
                attempt: Attempt(self.attempt.map_or([0; 16], |id| id.0)),
                digest: Digest(self.digest.map_or([0; 16], |id| id.0)),
            },
        }
    }
}

fn count_closed(counts: &mut Counts, dead: bool, reason: Option<&str>) {
    counts.reserved = counts.reserved.saturating_sub(1);
    if dead {
        counts.dead += 1;
        return;
    }
    counts.closed += 1;
    if let Some(reason) = reason {
        *counts.empty.entry(reason.to_owned()).or_default() += 1;
    }
}

fn samples(bundle: &Bundle) -> &[Sample] {
    match &bundle.content {
        BundleContent::Samples(samples) => samples,
        BundleContent::Empty { .. } | BundleContent::Dead { .. } => &[],
    }
}

/// Checks that (member, role, seat) is a unique key of the samples in a group.
fn check_samples(bundle: &Bundle) -> Result<(), String> {
    let mut seen = HashSet::new();
    for sample in samples(bundle) {
        if !seen.insert((sample.member, sample.role.as_str(), sample.seat)) {
            return Err(format!(
                "sample {}/{}/{} occurs twice",
                sample.member, sample.role, sample.seat
            ));
        }
    }
    Ok(())
}

/// Returns one bundle of all samples, from its parts in order.
fn join(parts: Vec<Bundle>) -> Bundle {
    let mut parts = parts.into_iter();
    let Some(mut whole) = parts.next() else {
        unreachable!("a bundle is joined when its last part arrives");
    };
    whole.part = 0;
    whole.parts = 1;
    for part in parts {
        if let (BundleContent::Samples(all), BundleContent::Samples(more)) = (&mut whole.content, part.content) {
            all.extend(more);
        }
    }
    whole
}

fn decode(bytes: &[u8]) -> Result<Bundle, LedgerError> {
    codec::decode_stored(bytes).map_err(|e| LedgerError::Content {
        what: "a bundle".into(),
        reason: e.to_string(),
    })
}

//! Custody of groups: bundles in parts, and the single closing.

use std::collections::HashSet;

use broker::codec;
use broker::ids::{Attempt, Digest, GroupId};
use broker::protocol::bundle::{Bundle, BundleContent, Sample};
use broker::protocol::reserve::ReserveVerdict;
use rusqlite::{OptionalExtension, params};

use super::error::Doing;
use super::payloads::decode;
use super::rows::{Id, unsigned};
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

/// The columns of a group's row that decisions need.
pub(super) struct CustodyRow {
    pub(super) state: i64,
    attempt: Option<Id>,
    digest: Option<Id>,
    reason: Option<String>,
}

impl Ledger {
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

    fn count_late(&mut self, row: &CustodyRow, bundle: &Bundle) -> Staged {
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

    pub(super) fn row(&self, group: GroupId) -> Result<Option<CustodyRow>, LedgerError> {
        self.connection
            .prepare_cached("SELECT state, attempt, digest, reason FROM groups WHERE group_id = ?1")
            .and_then(|mut statement| {
                statement
                    .query_row([Id::from(group)], |row| {
                        Ok(CustodyRow {
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
}

impl CustodyRow {
    pub(super) fn verdict(self) -> ReserveVerdict {
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

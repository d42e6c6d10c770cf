//! Rounds of a synchronous run that survive a crash whole.
//!
//! The bits of an answer depend on the wave that it was computed in, so a broken round is played again as one, from its
//! beginning: its groups are begun together, with those that were still to be admitted, and none keeps turns of the broken
//! play unless all of them are complete. So that there is no third case, no bundle of a round is sent before its last group
//! has ended: after a crash either none was sent, and the round is played again, or every turn of it is in the store, and
//! all are sent again. In one process store and bus end with us: there a journal on disk says what was to be sent.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use actix::Context;
use anyhow::{Context as _, ensure};
use broker::AgentName;
use broker::bus::Outgoing;
use broker::codec;
use broker::ids::{Digest, GroupId};
use broker::protocol::bundle::Bundle;
use broker::protocol::control::RunPhase;
use broker::store::Lease;
use configs::Mode;
use rollout::group::{Assembled, MemberEnd};

use crate::coordinator::actor::{Coordinator, Open, Purpose};
use crate::coordinator::admission::{self, Admitting};
use crate::coordinator::{Env, closing};
use crate::base::retry;
use crate::turn::tasks::Candidate;

/// A group whose conversations have ended, on its way to the agents.
pub(in crate::coordinator) struct Decided {
    pub lease: Lease,
    /// What its conversations came to, for transcripts and figures; empty when they have it.
    pub members: Vec<MemberEnd>,
    pub assembled: Assembled,
    /// What is written of it once.
    pub outcome: bytes::Bytes,
    /// The outcome that an owner before us has written.
    pub stands: Option<bytes::Bytes>,
    /// A dead task on its way to the dead letters.
    pub letter: Option<Outgoing>,
}

impl Coordinator {
    /// The groups that ledgers have handed back, once they are all here and nothing moves, and how many more their round
    /// has. Until then none.
    pub(in crate::coordinator) fn broken_round(&mut self) -> (Vec<Candidate>, u64) {
        let mut held: Vec<Candidate> = Vec::new();
        let mut groups = BTreeSet::new();
        for mut candidate in std::mem::take(&mut self.reclaimed) {
            let group = GroupId::new(&self.env.run, &candidate.id);
            // Ledgers have it. Kept unacked, a round of more groups than are delivered at once would never be all here.
            admission::ack(candidate.delivery.take());
            if !self.known(&group) && !self.resent.contains(&group) && groups.insert(group) {
                held.push(candidate);
            }
        }
        let all = held.len() as u64 + self.held_groups();
        let whole = self.run.phase != RunPhase::Starting && self.gate.still() && all >= self.gate.reserved();
        if held.is_empty() || !whole {
            self.reclaimed = held.into();
            return (Vec::new(), 0);
        }
        let fresh = self.run.phase == RunPhase::Running && self.held_groups() == 0;
        // What the ledgers hold, not what was handed back: a bundle may have closed a row since, and a round with room left
        // for such a group would be two.
        let fill = if fresh {
            self.gate.round().saturating_sub(self.gate.reserved())
        } else {
            0
        };
        tracing::info!(groups = held.len(), more = fill, "playing a broken round again");
        (held, fill)
    }

    /// Whether rounds are sent whole: see the module.
    pub(in crate::coordinator) fn sends_rounds(&self) -> bool {
        self.env.config.run.mode == Mode::Sync
    }

    /// Takes back every group that has begun when some group came back from a broken play and is not complete. Call it
    /// between waves.
    pub(in crate::coordinator) fn restart_broken_round(&mut self, ctx: &mut Context<Self>) {
        let trained = |open: &Open| open.purpose == Purpose::Train;
        let incomplete = self.open.values().any(|open| trained(open) && !open.run.is_done());
        // What was decided was decided of a whole round: it is sent, not played again.
        let decided = self.open.values().any(|open| trained(open) && open.decided.is_some());
        if !std::mem::take(&mut self.patched) || !incomplete || decided {
            return;
        }
        // What is being sent belongs to a round that was complete; of this one nothing is sent yet.
        let unsent: BTreeSet<GroupId> = self.round.drain(..).map(|decided| decided.lease.group).collect();
        let begun = |group: &GroupId, open: &Open| match open.closing {
            true => unsent.contains(group),
            false => open.run.has_begun(),
        };
        let groups = self
            .open
            .iter()
            .filter(|(group, open)| trained(open) && begun(group, open));
        let groups: Vec<GroupId> = groups.map(|(group, _)| *group).collect();
        tracing::info!(groups = groups.len(), "playing a broken round from its beginning");
        for group in groups {
            let Some(open) = self.open.remove(&group) else { continue };
            self.dirty.remove(&group);
            if let Some(lease) = open.lease {
                self.void(group, Admitting::reserved(open), lease, ctx);
            }
        }
    }

    /// Sends what the round came to when its last group has ended.
    pub(in crate::coordinator) fn send_round(&mut self, ctx: &mut Context<Self>) {
        let playing = self
            .open
            .values()
            .any(|open| open.purpose == Purpose::Train && !open.closing);
        if self.round.is_empty() || playing || !self.admitting.is_empty() || !self.claiming.is_empty() {
            return;
        }
        let mut round = std::mem::take(&mut self.round);
        // As they ended is another order after a takeover, and sums of floats would be others.
        round.sort_by_key(|decided| {
            let group = decided.lease.group;
            (self.open.get(&group).map_or(u64::MAX, |open| open.order), group)
        });
        round.iter_mut().for_each(|decided| self.record(decided));
        self.send_all(round, self.env.alone, ctx);
    }
}

fn path(env: &Env) -> PathBuf {
    env.folder.path().join("round.journal")
}

/// Writes what the round came to, and returns when it is on disk.
pub(in crate::coordinator) async fn journal(env: &Env, round: &[Decided], cap: usize) {
    let mut bytes = Vec::new();
    for (agent, bundle) in round.iter().flat_map(|decided| &decided.assembled.bundles) {
        // What cannot be split was made empty before.
        for part in closing::parts(bundle.clone(), cap) {
            put(&mut bytes, agent.as_str().as_bytes());
            put(&mut bytes, &codec::encode(&part));
        }
    }
    let digest = Digest::of(&bytes);
    bytes.extend_from_slice(&digest.0);
    let bytes: bytes::Bytes = bytes.into();
    loop {
        let (path, bytes) = (path(env), bytes.clone());
        match tokio::task::spawn_blocking(move || write(&path, &bytes)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => tracing::error!(%error, "the round's journal cannot be written; trying again"),
            Err(error) => tracing::error!(%error, "the round's journal was not written; trying again"),
        }
        tokio::time::sleep(retry::LONGEST_PAUSE).await;
    }
}

fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    bytes.extend_from_slice(&(field.len() as u64).to_le_bytes());
    bytes.extend_from_slice(field);
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = File::create(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Sends the bundles of the last round again; those that have arrived change nothing. Answers whose they are.
pub(in crate::coordinator) async fn resend(env: &Env) -> anyhow::Result<BTreeSet<GroupId>> {
    let path = path(env);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        read => read.with_context(|| format!("reading {}", path.display()))?,
    };
    let mut groups = BTreeSet::new();
    for (agent, part) in read(&bytes).with_context(|| format!("{} is damaged", path.display()))? {
        groups.insert(part.group);
        retry::publish(&env.bus, closing::bundle_message(env, &agent, &part)).await?;
    }
    Ok(groups)
}

fn read(bytes: &[u8]) -> anyhow::Result<Vec<(AgentName, Bundle)>> {
    let (mut rest, digest) = bytes.split_last_chunk::<16>().context("it is too short")?;
    ensure!(Digest::of(rest).0 == *digest, "its digest is another");
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let name = String::from_utf8(take(&mut rest)?.to_vec())?;
        let agent = AgentName::new(&name).with_context(|| format!("{name:?} is no agent's name"))?;
        parts.push((agent, codec::decode(take(&mut rest)?)?));
    }
    Ok(parts)
}

fn take<'a>(rest: &mut &'a [u8]) -> anyhow::Result<&'a [u8]> {
    let (length, more) = rest.split_first_chunk::<8>().context("a length is cut")?;
    let (field, more) = usize::try_from(u64::from_le_bytes(*length))
        .ok()
        .and_then(|length| more.split_at_checked(length))
        .context("a field is cut")?;
    *rest = more;
    Ok(field)
}

#[cfg(test)]
mod tests;

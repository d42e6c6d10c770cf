//! The journal of a round in a run of one process: the bundles that are sent again after a crash.
//!
//! Fields of (agent's name, bundle), each after its length as 8 bytes, little-endian; then the
//! digest of all fields.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use broker::ids::{Digest, GroupId};
use broker::protocol::bundle::Bundle;
use broker::{AgentName, atomic_file, codec};
use rollout::group::split;

use super::decided::Decided;
use super::message::bundle_message;
use crate::base::log_scope;
use crate::base::retry;
use crate::coordinator::env::Env;

/// The journal's file.
#[must_use]
pub fn path(env: &Env) -> PathBuf {
    env.folder.path().join("round.journal")
}

/// Writes the bundles of a round, and returns when they are on disk.
pub async fn write_round(env: &Env, round: &[Decided]) {
    let mut bytes = Vec::new();
    for (agent, bundle) in round.iter().flat_map(|decided| &decided.assembled.bundles) {
        // A bundle that cannot be split was made empty before.
        for part in split(bundle.clone(), env.bundle_cap()).unwrap_or_default() {
            put(&mut bytes, agent.as_str().as_bytes());
            put(&mut bytes, &codec::encode(&part));
        }
    }
    let digest = Digest::of(&bytes);
    bytes.extend_from_slice(&digest.0);
    let bytes: bytes::Bytes = bytes.into();
    loop {
        let (path, bytes) = (path(env), bytes.clone());
        match log_scope::spawn_blocking(move || atomic_file::replace(&path, &bytes)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => tracing::error!(%error, "the round's journal cannot be written; trying again"),
            Err(error) => tracing::error!(%error, "the round's journal was not written; trying again"),
        }
        tokio::time::sleep(retry::LONGEST_PAUSE).await;
    }
}

/// Sends the bundles of the last round again and returns their groups. Bundles that have arrived
/// before change nothing.
pub async fn resend(env: &Env) -> anyhow::Result<BTreeSet<GroupId>> {
    let path = path(env);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        read => read.with_context(|| format!("reading {}", path.display()))?,
    };
    let mut groups = BTreeSet::new();
    for (agent, part) in read(&bytes).with_context(|| format!("{} is damaged", path.display()))? {
        groups.insert(part.group);
        retry::publish(&env.bus, bundle_message(env, &agent, &part)).await?;
    }
    Ok(groups)
}

fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    bytes.extend_from_slice(&(field.len() as u64).to_le_bytes());
    bytes.extend_from_slice(field);
}

fn read(bytes: &[u8]) -> anyhow::Result<Vec<(AgentName, Bundle)>> {
    let (mut rest, digest) = bytes.split_last_chunk::<16>().context("it is too short")?;
    ensure!(Digest::of(rest).0 == *digest, "its digest does not match its content");
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

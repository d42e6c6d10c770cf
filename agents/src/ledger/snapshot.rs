//! Joint snapshots on disk, and the check that the files of a run folder fit together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use broker::ids::{GroupId, RunId, WeightVersion};
use broker::protocol::control::Saved;
use broker::{AgentName, atomic_file};
use configs::RunConfig;
use serde::{Deserialize, Serialize};
use trainer::checkpoint::{self, CheckpointError, TrainerState};

use crate::ledger::Inspector;
use crate::run_folder::RunFolder;

const FORMAT: u32 = 1;

/// One instant of a run without anything in flight: the checkpoint of each agent that trains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotManifest {
    pub format: u32,
    pub run: String,
    pub name: String,
    pub agents: BTreeMap<AgentName, Saved>,
}

impl SnapshotManifest {
    #[must_use]
    pub fn new(run: &RunId, name: &str, agents: BTreeMap<AgentName, Saved>) -> Self {
        Self {
            format: FORMAT,
            run: run.to_string(),
            name: name.to_owned(),
            agents,
        }
    }

    /// Writes `snapshots/<name>.json` atomically.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn write(&self, folder: &RunFolder) -> anyhow::Result<()> {
        let root = root(folder);
        let path = path(folder, &self.name);
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&root)?;
            let text = serde_json::to_string_pretty(self)? + "\n";
            atomic_file::replace(&path, text.as_bytes())
        };
        write().with_context(|| format!("writing {}", path.display()))
    }

    /// Reads a manifest from its file.
    ///
    /// # Errors
    /// Errors of the disk, or content in another format.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let read = || -> anyhow::Result<Self> {
            let manifest: Self = serde_json::from_slice(&fs::read(path)?)?;
            ensure!(
                manifest.format == FORMAT,
                "it has format {}, this build reads {FORMAT}",
                manifest.format
            );
            Ok(manifest)
        };
        read().with_context(|| format!("reading {}", path.display()))
    }
}

fn root(folder: &RunFolder) -> PathBuf {
    folder.path().join("snapshots")
}

/// Returns the path of a snapshot's manifest.
#[must_use]
pub fn path(folder: &RunFolder, name: &str) -> PathBuf {
    root(folder).join(format!("{name}.json"))
}

/// Returns all manifests, oldest first: their names are numbered.
///
/// # Errors
/// Errors of the disk.
pub fn list(folder: &RunFolder) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(root(folder)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("listing {}", root(folder).display()))?,
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort_by_key(|path| number(path));
    Ok(paths)
}

fn number(path: &Path) -> u64 {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem.rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns a name that no snapshot of this run has yet.
///
/// # Errors
/// Errors of the disk.
pub fn new_name(folder: &RunFolder) -> anyhow::Result<String> {
    let newest = list(folder)?.last().map_or(0, |path| number(path));
    Ok(format!("snapshot-{}", newest + 1))
}

/// Checks that ledgers, checkpoints and the newest joint snapshot belong to one history. A folder
/// assembled from copies of different times fails: resumed, it would train on some samples twice
/// and on others never.
///
/// # Errors
/// The mismatch and the fix.
pub fn verify(folder: &RunFolder, config: &RunConfig) -> anyhow::Result<()> {
    let trains = |name: &AgentName| config.agents.get(name).is_some_and(|agent| agent.train.enabled);
    let trainers: Vec<AgentName> = config.participants().into_iter().filter(trains).collect();
    let mut ledgers = BTreeMap::new();
    for name in &trainers {
        if let Some(ledger) = Inspector::find(&folder.ledger(name))? {
            ledgers.insert(name.clone(), ledger);
        }
    }
    for (name, ledger) in &ledgers {
        fits_checkpoint(folder, name, ledger)?;
    }
    none_is_lost(&trainers, &ledgers)?;
    fits_snapshot(folder, &ledgers)?;
    fit_each_other(&trainers, &ledgers)
}

/// Checks that the checkpoint to continue from has consumed exactly what its ledger records.
fn fits_checkpoint(folder: &RunFolder, name: &AgentName, ledger: &Inspector) -> anyhow::Result<()> {
    // The trainer verifies the digests: a state of many gigabytes is read once.
    let complete = match checkpoint::complete(&folder.checkpoints(name)) {
        Ok(complete) => complete,
        Err(CheckpointError::None(_)) => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("looking for a checkpoint of agent {name}")),
    };
    let mut states = complete.iter().map(|found| Ok((found, TrainerState::verified(found)?)));
    let Some(newest) = states.next() else { return Ok(()) };
    // The trainer passes over damaged checkpoints too.
    let (found, state) = newest.or_else(|damage: CheckpointError| states.find_map(Result::ok).ok_or(damage))?;
    let advice = "take both from one copy of the run folder";
    let Some((lineage, step)) = state.version else {
        bail!(
            "the checkpoint {} does not say which version it holds",
            found.folder.display()
        );
    };
    let consumed = ledger.consumed(WeightVersion { lineage, step }).with_context(|| {
        format!("agent {name}: its checkpoint at step {step} does not belong to its ledger; {advice}")
    })?;
    let meta: serde_json::Value = serde_json::from_str(&state.meta).unwrap_or_default();
    let said = &meta["deterministic"]["consumed"];
    ensure!(
        *said == serde_json::to_value(consumed.digest)?,
        "agent {name}: its checkpoint at step {step} has consumed other samples than its ledger says; {advice}"
    );
    Ok(())
}

/// Checks that every agent has a ledger if one of them has closed groups.
fn none_is_lost(trainers: &[AgentName], ledgers: &BTreeMap<AgentName, Inspector>) -> anyhow::Result<()> {
    let Some(lost) = trainers.iter().find(|name| !ledgers.contains_key(*name)) else {
        return Ok(());
    };
    for (name, ledger) in ledgers {
        let closed = ledger.groups()?.iter().filter(|row| row.winner.is_some()).count();
        ensure!(
            closed == 0,
            "agent {lost}: its ledger is missing or empty, and agent {name} has closed {closed} groups: take all agents' files from \
             one copy of the run folder, or rebuild it from the other ledgers with `dyad audit --repair {lost}`"
        );
    }
    Ok(())
}

/// Checks that every agent's ledger holds the history up to the newest joint snapshot.
fn fits_snapshot(folder: &RunFolder, ledgers: &BTreeMap<AgentName, Inspector>) -> anyhow::Result<()> {
    let Some(path) = list(folder)?.pop() else { return Ok(()) };
    let manifest = SnapshotManifest::read(&path)?;
    ensure!(
        manifest.run == folder.run().as_str(),
        "{} belongs to run {}, not to {}",
        path.display(),
        manifest.run,
        folder.run()
    );
    for (name, saved) in &manifest.agents {
        let version = WeightVersion {
            lineage: saved.lineage,
            step: saved.step,
        };
        let held = ledgers.get(name).map(|ledger| ledger.consumed(version));
        let same = held.is_some_and(|held| held.is_ok_and(|held| held.digest.to_string() == saved.consumed));
        ensure!(
            same,
            "agent {name}: its ledger does not match {} (step {}, batch {} of the ledger): it is from an earlier \
             time or another run; take all agents' files from one copy of the run folder",
            manifest.name,
            saved.step,
            saved.sequence
        );
    }
    Ok(())
}

/// Checks that every ledger knows the groups that another one has closed. A group is reserved in
/// every ledger before it is played.
fn fit_each_other(trainers: &[AgentName], ledgers: &BTreeMap<AgentName, Inspector>) -> anyhow::Result<()> {
    let mut known: BTreeMap<&AgentName, BTreeSet<GroupId>> = BTreeMap::new();
    let mut closed: BTreeMap<GroupId, &AgentName> = BTreeMap::new();
    for (name, ledger) in ledgers {
        for row in ledger.groups()? {
            known.entry(name).or_default().insert(row.group);
            if row.winner.is_some() {
                closed.insert(row.group, name);
            }
        }
    }
    for name in trainers {
        let rows = known.get(name);
        let unknown = |group: &GroupId| rows.is_none_or(|rows| !rows.contains(group));
        let lost = closed.iter().filter(|(group, _)| unknown(group));
        if let Some((group, by)) = lost.clone().next() {
            bail!(
                "agent {name}: its ledger does not contain {} groups that agent {by} has closed (the first is {group}): it is from an \
                 earlier time; take all agents' files from one copy of the run folder",
                lost.count()
            );
        }
    }
    Ok(())
}

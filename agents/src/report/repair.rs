//! `dyad audit --repair AGENT`: rebuilds a lost ledger from those of the other agents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use broker::ids::{Digest, GroupId, WeightVersion};
use broker::{AgentName, atomic_file};
use trainer::checkpoint::{self, TrainerState};

use super::error::ReportError;
use crate::ledger::{Custody, Inspector, Ledger, RowState, lock as ledger_lock};
use crate::run_folder::RunFolder;

/// The reason stored in rows that lost their samples with the ledger.
const REASON: &str = "its samples went with the ledger that was lost";

/// Rebuilds the ledger of `agent` from the other agents' ledgers, as a whole or not at all. Returns
/// a description of the result.
///
/// # Errors
/// [`ReportError::Repair`] if a ledger exists, or if no other agent has one.
pub fn repair(folder: &RunFolder, agent: &AgentName) -> Result<String, ReportError> {
    let path = folder.ledger(agent);
    // A running agent holds this lock, even if its file is missing.
    let _lock = ledger_lock(&path)?;
    for end in ["", "-wal", "-shm"] {
        let left = with_end(&path, end);
        if left.exists() {
            return Err(ReportError::Repair(format!(
                "{} is there: a ledger is rebuilt only if no file of it is left; move a damaged one away first, with its -wal and -shm",
                left.display()
            )));
        }
    }
    let rows = others(folder, agent)?;
    let checkpoint = newest(&folder.checkpoints(agent));
    let aside = path.with_extension("sqlite.new");
    remove(&aside)?;
    let mut ledger = Ledger::open(&aside, folder.run(), agent)?;
    ledger.take_over(&rows, REASON, checkpoint)?;
    // On close, SQLite moves everything into the one file.
    drop(ledger);
    std::fs::rename(&aside, &path).map_err(|source| ReportError::Io {
        doing: "name",
        path: path.clone(),
        source,
    })?;
    if let Some(parent) = path.parent() {
        atomic_file::sync_folder_of(&path).map_err(|source| ReportError::Io {
            doing: "sync",
            path: parent.to_owned(),
            source,
        })?;
    }
    remove(&aside)?;
    let open = rows.iter().filter(|row| row.state == RowState::Reserved).count();
    Ok(format!(
        "made the ledger of {agent} from the others': {open} groups are open again, {} are closed. The training of \
         {agent} is in its checkpoint{}; samples that waited for training are lost, and a group that only {agent} had closed is \
         played and trained on again",
        rows.len() - open,
        checkpoint.map_or(String::new(), |(at, _)| format!(" of step {}", at.step))
    ))
}

/// Every group that another agent knows; a group that is open at any agent counts as open.
fn others(folder: &RunFolder, agent: &AgentName) -> Result<Vec<Custody>, ReportError> {
    let mut order: Vec<GroupId> = Vec::new();
    let mut known: BTreeMap<GroupId, Custody> = BTreeMap::new();
    let mut ledgers = 0;
    for name in folder.config()?.participants() {
        let path = folder.ledger(&name);
        let Some(ledger) = Inspector::find(&path)?.filter(|_| name != *agent) else {
            continue;
        };
        ledgers += 1;
        for row in ledger.custody()? {
            match known.get(&row.group) {
                None => order.push(row.group),
                Some(_) if row.state != RowState::Reserved => continue,
                Some(_) => {}
            }
            known.insert(row.group, row);
        }
    }
    if ledgers == 0 {
        return Err(ReportError::Repair(format!(
            "no other agent of {} has a ledger to rebuild {agent}'s from",
            folder.path().display()
        )));
    }
    Ok(order.iter().filter_map(|group| known.remove(group)).collect())
}

/// The version that the agent will continue from, and the digest of the samples that it has
/// consumed.
fn newest(checkpoints: &Path) -> Option<(WeightVersion, Digest)> {
    let found = checkpoint::find(checkpoints, true).ok()?;
    let state = TrainerState::read(&found.folder).ok()?;
    let (lineage, step) = state.version?;
    let meta: serde_json::Value = serde_json::from_str(&state.meta).ok()?;
    let consumed = serde_json::from_value(meta["deterministic"]["consumed"].clone()).ok()?;
    Some((WeightVersion { lineage, step }, consumed))
}

/// Removes leftovers of an earlier try.
fn remove(aside: &Path) -> Result<(), ReportError> {
    for end in ["", "-wal", "-shm", ".lock"] {
        let name = with_end(aside, end);
        match std::fs::remove_file(&name) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(ReportError::Io {
                    doing: "remove",
                    path: name,
                    source,
                });
            }
            _ => {}
        }
    }
    Ok(())
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use broker::protocol::bundle::{Bundle, BundleContent};
    use broker::protocol::reserve::{Reserve, ReserveVerdict};
    use broker::seal::Seal;

    use super::*;
    use crate::run_folder::tests::config_in;
    use broker::ids::Attempt;

    #[test]
    fn a_lost_ledger_is_rebuilt_from_the_others() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let [a, b] = ["a", "b"].map(|name| AgentName::new(name).unwrap());
        let group = |task: &str| GroupId::new(folder.run(), task);
        let reserve = |task: &str| Reserve {
            group: group(task),
            task: task.into(),
            order: 7,
            body: task.as_bytes().to_vec(),
            seal: Some(Seal([5; 32])),
        };
        assert!(repair(&folder, &b).unwrap_err().to_string().contains("no other agent"));
        let mut theirs = Ledger::open(&folder.ledger(&a), folder.run(), &a).unwrap();
        theirs
            .reserve(&[reserve("open"), reserve("shut"), reserve("dead")], 9)
            .unwrap();
        let shut = |task: &str, content: BundleContent| Bundle {
            group: group(task),
            task: task.into(),
            order: 7,
            attempt: Attempt([1; 16]),
            digest: Digest([2; 16]),
            part: 0,
            parts: 1,
            conversations: 0,
            content,
        };
        theirs
            .stage(&[
                shut("shut", BundleContent::Empty { reason: "thin".into() }),
                shut(
                    "dead",
                    BundleContent::Dead {
                        reason: "dead: poison".into(),
                    },
                ),
            ])
            .unwrap();

        let log = with_end(&folder.ledger(&b), "-wal");
        std::fs::write(&log, "of the ledger that was lost").unwrap();
        assert!(repair(&folder, &b).unwrap_err().to_string().contains("-wal is there"));
        std::fs::remove_file(&log).unwrap();
        let text = repair(&folder, &b).unwrap();
        assert!(text.contains("1 groups are open again, 2 are closed"), "{text}");
        assert!(repair(&folder, &b).unwrap_err().to_string().contains("is there"));
        let mut ours = Ledger::open(&folder.ledger(&b), folder.run(), &b).unwrap();
        assert!(repair(&folder, &b).unwrap_err().to_string().contains("in use"));
        let answers = ours
            .reserve(&[reserve("open"), reserve("shut"), reserve("dead")], 9)
            .unwrap();
        let shut_by = ReserveVerdict::Closed {
            attempt: Attempt([1; 16]),
            digest: Digest([2; 16]),
        };
        let dead = ReserveVerdict::Dead {
            reason: "dead: poison".into(),
        };
        assert_eq!(answers, [ReserveVerdict::Granted, shut_by, dead]);
        assert_eq!(ours.counts().empty[REASON], 1);
        let overdue = ours.overdue(
            tokio::time::Instant::now() + std::time::Duration::from_secs(1),
            std::time::Duration::ZERO,
        );
        let open = &overdue.unwrap()[0];
        assert_eq!(open.body, b"open", "its task is in custody again");
        assert_eq!(open.seal, Some(Seal([5; 32])), "and its coordinator will recognize it");
    }
}

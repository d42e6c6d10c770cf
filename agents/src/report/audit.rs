//! Counts the ledgers of all agents of a run, and compares them.

use std::collections::BTreeMap;

use broker::ids::{Attempt, GroupId};
use serde::Serialize;

use super::error::ReportError;
use super::task_accounts::{self, BrokerCounts, TaskAccounts};
use crate::ledger::{Audit, Inspector};
use crate::run_folder::RunFolder;

/// The ledgers of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunAudit {
    pub run: String,
    pub agents: BTreeMap<String, Audit>,
    /// Groups that different attempts closed at different agents: possible only if the store lost
    /// data between sends.
    pub split: u64,
    /// Groups closed with samples at one agent and without samples at another that has their row.
    pub uneven: u64,
    /// Tasks and conversations, over all agents.
    pub books: TaskAccounts,
}

/// Reads every ledger of the run; agents may be running. `asked` holds the broker's counts, if it
/// was reachable.
pub fn audit(folder: &RunFolder, asked: Option<&BrokerCounts>) -> Result<RunAudit, ReportError> {
    let mut agents = BTreeMap::new();
    let mut winners: BTreeMap<GroupId, Vec<Attempt>> = BTreeMap::new();
    let mut states: BTreeMap<GroupId, (u64, u64)> = BTreeMap::new();
    for name in folder.config()?.agents.keys() {
        let path = folder.ledger(name);
        let read = || {
            let Some(inspector) = Inspector::find(&path)? else {
                return Ok(None);
            };
            Ok(Some((inspector.audit()?, inspector.groups()?)))
        };
        let found = read().map_err(|source| ReportError::OfAgent {
            agent: name.clone(),
            path: path.clone(),
            source,
        })?;
        let Some((counts, rows)) = found else { continue };
        agents.insert(name.to_string(), counts);
        for row in rows {
            if let Some((attempt, _)) = row.winner {
                winners.entry(row.group).or_default().push(attempt);
                let (with, without) = states.entry(row.group).or_default();
                *(if row.samples > 0 { with } else { without }) += 1;
            }
        }
    }
    let split = winners
        .values()
        .filter(|attempts| attempts.windows(2).any(|pair| pair[0] != pair[1]));
    let uneven = states.values().filter(|(with, without)| *with > 0 && *without > 0);
    Ok(RunAudit {
        run: folder.run().to_string(),
        split: split.count() as u64,
        uneven: uneven.count() as u64,
        books: task_accounts::read(folder, asked)?,
        agents,
    })
}

impl RunAudit {
    /// Lists the broken promises.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.agents
            .iter()
            .flat_map(|(name, audit)| {
                audit
                    .violations()
                    .into_iter()
                    .map(move |what| format!("agent {name}: {what}"))
            })
            .chain(self.books.violations())
            .collect()
    }

    /// Rows of (name, value per agent), for tables.
    #[must_use]
    pub fn rows(&self) -> Vec<(&'static str, Vec<String>)> {
        let row = |what, value: &dyn Fn(&Audit) -> String| (what, self.agents.values().map(value).collect());
        let sum = |map: &BTreeMap<String, u64>| map.values().sum::<u64>().to_string();
        vec![
            row("groups reserved", &|a| a.counts.reserved.to_string()),
            row("groups closed", &|a| a.counts.closed.to_string()),
            row("  of them empty", &|a| sum(&a.counts.empty)),
            row("  of them ready", &|a| a.counts.ready.to_string()),
            row("groups dead", &|a| a.counts.dead.to_string()),
            row("samples received", &|a| a.samples.to_string()),
            row("samples trained", &|a| a.counts.trained.to_string()),
            row("samples discarded", &|a| sum(&a.counts.discarded)),
            row("samples counted twice", &|a| a.twice.to_string()),
            row("groups lost", &|a| a.missing.to_string()),
            row("duplicate bundles", &|a| a.counts.duplicates.to_string()),
            row("bundles of a lost attempt", &|a| a.counts.other_attempt.to_string()),
            row("batches", &|a| a.counts.batches.to_string()),
            row("trainer starts", &|a| a.lineages.len().to_string()),
        ]
    }

    #[must_use]
    pub fn render(&self) -> String {
        use std::fmt::Write;
        let mut text = format!("{:28}", self.run);
        for name in self.agents.keys() {
            let _ = write!(text, "{name:>14}");
        }
        text.push('\n');
        for (what, number) in self.books.rows() {
            let _ = writeln!(text, "{what:28}{number:>14}");
        }
        for (what, values) in self.rows() {
            let _ = write!(text, "{what:28}");
            values.iter().for_each(|value| {
                let _ = write!(text, "{value:>14}");
            });
            text.push('\n');
        }
        for (name, audit) in &self.agents {
            for (reason, samples) in &audit.counts.discarded {
                let _ = writeln!(text, "  {name} discarded {samples} samples: {reason}");
            }
            for (reason, groups) in &audit.counts.empty {
                let _ = writeln!(text, "  {name} closed {groups} groups empty: {reason}");
            }
        }
        for (reason, tasks) in &self.books.abandoned {
            let _ = writeln!(text, "  {tasks} tasks abandoned: {reason}");
        }
        let _ = writeln!(text, "groups split between attempts: {}", self.split);
        let broken = self.violations();
        for what in &broken {
            let _ = writeln!(text, "  {what}");
        }
        let verdict = if broken.is_empty() {
            "nothing lost, nothing counted twice"
        } else {
            "A PROMISE IS BROKEN"
        };
        let _ = writeln!(text, "{verdict}");
        text
    }
}

#[cfg(test)]
mod tests {
    use broker::AgentName;
    use broker::ids::Digest;
    use broker::protocol::bundle::{Bundle, BundleContent, Sample, SampleStatus};
    use broker::protocol::reserve::Reserve;

    use super::*;
    use crate::ledger::Ledger;
    use crate::run_folder::tests::config_in;

    fn bundle(folder: &RunFolder, task: &str, attempt: u8) -> Bundle {
        let sample = Sample {
            member: 0,
            role: "speaker".into(),
            seat: 0,
            subkey: String::new(),
            target: None,
            status: SampleStatus::Completed,
            reward: 0.0,
            parts: vec![],
            rows: vec![],
        };
        Bundle {
            group: GroupId::new(folder.run(), task),
            task: task.into(),
            order: 0,
            attempt: Attempt([attempt; 16]),
            digest: Digest([0; 16]),
            part: 0,
            parts: 1,
            conversations: 1,
            content: BundleContent::Samples(vec![sample]),
        }
    }

    #[test]
    fn open_ledgers_are_compared() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let open = |name: &str| {
            let name = AgentName::new(name).unwrap();
            let mut ledger = Ledger::open(&folder.ledger(&name), folder.run(), &name).unwrap();
            for task in ["t1", "t2"] {
                let group = GroupId::new(folder.run(), task);
                let request = Reserve {
                    group,
                    task: task.into(),
                    order: 0,
                    body: vec![],
                    seal: None,
                };
                ledger.reserve(&[request], 9).unwrap();
            }
            ledger
        };
        let (mut a, mut b) = (open("a"), open("b"));
        a.stage(&[bundle(&folder, "t1", 1), bundle(&folder, "t2", 1)]).unwrap();
        b.stage(&[bundle(&folder, "t1", 1), bundle(&folder, "t2", 2)]).unwrap();
        let audit = audit(&folder, None).unwrap();
        assert_eq!((audit.split, audit.uneven), (1, 0));
        assert_eq!(audit.agents["b"].samples, 2);
        assert!(audit.violations().is_empty());
        let text = audit.render();
        assert!(
            text.contains("samples received                         2             2\n"),
            "{text}"
        );
        assert!(
            text.ends_with("groups split between attempts: 1\nnothing lost, nothing counted twice\n"),
            "{text}"
        );
    }

    #[test]
    fn damaged_ledger_is_named_with_its_agent() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let b = AgentName::new("b").unwrap();
        let path = folder.ledger(&b);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "no database").unwrap();
        let error = audit(&folder, None).unwrap_err().to_string();
        assert!(
            error.contains("the ledger of agent b, ") && error.contains("b.sqlite"),
            "{error}"
        );
    }
}

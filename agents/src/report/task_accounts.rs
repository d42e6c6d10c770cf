//! The task accounts of a run: the tasks that it received and their outcomes, compared by task.
//!
//! They are read from durable data: the publisher's manifest, every ledger, every checkpoint, the
//! rejected tasks. While a run goes on, a difference counts as in flight. Once the run has ended
//! the accounts must balance, and every difference is named.

use std::collections::{BTreeMap, BTreeSet};

use broker::AgentName;
use broker::ids::WeightVersion;
use configs::RunConfig;
use serde::{Deserialize, Serialize};
use trainer::checkpoint::{CheckpointStore, TrainerState};

use super::error::ReportError;
use crate::ledger::{GroupRow, Inspector, RowState};
use crate::run_folder::RunFolder;
use crate::run_folder::logs::read_json_lines;

/// The most ids that a message names.
const NAMED: usize = 20;

/// The tasks of a run and their outcomes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TaskAccounts {
    /// True if every agent that trains has ended: nothing is in flight any more.
    pub ended: bool,
    /// Tasks that the broker has confirmed to `dyad publish`.
    pub published: u64,
    /// Tasks that some ledger has accepted.
    pub accepted: u64,
    /// Tasks that were accepted and not yet finished by every agent that trains.
    pub in_flight: u64,
    /// Tasks that every agent that trains has closed, at least one with samples.
    pub finished: u64,
    /// Tasks that every agent has closed without samples, by reason.
    pub abandoned: BTreeMap<String, u64>,
    /// Tasks that were rejected, or are dead in a ledger.
    pub dead: u64,
    /// Conversations of closed groups.
    pub conversations: u64,
    /// Conversations that were left out of their group's statistics, in groups that have samples.
    pub invalid_conversations: u64,
    /// Conversations of groups that were abandoned.
    pub abandoned_conversations: u64,
    /// Tasks that were confirmed to the publisher, are in no ledger and were not rejected: they
    /// wait in the queue, or are lost.
    pub unseen: Vec<String>,
    /// Tasks in the queue; `None` if the broker could not be asked.
    pub queued: Option<u64>,
    /// Tasks that the ledgers disagree about, with the state in each.
    pub unequal: BTreeMap<String, String>,
    /// Problems that must not occur, whether the run goes on or not.
    pub broken: Vec<String>,
}

/// The ledgers that the accounts are made from.
struct Ledgers {
    /// The rows by task, for each agent that trains.
    rows: BTreeMap<AgentName, BTreeMap<String, GroupRow>>,
    ended: bool,
    broken: Vec<String>,
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

/// The broker's counts of a run.
#[derive(Debug, Clone, Default)]
pub struct BrokerCounts {
    /// Ids of dead tasks.
    pub dead: Vec<String>,
    /// Tasks that wait in their queue.
    pub queued: u64,
}

/// Reads the accounts; the run may be going on. `asked` holds the broker's counts, if it was
/// reachable.
pub fn read(folder: &RunFolder, asked: Option<&BrokerCounts>) -> Result<TaskAccounts, ReportError> {
    let config = folder.config()?;
    let ledgers = ledgers(folder, &config)?;
    let mut refused: BTreeSet<String> = asked.iter().flat_map(|asked| asked.dead.iter().cloned()).collect();
    for path in folder.files("refused")? {
        refused.extend(ids(&path)?);
    }
    let published: BTreeSet<String> = match folder.published() {
        path if path.is_file() => ids(&path)?.into_iter().collect(),
        _ => BTreeSet::new(),
    };
    let mut books = balance(&ledgers, &published, &refused, config.workflow.group_size);
    books.queued = asked.map(|asked| asked.queued);
    Ok(books)
}

fn ids(path: &std::path::Path) -> Result<Vec<String>, ReportError> {
    let lines: Vec<Named> = read_json_lines(path).map_err(|source| ReportError::Io {
        doing: "read",
        path: path.to_owned(),
        source,
    })?;
    Ok(lines.into_iter().map(|line| line.id).collect())
}

fn ledgers(folder: &RunFolder, config: &RunConfig) -> Result<Ledgers, ReportError> {
    let mut all = Ledgers {
        rows: BTreeMap::new(),
        ended: true,
        broken: Vec::new(),
    };
    let mut absent = BTreeSet::new();
    let trains = |name: &AgentName| config.agents.get(name).is_some_and(|agent| agent.train.enabled);
    for name in config.participants().into_iter().filter(trains) {
        let mut rows = BTreeMap::new();
        if let Some(inspector) = Inspector::find(&folder.ledger(&name))? {
            all.ended &= inspector.has_ended()?;
            all.broken.extend(effects(folder, &name, &inspector)?);
            rows.extend(inspector.groups()?.into_iter().map(|row| (row.task.clone(), row)));
        } else {
            all.ended = false;
            absent.insert(name.clone());
        }
        all.rows.insert(name, rows);
    }
    // In a run on several hosts each host has only the ledgers of its own agents.
    let has_played = folder.run_end()?.failed.is_none();
    let here = |name: &AgentName| {
        has_played && folder.log(name.as_str()).is_file() || folder.checkpoints(name).join("LATEST").is_file()
    };
    for name in absent.iter().filter(|name| here(name)) {
        all.broken.push(format!(
            "agent {name}: it ran here and its ledger is missing; `dyad audit --repair {name}` rebuilds it from the other ledgers"
        ));
    }
    all.rows.retain(|name, _| !absent.contains(name) || here(name));
    Ok(all)
}

/// Checks that the verdicts equal those that were recorded, and those that the newest checkpoint
/// was written with.
fn effects(folder: &RunFolder, name: &AgentName, inspector: &Inspector) -> Result<Vec<String>, ReportError> {
    let mut broken: Vec<String> = inspector
        .damaged_batches()?
        .into_iter()
        .map(|at| {
            format!(
                "agent {name}: the verdicts of batch {}.{} were changed",
                at.lineage, at.step
            )
        })
        .collect();
    let checkpoints = CheckpointStore::new(&folder.checkpoints(name), 1);
    // A checkpoint that cannot be read is the trainer's concern: it uses an earlier one.
    let newest = checkpoints
        .latest()
        .ok()
        .and_then(|newest| TrainerState::read(&newest.folder).ok());
    let Some((state, (lineage, step))) = newest.and_then(|state| state.version.map(|version| (state, version))) else {
        return Ok(broken);
    };
    let meta: serde_json::Value = serde_json::from_str(&state.meta).unwrap_or_default();
    let said = meta["deterministic"]["consumed"].as_str().map(str::to_owned);
    let counted = inspector.consumed(WeightVersion { lineage, step });
    if said.is_some() && said != counted.ok().map(|counted| counted.digest.to_string()) {
        broken.push(format!(
            "agent {name}: the checkpoint of step {step} was trained on other samples than its ledger has verdicts for"
        ));
    }
    Ok(broken)
}

fn balance(ledgers: &Ledgers, published: &BTreeSet<String>, refused: &BTreeSet<String>, size: u16) -> TaskAccounts {
    let tasks: BTreeSet<&String> = ledgers.rows.values().flat_map(BTreeMap::keys).collect();
    let mut books = TaskAccounts {
        ended: ledgers.ended,
        published: published.len() as u64,
        accepted: tasks.len() as u64,
        // A task that was published again is in the ledgers.
        dead: refused.iter().filter(|id| !tasks.contains(id)).count() as u64,
        broken: ledgers.broken.clone(),
        ..TaskAccounts::default()
    };
    for task in &tasks {
        let rows: Vec<Option<&GroupRow>> = ledgers.rows.values().map(|rows| rows.get(*task)).collect();
        books.enter(task, &rows, u64::from(size), ledgers);
    }
    books.unseen = published
        .iter()
        .filter(|id| !tasks.contains(id) && !refused.contains(*id))
        .cloned()
        .collect();
    books
}

impl TaskAccounts {
    /// Counts one task, with the row of every agent that trains.
    fn enter(&mut self, task: &str, rows: &[Option<&GroupRow>], size: u64, ledgers: &Ledgers) {
        let state = |row: &Option<&GroupRow>| row.map(|row| row.state);
        if rows
            .iter()
            .any(|row| matches!(state(row), None | Some(RowState::Reserved)))
        {
            self.in_flight += 1;
            let says = ledgers.rows.keys().zip(rows).map(|(name, row)| match row {
                None => format!("{name} has no row"),
                Some(row) => format!("{name} has it {:?}", row.state).to_lowercase(),
            });
            let says = says.collect::<Vec<_>>().join(", ");
            self.unequal.insert(task.to_owned(), says);
            return;
        }
        if rows.iter().any(|row| state(row) == Some(RowState::Dead)) {
            self.dead += 1;
            return;
        }
        self.conversations += size;
        let filled = rows.iter().flatten().filter(|row| row.samples > 0);
        match filled.map(|row| row.conversations.unwrap_or(size)).max() {
            Some(valid) => {
                self.finished += 1;
                self.invalid_conversations += size.saturating_sub(valid);
            }
            None => {
                let reason = rows
                    .iter()
                    .flatten()
                    .find_map(|row| row.reason.clone())
                    .unwrap_or_default();
                *self.abandoned.entry(reason).or_default() += 1;
                self.abandoned_conversations += size;
            }
        }
    }

    /// Lists the broken promises.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let mut found = self.broken.clone();
        if !self.ended {
            return found;
        }
        // A run that ends after its number of steps leaves the remaining tasks in the queue.
        if self.queued.is_some_and(|queued| queued < self.unseen.len() as u64) {
            found.push(format!(
                "{} published tasks are in no ledger, were not refused, and {} are in the queue: {}",
                self.unseen.len(),
                self.queued.unwrap_or(0),
                some(self.unseen.iter().cloned())
            ));
        }
        if !self.unequal.is_empty() {
            found.push(format!(
                "{} tasks were not finished by every agent: {}",
                self.unequal.len(),
                some(self.unequal.iter().map(|(task, says)| format!("{task} ({says})")))
            ));
        }
        found
    }

    /// Rows of (name, count), for tables.
    #[must_use]
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("tasks published", self.published),
            ("tasks accepted", self.accepted),
            ("  of them in flight", self.in_flight),
            ("  of them finished", self.finished),
            ("  of them abandoned", self.abandoned.values().sum()),
            ("tasks dead", self.dead),
            ("tasks not taken", self.unseen.len() as u64),
            ("conversations ended", self.conversations),
            ("  of them left out", self.invalid_conversations),
            ("  of them abandoned", self.abandoned_conversations),
        ]
    }
}

fn some(names: impl Iterator<Item = String>) -> String {
    let mut list: Vec<String> = names.take(NAMED + 1).collect();
    if list.len() > NAMED {
        list.truncate(NAMED);
        list.push("...".into());
    }
    list.join(", ")
}

#[cfg(test)]
mod tests {
    use broker::ids::{Attempt, Digest, GroupId};

    use super::*;

    fn row(task: &str, state: RowState, samples: u64, reason: Option<&str>) -> GroupRow {
        GroupRow {
            group: GroupId([0; 16]),
            task: task.into(),
            state,
            winner: Some((Attempt([0; 16]), Digest([0; 16]))),
            samples,
            conversations: Some(samples),
            reason: reason.map(str::to_owned),
        }
    }

    fn ledgers(a: Vec<GroupRow>, b: Vec<GroupRow>) -> Ledgers {
        let by_task = |rows: Vec<GroupRow>| rows.into_iter().map(|row| (row.task.clone(), row)).collect();
        let names = ["a", "b"].map(|name| AgentName::new(name).unwrap());
        Ledgers {
            rows: names.into_iter().zip([by_task(a), by_task(b)]).collect(),
            ended: true,
            broken: Vec::new(),
        }
    }

    fn set(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_task_is_counted_once() {
        use RowState::{Closed, Dead};
        let one = || {
            vec![
                row("done", Closed, 3, None),
                row("thin", Closed, 0, Some("too few")),
                row("bad", Dead, 0, Some("dead: poison")),
            ]
        };
        let books = balance(
            &ledgers(one(), one()),
            &set(&["done", "thin", "bad", "junk"]),
            &set(&["junk"]),
            4,
        );
        assert_eq!(books.violations(), Vec::<String>::new());
        let figures = (
            books.published,
            books.accepted,
            books.finished,
            books.dead,
            books.in_flight,
        );
        assert_eq!(figures, (4, 3, 1, 2, 0));
        assert_eq!(books.abandoned, BTreeMap::from([("too few".into(), 1)]));
        let talks = (
            books.conversations,
            books.invalid_conversations,
            books.abandoned_conversations,
        );
        assert_eq!(talks, (8, 1, 4));
    }

    #[test]
    fn differences_at_the_end_of_a_run_are_named() {
        use RowState::{Closed, Reserved};
        let a = vec![row("x", Closed, 3, None), row("y", Closed, 3, None)];
        let mut books = ledgers(a, vec![row("y", Reserved, 0, None)]);
        let mut found = balance(&books, &set(&["x", "y", "z"]), &set(&[]), 4);
        found.queued = Some(1);
        assert!(
            !found.violations().join("\n").contains("published"),
            "it waits in the queue"
        );
        found.queued = Some(0);
        let text = found.violations().join("\n");
        for part in [
            "z",
            "x (a has it closed, b has no row)",
            "y (a has it closed, b has it reserved)",
        ] {
            assert!(text.contains(part), "{text}");
        }
        books.ended = false;
        let live = balance(&books, &set(&["x", "y", "z"]), &set(&[]), 4);
        assert_eq!(
            (live.in_flight, live.violations()),
            (2, vec![]),
            "in flight while the run goes on"
        );
    }
}
